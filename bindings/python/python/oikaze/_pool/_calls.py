"""Frames between a pool and its nodes, and the pickles in them.

A frame is a head and a body. The head names the kind of the frame, the call and the length of the
body. The pool sends calls, and each node sends the outcome of each call.
"""

from __future__ import annotations

import linecache
import os
import pickle
import struct
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .._errors import invalid

#: Kind of the frame, number of the call, length of the body in bytes.
HEAD = struct.Struct("<BQQ")
#: From the pool: run this function; interrupt the function; the repair of the job after a call
#: that failed, in two steps.
CALL, INTERRUPT, ALIGN, CLEAR = range(4)
#: From a node: it is ready for calls; the call has ended; a step of the repair has ended.
READY, OUTCOME, REPAIRED = range(4, 7)

#: Environment variable of the nodes: descriptor of the socket by which they send their own.
DESCRIPTOR = "OIKAZE_POOL"


@dataclass
class Outcome:
    """Outcome of a call on one node.

    Attributes:
        status: ``"value"``, ``"error"`` or ``"interrupted"``.
        pickled: the value or the exception. Empty for an exception that cannot be sent.
        text: the exception in one line.
        trace: traceback of the exception.
        counts: collective calls of the node (`oikaze.Job._call_counts`).
        kept: declarations of the shared arrays that the program of the node still holds, by name.
        lost: ranks of nodes that the job of the node has lost.
        has_ended_job: whether the exception says that the job was ended.
    """

    status: str
    pickled: bytes = b""
    text: str = ""
    trace: str = ""
    counts: dict[tuple[str, int], int] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    has_ended_job: bool = False


def frame(kind: int, number: int, *parts: bytes) -> list[memoryview]:
    """Returns the parts of a frame, in the order of sending."""
    head = HEAD.pack(kind, number, sum(map(len, parts)))
    return [memoryview(part) for part in (head, *parts) if part]


class _CallPickler(cloudpickle.CloudPickler):  # type: ignore[misc, unused-ignore]
    """Pickler of calls. A function of ``__main__`` becomes one of the node's ``__main__``."""

    def __init__(self, out: BytesIO, pushed: Set[str]) -> None:
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self._pushed = pushed

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is types.CodeType:
            return self._reduced_code(obj)
        reduced = super().reducer_override(obj)
        is_ours = type(obj) is types.FunctionType and isinstance(reduced, tuple)
        if not is_ours or obj.__globals__ is not sys.modules["__main__"].__dict__:
            return reduced
        _make, (code, *_, closure), (attributes, slots), items, pairs, set_state = reduced
        # Nodes have the names that were pushed.
        used = slots["__globals__"].items()
        used = {name: value for name, value in used if name not in self._pushed}
        slots = {**slots, "__globals__": {}}
        state = (set_state, (attributes, slots), used)
        return (function_of_main, (code, closure), state, items, pairs, complete_function)


    def _reduced_code(self, code: types.CodeType) -> Any:
        """Returns the parts of code with its file, so that tracebacks name the program's lines."""
        make, parts = self.dispatch_table[types.CodeType](code)
        name, lines = code.co_filename, None
        if not os.path.exists(name):
            # A cell of a notebook: nodes cannot read it.
            lines, name = linecache.getlines(name), _name_of_cell(name)
        parts = tuple(name if part in (_NO_FILE, code.co_filename) else part for part in parts)
        return code_of, (make, parts, name, lines)


#: What cloudpickle writes in place of the file of code.
_NO_FILE = "<dynamic-code>"


def _name_of_cell(name: str) -> str:
    """Returns the name under which a notebook shows a cell, or the name as it is."""
    interactive = sys.modules.get("IPython")
    try:
        kind, cell = interactive.get_ipython().compile.format_code_name(name)  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001 - there is no notebook, or this is no cell
        return name
    return f"{kind} {cell}"


def code_of(make: Any, parts: tuple[Any, ...], name: str, lines: list[str] | None) -> Any:
    """Returns code, and keeps its lines for tracebacks."""
    if lines:
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    return make(*parts)


def function_of_main(code: types.CodeType, closure: Any) -> types.FunctionType:
    """Returns a function whose global names are those of this process's ``__main__``."""
    return types.FunctionType(code, sys.modules["__main__"].__dict__, None, None, closure)


#: What names of the node's ``__main__`` were set to by the latest call that brought them.
_brought: dict[str, Any] = {}


