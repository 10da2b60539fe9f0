"""How a process with a job ends: by leaving, by an exception, and not by fork."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from . import _errors

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


def joined(job: Job) -> None:
    """Notes a job, which this process leaves at its end."""
    global _origin
    _origin = os.getpid()
    _joined.append(job)
    _install()


def left(job: Job) -> None:
    """Forgets a job that this process has left."""
    _joined[:] = [other for other in _joined if other is not job]


class _Exit(SystemExit):
    """Exception of `sys.exit` while this process has a job.

    The interpreter asks for its code when it ends the process, and no function runs any more then.
    Code that catches the exception asks from a function.
    """

    @property
    def code(self) -> Any:  # type: ignore[override]
        code = self.args[0] if len(self.args) == 1 else self.args or None
        try:
            sys._getframe(1)
        except ValueError:
            exiting(code)
        return code


def exiting(code: Any) -> None:
    """Ends the job of a process that ends with this argument of `sys.exit`, if it is a failure.

    A process that succeeds leaves its job, and waits for the other nodes. After a failure they
    would wait for this node in vain, so the job ends with the status of this node.
    """
    if code is None or code == 0 or os.getpid() != _origin:
        return
    for job in list(_joined):
        if job.keeps_going:
            # For the survivors this node is lost, as after a crash.
            job._abandon()
            left(job)
        else:
            job.abort(f"SystemExit: {code}")


def _install() -> None:
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    atexit.register(_leave_all)
    sys.addaudithook(_refuse_fork)
    previous, previous_exit = sys.excepthook, sys.exit

    @functools.wraps(previous_exit)
    def exit_of_job(*arguments: Any) -> NoReturn:
        try:
            previous_exit(*arguments)
        except SystemExit as error:
            if type(error) is SystemExit:
                raise _Exit(*error.args) from None
            raise

    sys.exit = exit_of_job

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> Any:
        # Printed before the error ends the other nodes, so that it stands above theirs.
        previous(kind, error, trace)
        sys.stderr.flush()
        _abort_all(kind, error, trace)

    sys.excepthook = excepthook


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
            job.abort(reason)


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


def _refuse_fork(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in _FORKS and _joined and os.getpid() == _origin:
        rank = _joined[0].rank
        operation, cause = event, f"this process is node {rank} of a job, which a fork breaks"
        text = f"{operation}: {cause}; {_FORK_REMEDY}"
        raise _errors.make("ForkedError", text, operation, cause, _FORK_REMEDY)
