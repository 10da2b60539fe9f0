"""Collectives on numbers, arrays and any other values.

Numbers and NumPy arrays are sent as they are. Other values are pickled. All ranks of a team call
the same collectives in the same order. The ranks compare shapes and types of arrays.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from . import _native
from ._dtype import is_number, kind_of
from ._errors import Error, LeftError, invalid, named, whole_number
from ._native import Operation
from ._values import (
    PLAIN,
    Integers,
    array_of,
    array_of_list,
    check_sequence,
    decoded,
    encoded,
    holds_integers,
    meaning_of,
)

Operator: TypeAlias = (
    Literal["sum", "product", "min", "max", "and", "or", "xor", "min_location", "max_location"]
    | Callable[[Any, Any], Any]
)


_Call = TypeVar("_Call", bound=Callable[..., Any])
_Into = TypeVar("_Into")


def _of_all(collective: str, operation: str = "") -> Callable[[_Call], _Call]:
    """Makes a call of this rank count if its arguments are refused, too.

    The other ranks are told then, and get an error. Without it, this rank would be one collective
    behind them, and later results would be wrong. A decorated method raises an exception only
    before it has begun its collective, and calls no other decorated method. ``operation`` is the
    call of the program, if it has another name than the collective.
    """

    def of_all(call: _Call) -> _Call:
        @functools.wraps(call)
        def called(self: Any, *arguments: Any, **keywords: Any) -> Any:
            try:
                return call(self, *arguments, **keywords)
            except Exception as error:
                why = error.cause if isinstance(error, Error) else f"{type(error).__name__}: {error}"
                with contextlib.suppress(LeftError):
                    _native.refuse(self._members(), collective, why)
                raise named(error, operation or collective)

        return cast(_Call, called)

    return of_all


class Collectives:
    """Collectives of a job or of a team.

    Each has two forms. ``job.all_reduce(x)`` waits and returns the result.
    ``job.start_all_reduce(x)`` returns an `Operation`, to ``wait`` for or to ``await``. Arguments
    are copied before either form returns or waits. A ``timeout`` is in seconds.

    Arrays of all ranks have one shape and one dtype. Only numbers are combined by the name of an
    operator, and arrays of any dtype are moved. Whole numbers of Python, also in lists, are combined
    exactly, and those of NumPy wrap as in NumPy. Arrays whose class means more, such as masked ones,
    are moved as other values are, and are combined by functions alone.

    Raises:
        MismatchError, InvalidError: the ranks call different things, on each rank.
        PeerLostError: a rank is lost.
    """

    @property
    def rank(self) -> int:
        """Rank of this node in the team."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Number of ranks in the team."""
        raise NotImplementedError

    @_of_all("broadcast")
    def start_broadcast(self, value: Any = None, root: int = 0) -> Operation:
        """Begins `broadcast`."""
        data = encoded(value, "broadcast") if self.rank == root else b""
        started = self._even("broadcast", "u8", data, root, called="broadcast")
        return started.then(decoded)

    def broadcast(self, value: Any = None, root: int = 0, timeout: float | None = None) -> Any:
        """Returns the root's value on all ranks. Other ranks need not pass any."""
        return self.start_broadcast(value, root).wait(timeout)

    @_of_all("broadcast")
    def start_broadcast_into(self, array: _Into, root: int = 0) -> Operation:
        """Begins `broadcast_into`."""
        view = array_of(array, "broadcast_into", writable=True)
        if not view.flags.c_contiguous:
            remedy = "pass a contiguous array, and copy from it into yours afterwards"
            raise invalid("broadcast_into", "the array is not contiguous", remedy)
        kind, memory, meaning = _moved(view, "broadcast_into")
        started = self._even("broadcast", kind, memory, root, out=memory, meaning=meaning)
        return started.then(lambda _: array)

    def broadcast_into(self, array: _Into, root: int = 0, timeout: float | None = None) -> _Into:
        """Copies the root's array into the array of each rank, of the same shape and dtype.

        A tensor in this host's memory, or another writable buffer, may take the array's place.
        """
        if timeout is None:
            short = _native.short_broadcast_into(self._members(), array, root)
            if short is not None:
                return cast(_Into, short)
        return cast(_Into, self.start_broadcast_into(array, root).wait(timeout))

    @_of_all("gather")
    def start_gather(self, value: Any, root: int = 0) -> Operation:
        """Begins `gather`."""
        return self._gather(value, root)

    def _gather(self, value: Any, root: int, called: str = "") -> Operation:
        started, made = self._exchange("gather", value, root, called)
        return started.then(made if self.rank == root else _nothing)

    def gather(self, value: Any, root: int = 0, timeout: float | None = None) -> Any:
        """Collects a value of each rank at the root, and returns ``None`` elsewhere.

        Arrays of one shape become an array of shape ``(size, *shape)``, other values a list.
        """
        return self.start_gather(value, root).wait(timeout)

    @_of_all("gather")
    def start_gather_uneven(self, value: Any, root: int = 0) -> Operation:
        """Begins `gather_uneven`."""
        started = self._uneven("gather", [encoded(value, "gather_uneven")], root)
        return started.then(_all_decoded if self.rank == root else _nothing)

    def gather_uneven(self, value: Any, root: int = 0, timeout: float | None = None) -> Any:
        """Collects arrays of any shapes, or other values, in a list at the root."""
        return self.start_gather_uneven(value, root).wait(timeout)

    @_of_all("all_gather")
    def start_all_gather(self, value: Any) -> Operation:
        """Begins `all_gather`."""
        return self._all_gather(value)

    def _all_gather(self, value: Any, called: str = "") -> Operation:
        started, made = self._exchange("all_gather", value, 0, called)
        return started.then(made)

    def all_gather(self, value: Any, timeout: float | None = None) -> Any:
        """Collects a value of each rank on all ranks, as `gather` does."""
        if timeout is None:
            short = _native.short_all_gather(self._members(), value)
            if short is not None:
                return short
        return self.start_all_gather(value).wait(timeout)

    @_of_all("all_gather")
    def start_all_gather_uneven(self, value: Any) -> Operation:
        """Begins `all_gather_uneven`."""
        started = self._uneven("all_gather", [encoded(value, "all_gather_uneven")])
        return started.then(_all_decoded)

    def all_gather_uneven(self, value: Any, timeout: float | None = None) -> Any:
        """Collects arrays of any shapes, or other values, in a list on all ranks."""
        return self.start_all_gather_uneven(value).wait(timeout)

    @_of_all("scatter")
    def start_scatter(self, values: Sequence[Any] | None = None, root: int = 0) -> Operation:
        """Begins `scatter`."""
        parts: list[bytes] = []
        if self.rank == root:
            check_sequence(values, self.size, "scatter")
            parts = [encoded(value, "scatter") for value in cast(Sequence[Any], values)]
        return self._uneven("scatter", parts, root).then(decoded)

    def scatter(
        self, values: Any = None, root: int = 0, timeout: float | None = None
    ) -> Any:
        """Returns the value of this rank, of a sequence of ``size`` values at the root.

        The sequence may be an array, whose first axis is cut. The values may differ in shape, as the
        parts of ``numpy.array_split(array, job.size)`` do. Other ranks need not pass any.
        """
        return self.start_scatter(values, root).wait(timeout)

    @_of_all("all_to_all")
    def start_all_to_all(self, values: Any) -> Operation:
        """Begins `all_to_all`."""
        return self._all_to_all(values)

    def _all_to_all(self, values: Any, called: str = "") -> Operation:
        check_sequence(values, self.size, "all_to_all")
        started, made = self._exchange("all_to_all", values, 0, called)
        return started.then(made)

    def all_to_all(self, values: Any, timeout: float | None = None) -> Any:
        """Sends ``values[r]`` to rank ``r``, and returns what the ranks sent to this one.

        An array of shape ``(size, ...)`` becomes one of the same shape, a sequence a list. Arrays in
        a list may differ in shape.
        """
        return self.start_all_to_all(values).wait(timeout)

    @_of_all("reduce")
    def start_reduce(self, value: Any, operator: Operator = "sum", root: int = 0) -> Operation:
        """Begins `reduce`."""
        is_root = self.rank == root
        if callable(operator):
            combined = _combining(operator)
            started = self._gather(value, root, "reduce")
            return started.then(combined if is_root else _nothing)
        numbers = _numbers(value, "reduce", operator)
        if isinstance(numbers, Integers):
            started = self._integers("gather", "reduce", numbers, root)
            return started.then(numbers.combined if is_root else _nothing)
        kind, data, meaning, like = numbers
        started = self._even("reduce", kind, data, root, operator, meaning=meaning)
        return started.then(like if is_root else _nothing)

    def reduce(
        self, value: Any, operator: Operator = "sum", root: int = 0, timeout: float | None = None
    ) -> Any:
        """Combines a value of each rank at the root, and returns ``None`` elsewhere.

        ``operator`` is a name, or an associative function of two values. A function is called in
        this thread, in the order of ranks. ``"min_location"`` and ``"max_location"`` combine pairs
        of a value and a location along the last axis. Arrays are combined element by element.
        """
        return self.start_reduce(value, operator, root).wait(timeout)

    @_of_all("all_reduce")
    def start_all_reduce(
        self, value: Any, operator: Operator = "sum", out: Any = None
    ) -> Operation:
        """Begins `all_reduce`."""
        return self._combine("all_reduce", value, operator, None, out)

    def all_reduce(
        self,
        value: Any,
        operator: Operator = "sum",
        out: Any = None,
        timeout: float | None = None,
    ) -> Any:
        """Combines a value of each rank on all ranks, as `reduce` does.

        All ranks get the same bits. ``out`` takes the result of an array in place of a new one.
        """
        if timeout is None:
            short = _native.short_all_reduce(self._members(), value, operator, out)
            if short is not None:
                return short
        return self.start_all_reduce(value, operator, out).wait(timeout)

    @_of_all("scan")
    def start_scan(self, value: Any, operator: Operator = "sum") -> Operation:
        """Begins `scan`."""
        return self._combine("scan", value, operator, self.rank + 1)

    def scan(self, value: Any, operator: Operator = "sum", timeout: float | None = None) -> Any:
        """Combines the values of the ranks up to this one."""
        return self.start_scan(value, operator).wait(timeout)

    @_of_all("exclusive_scan")
    def start_exclusive_scan(self, value: Any, operator: Operator = "sum") -> Operation:
        """Begins `exclusive_scan`."""
        return self._combine("exclusive_scan", value, operator, self.rank)

    def exclusive_scan(
        self, value: Any, operator: Operator = "sum", timeout: float | None = None
    ) -> Any:
        """Combines the values of the ranks before this one. Rank 0 gets ``None``."""
        return self.start_exclusive_scan(value, operator).wait(timeout)

    @_of_all("reduce_scatter")
    def start_reduce_scatter(self, values: Any, operator: Operator = "sum") -> Operation:
        """Begins `reduce_scatter`."""
        if callable(operator):
            started = self._all_to_all(values, "reduce_scatter")
            return started.then(_combining(operator))
        check_sequence(values, self.size, "reduce_scatter")
        numbers = _numbers(values, "reduce_scatter", operator)
        if isinstance(numbers, Integers):
            size, started = self.size, self._integers("all_to_all", "reduce_scatter", numbers)
            return started.then(lambda raw: numbers.combined_block(raw, size))
        kind, data, meaning, _ = numbers
        started = self._even("reduce_scatter", kind, data, 0, operator, meaning=meaning)
        if isinstance(values, np.ndarray) or data.ndim > 1:
            return started.then(_array(data.dtype, data.shape[1:]))
        return started.then(lambda raw: np.frombuffer(raw, data.dtype)[0].item())

    def reduce_scatter(
        self, values: Any, operator: Operator = "sum", timeout: float | None = None
    ) -> Any:
        """Combines ``values[r]`` of all ranks, and returns the result to rank ``r``."""
        return self.start_reduce_scatter(values, operator).wait(timeout)

    def sum_exact(self, values: npt.ArrayLike) -> float:
        """Returns the sum of all numbers of all ranks, rounded once.

        The result does not depend on the number of ranks. Numbers are float32 or float64.
        """
        return _native.sum_exact(self._members(), *self._summands(values))

    @_of_all("all_reduce", "sum_exact")
    def _summands(self, values: npt.ArrayLike) -> tuple[str, npt.NDArray[Any]]:
        if isinstance(values, list | tuple):
            holds_integers(values, "sum_exact")
            array = array_of_list(values, "sum_exact")
        elif isinstance(values, int | float | np.generic):
            array = np.asarray(values)
        else:
            array = array_of(values, "sum_exact")
        return kind_of(array.dtype, "sum_exact"), np.ascontiguousarray(array)

    def split(self, color: int | None, key: int = 0) -> Team | None:
        """Makes a team of the ranks that pass the same colour, in the order of ``key`` and rank.

        A rank that passes ``None`` gets no team.
        """
        part = _native.split(self._members(), *self._parts(color, key))
        return None if part is None else Team(part)

    @_of_all("all_gather", "split")
    def _parts(self, color: int | None, key: int) -> tuple[int | None, int]:
        if color is not None:
            color = whole_number(color, "split", "the colour")
        key = whole_number(key, "split", "key")
        if color is not None and not 0 <= color < 1 << 32:
            raise invalid("split", f"colour {color} is out of range", "give 0 to 2**32 - 1")
        if not -(1 << 63) <= key < 1 << 63:
            raise invalid("split", f"key {key} is out of range", "give a number of 64 bits")
        return color, key

    def shrink(self) -> Team:
        """Makes a team of the ranks that are alive, after the loss of others."""
        return Team(_native.shrink(self._members()))

    def _members(self) -> Any:
        return self

    def _exchange(
        self, collective: str, value: Any, root: int, called: str
    ) -> tuple[Operation, Callable[[Any], Any]]:
        """Begins to move values of all ranks. Also returns what makes the result of the bytes.

        ``called`` is the reduction that the program calls, if each rank combines the values.
        """
        is_cut = collective == "all_to_all"
        if not _is_array(value):
            parts = [encoded(part, collective) for part in (value if is_cut else [value])]
            return self._uneven(collective, parts, root, called=called), _all_decoded
        shape = value.shape if is_cut else (self.size, *value.shape)
        if value.dtype.hasobject:
            rows = [value[rank, ...] for rank in range(self.size)] if is_cut else [value]
            parts = [encoded(row, collective) for row in rows]
            started = self._uneven(collective, parts, root, meaning_of(value, False), called)
            return started, _stacked(value.dtype, shape)
        kind, data, meaning = _moved(value, collective)
        started = self._even(collective, kind, data, root, meaning=meaning, called=called)
        return started, _array(value.dtype, shape)

    def _even(
        self,
        collective: str,
        kind: str,
        data: Any,
        root: int = 0,
        operator: str | None = None,
        out: Any = None,
        meaning: str = "",
        called: str = "",
    ) -> Operation:
        members = self._members()
        return _native.start_even(
            members, collective, kind, data, root, operator, out, meaning, called
        )

    def _integers(
        self, collective: str, called: str, numbers: Integers, root: int = 0
    ) -> Operation:
        """Begins to move whole numbers for the reduction ``called``, which each rank computes."""
        return self._even(
            collective,
            "u8",
            numbers.data,
            root,
            numbers.operator,
            meaning=numbers.meaning,
            called=called,
        )

    def _uneven(
        self,
        collective: str,
        parts: list[Any],
        root: int = 0,
        meaning: str = "",
        called: str = "",
    ) -> Operation:
        return _native.start_uneven(self._members(), collective, parts, root, meaning, called)

    def _combine(
        self,
        collective: str,
        value: Any,
        operator: Operator,
        ranks: int | None,
        out: Any = None,
    ) -> Operation:
        """Combines the values of the first ranks, or of all, for each rank."""
        into = None if out is None else array_of(out, collective, writable=True)
        if callable(operator):
            started = self._all_gather(value, collective)
            started = started.then(_nothing if ranks == 0 else _combining(operator, ranks))
            return started if out is None else started.then(_into(out, into))
        numbers = _numbers(value, collective, operator)
        if isinstance(numbers, Integers):
            if out is not None:
                cause = "out is given for whole numbers of Python, which have no dtype"
                raise invalid(collective, cause, "pass a NumPy array, or leave out away")
            started = self._integers("all_gather", collective, numbers)
            if ranks == 0:
                return started.then(_nothing)
            return started.then(lambda raw: numbers.combined(raw, ranks))
        kind, data, meaning, like = numbers
        if into is not None and (into.dtype, into.shape) != (data.dtype, data.shape):
            cause = f"out is {into.dtype}{into.shape}, the values are {data.dtype}{data.shape}"
            raise invalid(collective, cause, "make it numpy.empty_like(values)")
        started = self._even(collective, kind, data, 0, operator, out, meaning)
        if out is not None:
            return started
        return started.then(_nothing if ranks == 0 else like)