def complete_function(
    function: types.FunctionType,
    state: tuple[Callable[[types.FunctionType, Any], None], Any, dict[str, Any]],
) -> None:
    """Gives a function of the node's ``__main__`` its attributes and global names.

    A name that a function has set on this node since, or before, is the node's own, and stays.
    """
    set_state, own, used = state
    set_state(function, own)
    names = function.__globals__
    for name, value in used.items():
        if name not in names or (name in _brought and names[name] is _brought[name]):
            names[name] = _brought[name] = value
        else:
            _brought.pop(name, None)


def pickled_call(
    function: Callable[..., Any],
    arguments: Iterable[Any],
    keywords: dict[str, Any],
    pushed: Set[str],
) -> bytes:
    """Returns a pickled call.

    Args:
        function: the function that a node calls.
        arguments: its positional arguments.
        keywords: its other arguments.
        pushed: names of ``__main__`` that the nodes have, and that are not sent.

    Raises:
        InvalidError: something cannot be pickled.
    """
    out = BytesIO()
    try:
        _CallPickler(out, pushed).dump((function, tuple(arguments), keywords))
    except Exception as error:
        if isinstance(error, pickle.PicklingError | TypeError | AttributeError | RecursionError):
            cause = _line_of(error)
            culprit = _culprit(function, arguments, keywords, pushed)
            if culprit:
                cause = f"{culprit} cannot be pickled ({cause})"
            remedy = "pass what can be pickled, and make the rest in the function"
            raise invalid("sending a function", cause, remedy) from error
        raise
    return out.getvalue()


def _culprit(
    function: Callable[..., Any],
    arguments: Iterable[Any],
    keywords: dict[str, Any],
    pushed: Set[str],
) -> str:
    """Returns in words which value of a call cannot be pickled, or an empty text."""
    given = [(f"argument {at}", value) for at, value in enumerate(arguments, 1)]
    given += [(f"argument {name!r}", value) for name, value in keywords.items()]
    for words, value in given:
        if not _can_be_pickled(value, pushed):
            return words
    seen: set[int] = set()
    open_ = [function]
    while open_:
        function = open_.pop()
        code = getattr(function, "__code__", None)
        if code is None or id(function) in seen:
            continue
        seen.add(id(function))
        cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
        used = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
        names = function.__globals__
        for inner in _codes(code):
            used.update({name: names[name] for name in inner.co_names if name in names})
        for name, value in used.items():
            if name in pushed or _can_be_pickled(value, pushed):
                continue
            if not isinstance(value, types.FunctionType):
                return f"the variable {name!r} that {function.__name__} uses"
            open_.append(value)
    return ""


def _codes(code: types.CodeType) -> Iterable[types.CodeType]:
    """Yields the code of a function, and of those within it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


def _can_be_pickled(value: Any, pushed: Set[str]) -> bool:
    try:
        _CallPickler(BytesIO(), pushed).dump(value)
    except Exception:  # noqa: BLE001 - whatever the value's own code raises
        return False
    return True


def outcome_of_value(value: Any) -> Outcome:
    """Returns the outcome of a function that has returned this value."""
    if isinstance(value, types.CoroutineType):
        value.close()
        cause = "the function is a coroutine function, and nothing awaits it"
        remedy = "send a function that calls asyncio.run"
        return outcome_of_error(invalid("returning a result", cause, remedy))
    try:
        return Outcome("value", cloudpickle.dumps(value))
    except Exception as error:  # noqa: BLE001 - whatever the value's own code raises
        kind, remedy = type(value).__name__, "return numbers, arrays, or parts of it"
        return outcome_of_error(invalid("returning a result", f"{kind}: {_line_of(error)}", remedy))


def outcome_of_error(error: BaseException, status: str = "error") -> Outcome:
    """Returns the outcome of a function that has raised this exception."""
    text = _line_of(error)
    try:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001 - whatever the exception's own code raises
        trace = text
    pickled = b""
    if isinstance(error, Exception):
        try:
            pickled = cloudpickle.dumps(error)
            pickle.loads(pickled)
        except Exception:  # noqa: BLE001 - whatever the exception's own code raises
            pickled = b""
    return Outcome(status, pickled, text, trace)


def exception_of(outcome: Outcome) -> Exception:
    """Returns the exception of a node, or a `RuntimeError` for one that means nothing here."""
    if outcome.pickled:
        try:
            error = pickle.loads(outcome.pickled)
        except Exception:  # noqa: BLE001 - a class that exists on the node alone, among others
            error = None
        if isinstance(error, Exception):
            return error
    return RuntimeError(outcome.text)


def _line_of(error: BaseException) -> str:
    try:
        if isinstance(error, SystemExit):
            return f"SystemExit: {error}"
        return "".join(traceback.format_exception_only(type(error), error)).strip()
    except Exception:  # noqa: BLE001 - whatever the exception's own code raises
        return type(error).__name__
