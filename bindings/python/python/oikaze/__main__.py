"""``python -m oikaze`` is the command ``oikaze``."""

import os
import sys

from ._command import find
from ._errors import Error

if __name__ == "__main__":
    try:
        command = find()
        os.execv(command, [command, *sys.argv[1:]])
    except Error as error:
        sys.exit(f"oikaze: {error}")
    except OSError as error:
        sys.exit(f"oikaze: running {command}: {error}; set OIKAZE_COMMAND to another path")