class Team(Collectives):
    """Ranks that have collectives of their own; ``job.split(color)`` makes one."""

    def __init__(self, team: _native.Team) -> None:
        self._team = team

    @property
    def rank(self) -> int:
        """Rank of this node in the team."""
        return self._team.rank

    @property
    def size(self) -> int:
        """Number of ranks in the team."""
        return self._team.size

    @property
    def ranks(self) -> list[int]:
        """Ranks of the members in the job, by their ranks in the team."""
        return self._team.ranks

    def barrier(self) -> None:
        """Waits for all members. Each sees then what the others wrote to shared arrays."""
        self._team.barrier()

    def algorithm(self, collective: str, length: int) -> str:
        """Name of the algorithm that a collective of so many bytes takes."""
        return self._team.algorithm(collective, length)

    def _members(self) -> Any:
        return self._team

    def __repr__(self) -> str:
        return f"<oikaze.Team, rank {self.rank} of {self.size}>"


def _into(out: Any, into: Any) -> Callable[[Any], Any]:
    """Returns a function that copies a result to the array that takes it."""

    def copied(result: Any) -> Any:
        np.copyto(into, result, casting="no")
        return out

    return copied


def _is_array(value: Any) -> bool:
    """Returns whether a value is moved as an array. Arrays of other classes are pickled."""
    return type(value) in PLAIN


