"""Program of a node that `oikaze.local` starts."""

from ._local import serve

if __name__ == "__main__":
    serve()
