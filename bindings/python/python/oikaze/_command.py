"""The command ``oikaze``: where it is, and how it is run."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ._errors import make


def find() -> str:
    """Returns the path of the command.

    It is ``OIKAZE_COMMAND``, or the one that the wheel has installed, or the one on ``PATH``.
    """
    given = os.environ.get("OIKAZE_COMMAND")
    if given:
        return given
    for command in _installed():
        if command.is_file() and os.access(command, os.X_OK):
            return str(command)
    found = shutil.which("oikaze")
    if found is not None:
        return found
    operation, cause = "finding the command oikaze", "it is neither installed nor on PATH"
    remedy = "install the wheel again, or set OIKAZE_COMMAND to its path"
    raise make("SystemCallError", f"{operation}: {cause}; {remedy}", operation, cause, remedy)


def _installed() -> Iterator[Path]:
    """Yields where the command of this package may be, the likeliest place first."""
    # Imported late: it takes a while, and most programs start no command.
    from importlib.metadata import distributions

    site = Path(__file__).resolve().parent.parent
    # `pip install --target` moves the command there after it has written its list of files.
    yield site / "bin" / "oikaze"
    # The files that pip has installed with this package, by `--user` and `--prefix`, too.
    for found in distributions(name="oikaze", path=[str(site)]):
        for file in found.files or ():
            if file.name == "oikaze" and file.parent.name == "bin":
                yield Path(str(found.locate_file(file))).resolve()
    yield Path(sysconfig.get_path("scripts")) / "oikaze"
    yield Path(sys.executable).parent / "oikaze"