def _moved(array: npt.NDArray[Any], operation: str) -> tuple[str, npt.NDArray[Any], str]:
    """Returns the kind of the elements of an array that is moved, its bytes, and its meaning."""
    if array.dtype.hasobject:
        cause = f"elements of {array.dtype!r} are Python objects, whose addresses mean nothing here"
        raise invalid(operation, cause, "use broadcast, which pickles them")
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    if is_number(array.dtype):
        return kind_of(array.dtype, operation), contiguous, meaning_of(array, True)
    # As bytes: times and half of the structures have no buffer of their own.
    return "u8", contiguous.reshape(-1).view("u1"), meaning_of(array, False)


def _numbers(
    value: Any, operation: str, operator: str
) -> Integers | tuple[str, npt.NDArray[Any], str, Callable[[Any], Any]]:
    """Returns numbers that are combined: kind, values, meaning, and what makes a result like them.

    Whole numbers of Python are `Integers`, unless they are pairs of a value and a location.
    """
    pairs = str(operator).endswith("_location")
    if isinstance(value, range):
        value = list(value)
    if isinstance(value, list | tuple):
        if holds_integers(value, operation) and not pairs:
            return Integers(value, operation, operator)
        array = array_of_list(value, operation)
    elif isinstance(value, int) and not isinstance(value, bool):
        return Integers(value, operation, operator)
    elif isinstance(value, np.generic | bool | float | complex):
        array = np.asarray(value)
    else:
        array = array_of(value, operation)
    if pairs and (array.ndim == 0 or array.shape[-1] != 2):
        cause = f"an array of shape {array.shape} holds no pairs"
        raise invalid(operation, cause, "give values and locations as an array of shape (..., 2)")
    kind, data = kind_of(array.dtype, operation), np.ascontiguousarray(array).reshape(array.shape)
    meaning = meaning_of(array, True)
    if isinstance(value, bool | float | complex) and not isinstance(value, np.generic):
        return kind, data, meaning, lambda raw: np.frombuffer(raw, array.dtype)[0].item()
    if isinstance(value, np.generic):
        return kind, data, meaning, lambda raw: np.frombuffer(raw, array.dtype)[0]
    return kind, data, meaning, _array(array.dtype, array.shape)


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Callable[[Any], npt.NDArray[Any]]:
    return lambda raw: np.ndarray(shape, dtype, raw)


def _stacked(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Callable[[Any], npt.NDArray[Any]]:
    """Returns a function that makes one array of the pickled arrays of all ranks."""

    def stacked(raws: list[bytearray]) -> npt.NDArray[Any]:
        array = np.empty(shape, dtype)
        for rank, raw in enumerate(raws):
            array[rank, ...] = decoded(raw)
        return array

    return stacked


def _nothing(_raw: Any) -> None:
    return None


def _combining(
    operator: Callable[[Any, Any], Any], ranks: int | None = None
) -> Callable[[Any], Any]:
    return lambda values: functools.reduce(operator, list(values)[:ranks])


def _all_decoded(raws: list[bytearray]) -> list[Any]:
    return [decoded(raw) for raw in raws]
