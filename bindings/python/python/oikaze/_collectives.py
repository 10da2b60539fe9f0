"""Collectives on numbers, arrays and any other values.

Numbers and NumPy arrays are sent as they are. Other values are pickled. All ranks of a team call
the same collectives in the same order.
"""

from __future__ import annotations

import contextlib
import functools
import operator as operators
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from . import _native
from ._dtype import kind_of
from ._errors import Error, LeftError, invalid
from ._native import Operation

Operator: TypeAlias = (
    Literal["sum", "product", "min", "max", "and", "or", "xor", "min_location", "max_location"]
    | Callable[[Any, Any], Any]
)


_Call = TypeVar("_Call", bound=Callable[..., Any])


def _of_all(collective: str) -> Callable[[_Call], _Call]:
    """Makes a call of this rank count if its arguments are refused, too.

    The other ranks are told then, and get an error. Without it, this rank would be one collective
    behind them, and later results would be wrong. A decorated method raises an exception only
    before it has begun its collective, and calls no other decorated method.
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
                raise

        return cast(_Call, called)

    return of_all


class Collectives:
    """Collectives of a job or of a team.

    Each has two forms. ``job.all_reduce(x)`` waits and returns the result.
    ``job.start_all_reduce(x)`` returns an `Operation`, to ``wait`` for or to ``await``. Arguments
    are copied before either form returns or waits. A ``timeout`` is in seconds.

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
        data = _encoded(value) if self.rank == root else b""
        return self._even("broadcast", "u8", data, root).then(_decoded)

    def broadcast(self, value: Any = None, root: int = 0, timeout: float | None = None) -> Any:
        """Returns the root's value on all ranks. Other ranks need not pass any."""
        return self.start_broadcast(value, root).wait(timeout)

    @_of_all("broadcast")
    def start_broadcast_into(self, array: npt.NDArray[Any], root: int = 0) -> Operation:
        """Begins `broadcast_into`."""
        kind = kind_of(array.dtype, "broadcast_into")
        return self._even("broadcast", kind, array, root, out=array)

    def broadcast_into(
        self, array: npt.NDArray[Any], root: int = 0, timeout: float | None = None
    ) -> npt.NDArray[Any]:
        """Copies the root's array into the array of each rank, of the same shape and dtype."""
        return cast(npt.NDArray[Any], self.start_broadcast_into(array, root).wait(timeout))

    @_of_all("gather")
    def start_gather(self, value: Any, root: int = 0) -> Operation:
        """Begins `gather`."""
        return self._gather(value, root)

    def _gather(self, value: Any, root: int) -> Operation:
        is_root = self.rank == root
        if isinstance(value, np.ndarray):
            started = self._even("gather", *_typed(value, "gather"), root)
            shape = (self.size, *value.shape)
            return started.then(_array(value.dtype, shape) if is_root else _nothing)
        started = self._uneven("gather", [_encoded(value)], root)
        return started.then(_all_decoded if is_root else _nothing)

    def gather(self, value: Any, root: int = 0, timeout: float | None = None) -> Any:
        """Collects a value of each rank at the root, and returns ``None`` elsewhere.

        Arrays of one shape become an array of shape ``(size, *shape)``, other values a list.
        """
        return self.start_gather(value, root).wait(timeout)

    @_of_all("all_gather")
    def start_all_gather(self, value: Any) -> Operation:
        """Begins `all_gather`."""
        return self._all_gather(value)

    def _all_gather(self, value: Any) -> Operation:
        if isinstance(value, np.ndarray):
            started = self._even("all_gather", *_typed(value, "all_gather"))
            return started.then(_array(value.dtype, (self.size, *value.shape)))
        return self._uneven("all_gather", [_encoded(value)]).then(_all_decoded)

    def all_gather(self, value: Any, timeout: float | None = None) -> Any:
        """Collects a value of each rank on all ranks, as `gather` does."""
        return self.start_all_gather(value).wait(timeout)

    @_of_all("scatter")
    def start_scatter(self, values: Sequence[Any] | None = None, root: int = 0) -> Operation:
        """Begins `scatter`."""
        parts: list[bytes] = []
        if self.rank == root:
            self._check_length("scatter", values)
            parts = [_encoded(value) for value in cast(Sequence[Any], values)]
        return self._uneven("scatter", parts, root).then(_decoded)

    def scatter(
        self, values: Any = None, root: int = 0, timeout: float | None = None
    ) -> Any:
        """Returns the value of this rank, of a sequence of ``size`` values at the root.

        The sequence may be an array, whose first axis is cut. Other ranks need not pass any.
        """
        return self.start_scatter(values, root).wait(timeout)

    @_of_all("all_to_all")
    def start_all_to_all(self, values: Any) -> Operation:
        """Begins `all_to_all`."""
        return self._all_to_all(values)

    def _all_to_all(self, values: Any) -> Operation:
        self._check_length("all_to_all", values)
        if isinstance(values, np.ndarray):
            started = self._even("all_to_all", *_typed(values, "all_to_all"))
            return started.then(_array(values.dtype, values.shape))
        return self._uneven("all_to_all", [_encoded(value) for value in values]).then(_all_decoded)

    def all_to_all(self, values: Any, timeout: float | None = None) -> Any:
        """Sends ``values[r]`` to rank ``r``, and returns what the ranks sent to this one.

        An array of shape ``(size, ...)`` becomes one of the same shape, a sequence a list.
        """
        return self.start_all_to_all(values).wait(timeout)

    @_of_all("reduce")
    def start_reduce(self, value: Any, operator: Operator = "sum", root: int = 0) -> Operation:
        """Begins `reduce`."""
        is_root = self.rank == root
        if callable(operator):
            combined = _combining(operator)
            return self._gather(value, root).then(combined if is_root else _nothing)
        kind, data, like = _numbers(value, "reduce", operator)
        started = self._even("reduce", kind, data, root, operator)
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
        self, value: Any, operator: Operator = "sum", out: npt.NDArray[Any] | None = None
    ) -> Operation:
        """Begins `all_reduce`."""
        return self._combine("all_reduce", value, operator, _combining, out)

    def all_reduce(
        self,
        value: Any,
        operator: Operator = "sum",
        out: npt.NDArray[Any] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Combines a value of each rank on all ranks, as `reduce` does.

        All ranks get the same bits. ``out`` takes the result of an array in place of a new one.
        """
        return self.start_all_reduce(value, operator, out).wait(timeout)

    @_of_all("scan")
    def start_scan(self, value: Any, operator: Operator = "sum") -> Operation:
        """Begins `scan`."""
        upto = self.rank + 1
        return self._combine("scan", value, operator, lambda f: _combining(f, upto))

    def scan(self, value: Any, operator: Operator = "sum", timeout: float | None = None) -> Any:
        """Combines the values of the ranks up to this one."""
        return self.start_scan(value, operator).wait(timeout)

    @_of_all("exclusive_scan")
    def start_exclusive_scan(self, value: Any, operator: Operator = "sum") -> Operation:
        """Begins `exclusive_scan`."""
        if self.rank == 0:
            # No value comes before this one.
            if callable(operator):
                return self._all_gather(value).then(_nothing)
            kind, data, _ = _numbers(value, "exclusive_scan", operator)
            return self._even("exclusive_scan", kind, data, 0, operator).then(_nothing)
        upto = self.rank
        return self._combine("exclusive_scan", value, operator, lambda f: _combining(f, upto))

    def exclusive_scan(
        self, value: Any, operator: Operator = "sum", timeout: float | None = None
    ) -> Any:
        """Combines the values of the ranks before this one. Rank 0 gets ``None``."""
        return self.start_exclusive_scan(value, operator).wait(timeout)

    @_of_all("reduce_scatter")
    def start_reduce_scatter(self, values: Any, operator: Operator = "sum") -> Operation:
        """Begins `reduce_scatter`."""
        self._check_length("reduce_scatter", values)
        if callable(operator):
            return self._all_to_all(values).then(_combining(operator))
        array = np.asarray(values)
        pairs = 2 if str(operator).endswith("_location") else 1
        if pairs == 2:
            _check_pairs(array, "reduce_scatter")
        kind, data = _typed(array, "reduce_scatter")
        started = self._even("reduce_scatter", kind, data, 0, operator)
        if isinstance(values, np.ndarray) or array.ndim > 1:
            return started.then(_array(array.dtype, array.shape[1:]))
        return started.then(lambda raw: np.frombuffer(raw, array.dtype)[0].item())

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

    @_of_all("all_reduce")
    def _summands(self, values: npt.ArrayLike) -> tuple[str, npt.NDArray[Any]]:
        return _typed(np.asarray(values), "sum_exact")

    def split(self, color: int | None, key: int = 0) -> Team | None:
        """Makes a team of the ranks that pass the same colour, in the order of ``key`` and rank.

        A rank that passes ``None`` gets no team.
        """
        part = _native.split(self._members(), *self._parts(color, key))
        return None if part is None else Team(part)

    @_of_all("all_gather")
    def _parts(self, color: int | None, key: int) -> tuple[int | None, int]:
        color, key = None if color is None else operators.index(color), operators.index(key)
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

    def _check_length(self, operation: str, values: Any) -> None:
        try:
            length = len(values)
        except TypeError:
            length = None
        if length != self.size:
            cause = f"{length} values are given for {self.size} ranks"
            raise invalid(operation, cause, "give one for each rank")

    def _even(
        self,
        collective: str,
        kind: str,
        data: Any,
        root: int = 0,
        operator: str | None = None,
        out: npt.NDArray[Any] | None = None,
    ) -> Operation:
        return _native.start_even(self._members(), collective, kind, data, root, operator, out)

    def _uneven(self, collective: str, parts: list[Any], root: int = 0) -> Operation:
        return _native.start_uneven(self._members(), collective, parts, root)

    def _combine(
        self,
        collective: str,
        value: Any,
        operator: Operator,
        combining: Callable[[Callable[[Any, Any], Any]], Callable[[Any], Any]],
        out: npt.NDArray[Any] | None = None,
    ) -> Operation:
        if callable(operator):
            started = self._all_gather(value).then(combining(operator))
            return started if out is None else started.then(lambda result: _into(out, result))
        kind, data, like = _numbers(value, collective, operator)
        if out is not None and (out.dtype, out.shape) != (data.dtype, np.shape(value)):
            cause = f"out is {out.dtype}{out.shape}, the values are {data.dtype}{np.shape(value)}"
            raise invalid(collective, cause, "make it numpy.empty_like(values)")
        started = self._even(collective, kind, data, 0, operator, out)
        return started if out is not None else started.then(like)


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


def _into(out: npt.NDArray[Any], result: Any) -> npt.NDArray[Any]:
    """Copies a result to the array that takes it."""
    np.copyto(out, result, casting="no")
    return out


def _typed(array: npt.NDArray[Any], operation: str) -> tuple[str, npt.NDArray[Any]]:
    """Returns the kind of an array's elements, and its bytes in row-major order."""
    return kind_of(array.dtype, operation), np.ascontiguousarray(array)


def _check_pairs(array: npt.NDArray[Any], operation: str) -> None:
    if array.ndim == 0 or array.shape[-1] != 2:
        cause = f"an array of shape {array.shape} holds no pairs"
        raise invalid(operation, cause, "give values and locations as an array of shape (..., 2)")


def _numbers(
    value: Any, operation: str, operator: str
) -> tuple[str, npt.NDArray[Any], Callable[[Any], Any]]:
    """Returns kind and bytes of numbers, and a function that makes a result like them."""
    array = np.asarray(value)
    if operator.endswith("_location"):
        _check_pairs(array, operation)
    kind, data = _typed(array, operation)
    if isinstance(value, np.ndarray):
        return kind, data, _array(array.dtype, array.shape)
    if array.ndim == 0 and not isinstance(value, np.generic):
        return kind, data, lambda raw: np.frombuffer(raw, array.dtype)[0].item()
    if array.ndim == 0:
        return kind, data, lambda raw: np.frombuffer(raw, array.dtype)[0]
    return kind, data, _array(array.dtype, array.shape)


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Callable[[Any], npt.NDArray[Any]]:
    return lambda raw: np.frombuffer(raw, dtype).reshape(shape)


def _nothing(_raw: Any) -> None:
    return None


def _combining(
    operator: Callable[[Any, Any], Any], upto: int | None = None
) -> Callable[[Any], Any]:
    return lambda values: functools.reduce(operator, list(values)[:upto])


#: Head of a value: the number of its buffers, and the length of its pickle.
_HEAD = struct.Struct("<QQ")
_LENGTH = struct.Struct("<Q")


def _encoded(value: Any) -> bytes:
    """Pickles a value. The memory of arrays in it is copied once."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raws = [buffer.raw() for buffer in buffers]
    lengths = b"".join(_LENGTH.pack(raw.nbytes) for raw in raws)
    return b"".join([_HEAD.pack(len(raws), len(pickled)), lengths, pickled, *raws])


def _decoded(raw: bytearray) -> Any:
    """Returns the value. Arrays in it use the memory of ``raw``."""
    count, length = _HEAD.unpack_from(raw)
    at = _HEAD.size
    lengths = [_LENGTH.unpack_from(raw, at + 8 * n)[0] for n in range(count)]
    view = memoryview(raw)
    at += 8 * count
    pickled = view[at : at + length]
    at += length
    buffers = []
    for length in lengths:
        buffers.append(view[at : at + length])
        at += length
    return pickle.loads(pickled, buffers=buffers)


def _all_decoded(raws: list[bytearray]) -> list[Any]:
    return [_decoded(raw) for raw in raws]
