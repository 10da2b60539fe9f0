"""Exceptions. Each names the operation, the cause and the remedy, in that order."""

from __future__ import annotations

import builtins
import operator as operators
from typing import Any


class Error(Exception):
    """Failure of a call. Its text names the operation, the cause and the remedy.

    Attributes:
        operation: what was tried, such as ``"barrier"``.
        cause: why it failed.
        remedy: what to do about it, or an empty string.
    """

    operation: str = ""
    cause: str = ""
    remedy: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception that crosses a process keeps its attributes.
        return (_restored, (type(self).__name__, str(self), self.__dict__))


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001 - the built-in's own subclass
    """A time limit has passed. An operation goes on, and may be waited for again."""


class PeerLostError(Error, builtins.ConnectionError):
    """A node that the call needs is lost, leaves, or has not done its part.

    ``peer`` is its rank, if known.
    """

    peer: int | None = None


class RefusedError(Error, builtins.PermissionError):
    """The peer refused the operation, which has changed nothing there. ``reason`` says why."""

    reason: str | None = None


class FullError(Error):
    """A FIFO was full."""


class QueueFullError(Error):
    """Too much is queued to the peer. Try again when earlier operations have ended."""


class LeftError(Error, builtins.RuntimeError):
    """This process has left the job."""


class AbortedError(Error):
    """A node has ended the job for all nodes."""


class ForkedError(Error, builtins.RuntimeError):
    """A child of fork used the job of its parent, or a process with a job was to be forked."""


class MismatchError(Error):
    """The nodes did not agree on a collective, which failed on all of them."""


class UnreportedError(Error):
    """Operations failed, and nobody had waited for them. ``count`` is their number."""

    count: int | None = None


class CancelledError(Error):
    """The operation was cancelled. Whether it took place at the peer is unknown."""


class JoinError(Error):
    """The job could not be found, started or reached."""


class OutOfMemoryError(Error, builtins.MemoryError):
    """There is not enough memory, or no way to track it."""


class InvalidError(Error, builtins.ValueError):
    """The arguments do not fit."""


class ArgumentTypeError(InvalidError, builtins.TypeError):
    """An argument is of another type than the call takes."""


class SystemCallError(Error, builtins.RuntimeError):
    """A system call failed."""


_CLASSES: dict[str, type[Error]] = {
    kind.__name__: kind
    for kind in (
        Error,
        TimeoutError,
        PeerLostError,
        RefusedError,
        FullError,
        QueueFullError,
        LeftError,
        AbortedError,
        ForkedError,
        MismatchError,
        UnreportedError,
        CancelledError,
        JoinError,
        OutOfMemoryError,
        InvalidError,
        ArgumentTypeError,
        SystemCallError,
    )
}


def make(
    name: str,
    text: str,
    operation: str,
    cause: str,
    remedy: str,
    peer: int | None = None,
    reason: str | None = None,
    count: int | None = None,
) -> Error:
    """Returns the exception of a class, by its name."""
    error = _CLASSES.get(name, Error)(text)
    error.operation, error.cause, error.remedy = operation, cause, remedy
    if isinstance(error, PeerLostError):
        error.peer = peer
    if isinstance(error, RefusedError):
        error.reason = reason
    if isinstance(error, UnreportedError):
        error.count = count
    return error


def invalid(operation: str, cause: str, remedy: str) -> Error:
    """Returns the exception of arguments that do not fit."""
    return make("InvalidError", f"{operation}: {cause}; {remedy}", operation, cause, remedy)


def wrong_type(operation: str, cause: str, remedy: str) -> Error:
    """Returns the exception of an argument of another type than it takes."""
    return make("ArgumentTypeError", f"{operation}: {cause}; {remedy}", operation, cause, remedy)


def named(error: Exception, operation: str) -> Exception:
    """Returns an exception that names the operation, of one that says only what does not fit.

    Raise it without ``from``: it has its cause, or is the exception itself.
    """
    if isinstance(error, Error) or not isinstance(error, TypeError | ValueError | OverflowError):
        return error
    cause, _, remedy = str(error).partition("; ")
    made = wrong_type if isinstance(error, TypeError) else invalid
    fits = "give a number that the type of the elements holds"
    remedy = remedy or (fits if isinstance(error, OverflowError) else "see help(oikaze)")
    of_package = made(operation, cause, remedy)
    of_package.__cause__ = error
    return of_package


def whole_number(value: Any, operation: str, argument: str) -> int:
    """Returns a whole number. A truth value is none, as NumPy would take it for a mask."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        try:
            return operators.index(value)
        except TypeError:
            pass
    cause = f"{argument} is {value!r}, which is not a whole number"
    raise wrong_type(operation, cause, "give a whole number, such as int(value)")


def _restored(name: str, text: str, attributes: dict[str, Any]) -> Error:
    error = _CLASSES.get(name, Error)(text)
    error.__dict__.update(attributes)
    return error
