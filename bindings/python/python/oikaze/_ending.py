"""How a process with a job ends: by leaving, by an exception, and not by fork."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from . import _errors, _native

if TYPE_CHECKING:
    from ._job import Job

#: Jobs that this process has joined and not left. They are kept here, so that no job ends because
#: a program dropped its last reference to it.
_joined: list[Job] = []

_FORKS = frozenset({"os.fork", "os.forkpty"})
_FORK_REMEDY = (
    'use multiprocessing.get_context("spawn"), subprocess or threads, or fork before oikaze.join'
)
_is_installed = False
#: The process that joined. Its children by fork have its objects, but not its place in the job.
_origin: int | None = None

# Registered first, so that it is called after the program's functions, and after those below: they
# may wait for threads that come back from the library.
atexit.register(_native.end_threads)


def joined(job: Job) -> None:
    """Notes a job, which this process leaves at its end."""
    global _origin
    _origin = os.getpid()
    _joined.append(job)
    _install()


def left(job: Job) -> None:
    """Forgets a job that this process has left."""
    _joined[:] = [other for other in _joined if other is not job]


def _watch_exit() -> None:
    """Makes every `SystemExit` tell by what code it ends this process.

    The interpreter asks the exception for its code when it ends the process, and no function runs
    any more then. Code that catches the exception asks from a function. The attribute belongs to a
    type of the interpreter, so it is replaced where the type keeps it. That works however a program
    names `exit`, and for subclasses, too.
    """
    code = SystemExit.__dict__["code"]

    def get(error: SystemExit) -> Any:
        value = code.__get__(error, type(error))
        try:
            sys._getframe(1)
        except ValueError:
            exiting(value)
        return value

    attributes = next(
        kept for kept in gc.get_referents(SystemExit.__dict__) if isinstance(kept, dict)
    )
    attributes["code"] = property(get, code.__set__, code.__delete__, code.__doc__)
    _native.type_modified(SystemExit)
    if sys.version_info < (3, 12):
        _raise_instances()


def _raise_instances() -> None:
    """Makes `sys.exit` raise an instance of `SystemExit`, under all names that modules gave it.

    Before Python 3.12 the interpreter keeps the type and the bare code instead, until some code
    catches the exception. At the end of the process nothing does.
    """
    exit_of_sys = sys.exit

    @functools.wraps(exit_of_sys)
    def exit_by_instance(*arguments: Any) -> NoReturn:
        try:
            exit_of_sys(*arguments)
        except SystemExit:
            raise

    for holder in gc.get_referrers(exit_of_sys):
        if isinstance(holder, dict):
            for name in [name for name, value in holder.items() if value is exit_of_sys]:
                if holder is not exit_by_instance.__dict__:  # its `__wrapped__`
                    holder[name] = exit_by_instance


def exiting(code: Any) -> None:
    """Ends the job of a process that ends with this argument of `sys.exit`, if it is a failure.

    A process that succeeds leaves its job, and waits for the other nodes. After a failure they
    would wait for this node in vain, so the job ends with the status of this node.
    """
    # The system keeps the low eight bits of a number. Anything else is printed, and is status 1.
    succeeds = code is None or (isinstance(code, int) and code & 0xFF == 0)
    if succeeds or os.getpid() != _origin:
        return
    for job in list(_joined):
        if job.keeps_going:
            # For the survivors this node is lost, as after a crash.
            job._abandon()
            left(job)
        else:
            job._end(f"SystemExit: {code}")


def _install() -> None:
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    atexit.register(_leave_all)
    sys.addaudithook(_refuse_fork)
    _watch_exit()
    previous = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> Any:
        # Printed before the error ends the other nodes, so that it stands above theirs.
        previous(kind, error, trace)
        sys.stderr.flush()
        _abort_all(kind, error, trace)

    sys.excepthook = excepthook


def flush_output() -> None:
    """Flushes what the program has printed, as far as it can be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # The program has none, has closed it, or nobody reads it.
            pass


def _abort_all(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if os.getpid() != _origin:
        return
    reason = "".join(traceback.format_exception_only(kind, error)).strip()
    frames = traceback.extract_tb(trace)
    if frames:
        last = frames[-1]
        reason = f"{reason} ({os.path.basename(last.filename)}, line {last.lineno})"
    for job in list(_joined):
        # The reason of an aborted job is known, and survivors of a job that goes on need none.
        if not isinstance(error, _errors.AbortedError) and not job.keeps_going:
            job._end(reason)


def _leave_all() -> None:
    if os.getpid() != _origin:
        return
    for job in list(_joined):
        try:
            job.leave()
        except _errors.AbortedError:
            # The launcher has said why.
            pass
        except _errors.Error as error:
            print(f"oikaze: node {job.rank}: {error}", file=sys.stderr)
        except BaseException as error:
            # A signal's handler raised it. The process ends without waiting any longer.
            if job.keeps_going:
                job._abandon()
                left(job)
            else:
                _abort_all(type(error), error, error.__traceback__)
            raise


def _refuse_fork(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in _FORKS and _joined and os.getpid() == _origin:
        rank = _joined[0].rank
        operation, cause = event, f"this process is node {rank} of a job, which a fork breaks"
        text = f"{operation}: {cause}; {_FORK_REMEDY}"
        raise _errors.make("ForkedError", text, operation, cause, _FORK_REMEDY)
