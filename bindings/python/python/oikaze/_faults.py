"""Keeps Oikaze's handler for page faults when a program changes its own handlers of faults.

Without userfaultfd, touches of pages of shared arrays raise SIGSEGV. A handler that a program, or
`faulthandler`, puts over Oikaze's would take the next touch for a crash. So the functions that
change such handlers put Oikaze's in front again, which passes other faults on (COH-8.6).
"""

from __future__ import annotations

import faulthandler
import functools
import signal
from types import ModuleType
from typing import Any

from ._native import change_fault_handlers

_FAULTS = (signal.SIGSEGV, signal.SIGBUS)

_watched = False


def watch_changes() -> None:
    """Begins to watch changes of handlers. Called before the first array is made."""
    global _watched
    if not _watched:
        _watched = True
        _watch(faulthandler, "enable")
        _watch(faulthandler, "disable")
        _watch(signal, "signal")


def _watch(module: ModuleType, name: str) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def change(*args: Any, **kwargs: Any) -> Any:
        number = args[0] if args else kwargs.get("signalnum")
        if module is signal and number not in _FAULTS:
            return original(*args, **kwargs)
        return change_fault_handlers(functools.partial(original, *args, **kwargs))

    setattr(module, name, change)
