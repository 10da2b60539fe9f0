"""The command ``oikaze``: where it is, and how it is run."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from ._errors import make


def find() -> str:
    """Returns the path of the command.

    It is ``OIKAZE_COMMAND``, or the one that the wheel has installed, or the one on ``PATH``.
    """
    given = os.environ.get("OIKAZE_COMMAND")
    if given:
        return given
    places = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    for place in places:
        command = place / "oikaze"
        if os.access(command, os.X_OK):
            return str(command)
    found = shutil.which("oikaze")
    if found is not None:
        return found
    operation, cause = "finding the command oikaze", "it is neither installed nor on PATH"
    remedy = "install the wheel again, or set OIKAZE_COMMAND to its path"
    raise make("SystemCallError", f"{operation}: {cause}; {remedy}", operation, cause, remedy)
