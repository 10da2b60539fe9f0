"""End of a process that has joined a job: leave, abort after a failure, and refusal of fork."""

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

#: Jobs that this process has joined and not left. This list keeps a reference to each, so that the
#: garbage collector does not end a job of which the program holds none.
_joined: list[Job] = []

_FORKS = frozenset({"os.fork", "os.forkpty"})
_FORK_REMEDY = (
    'use multiprocessing.get_context("spawn"), subprocess or threads, or fork before oikaze.join'
)
_is_installed = False
#: Number of the process that joined. A child by fork has copies of its objects, and must not leave
#: or end the job of its parent.
_origin: int | None = None

# `atexit` calls functions in the opposite order of their registration. This one is registered
# first, because functions that are called before it may wait for threads that are in calls of the
# library.
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
    """Calls `exiting` with the code of the `SystemExit` that ends this process.

    Neither `atexit` nor `sys.excepthook` gets that code. But the interpreter reads the attribute
    `code` of the exception, and it does so with no Python frame on the stack, because the program
    has ended. A program that catches the exception reads the attribute from a frame. So this
    function replaces the attribute by a property that checks for a frame.

    `SystemExit` is a type of the interpreter and refuses assignments, so the property is put into
    the dictionary behind the type. That also works for `exit` under another name, and for
    subclasses.
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

    Before Python 3.12, `sys.exit(3)` raises the type with the bare number. The interpreter makes an
    instance only if code catches the exception. Without an instance it reads no attribute, and
    `_watch_exit` has no effect. The function below catches the exception and raises it again.
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

    A process that succeeds leaves its job and waits for the other nodes to leave. After a failure,
    the other nodes may wait for something that this node will never do. So the job ends, with the
    status of this node.
    """
    # The exit status is the low eight bits of a number. Any other object is printed, and the status
    # is 1.
    succeeds = code is None or (isinstance(code, int) and code & 0xFF == 0)
    if succeeds or os.getpid() != _origin:
        return
    for job in list(_joined):
        if job.keeps_going:
            # The other nodes go on, and find this node lost, as after a crash.
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
        # The traceback is printed before the abort, so that it stands above the errors that the
        # other nodes print because of the abort.
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
            # The stream is missing or closed, or its reader has gone.
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
        # A job that another node aborted has a reason already. A job that keeps going is not
        # aborted by the failure of one node.
        if not isinstance(error, _errors.AbortedError) and not job.keeps_going:
            job._end(reason)


def _leave_all() -> None:
    if os.getpid() != _origin:
        return
    for job in list(_joined):
        try:
            job.leave()
        except _errors.AbortedError:
            # The launcher has printed the reason.
            pass
        except _errors.Error as error:
            print(f"oikaze: node {job.rank}: {error}", file=sys.stderr)
        except BaseException as error:
            # A signal handler raised an exception while this process waited for the other nodes. The
            # process ends without leaving.
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
