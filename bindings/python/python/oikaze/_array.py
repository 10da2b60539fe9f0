"""Shared arrays: the same array on every node, read and written in place."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from . import _faults
from ._dtype import elements_of
from ._errors import Error, LeftError, invalid, named, whole_number, wrong_type
from ._native import ArrayPlan, Distribution, Guard, SharedMemory
from ._values import PLAIN, array_of, check_plain, holds_integers

if TYPE_CHECKING:
    from ._job import Job

#: Path of a file.
Path = str | bytes | os.PathLike[Any]
#: Selects part of an array: a slice or an index for each axis.
Index = Any


class _Root:
    """Array over lent memory that only the library has. All views of it count as its references.

    NumPy makes it the base of each view, also of a view of a view. So its reference count tells
    whether a slice is left when the right to write ends. Such a slice could store what nobody sees.
    """

    def __init__(self, root: npt.NDArray[Any]) -> None:
        self._root = root

    def view(self) -> npt.NDArray[Any]:
        """Returns the array for the program, once. It may be left, as it becomes read-only."""
        whole: npt.NDArray[Any] = self._root[...]
        self._whole = weakref.ref(whole)
        return whole

    def end(self, owner: SharedArray, operation: str, remedy: str) -> None:
        """Makes the array of the program read-only, and warns of views that could still write."""
        whole = self._whole()
        if whole is not None:
            whole.flags.writeable = False
        # The view of the program is no more one of the references, if it is gone.
        alone = _REFERENCES - (whole is None)
        if self.references() <= alone:
            return
        # Garbage in a cycle is no view that anyone could use. Old garbage is sought once an array.
        gc.collect(1 if owner._has_left_views else 2)
        left = self.references() - alone
        if left > 0:
            owner._has_left_views = True
            views = "view of the array is" if left == 1 else "views of the array are"
            text = f"{operation}: {left} {views} left, whose stores are lost from now on; {remedy}"
            warnings.warn(text, ViewWarning, stacklevel=4)

    def references(self) -> int:
        """Returns the number of references to the root, as this interpreter counts them."""
        return sys.getrefcount(self._root)


def _references_alone() -> int:
    root = _Root(np.empty(1))
    whole = root.view()
    assert whole.base is not None
    return root.references()


#: References to a root whose only view is the one of the program.
_REFERENCES = _references_alone()


class ViewWarning(RuntimeWarning):
    """A view of shared memory is left after the right to write there has ended.

    Stores into the view are lost, or are seen on this node alone.
    """


class Reading:
    """Guard that reads part of an array, for ``with array.reading[lo:hi] as part``.

    ``part`` is a read-only array over the shared pages. While the guard lives, its bytes are those
    of the last synchronisation. Guards fetch whole ranges ahead, so the program takes no page
    faults. No guard may be alive at a barrier.
    """

    def __init__(self, array: SharedArray, guard: Guard) -> None:
        self._guard = guard
        self._array = array
        self._is_released = False
        memory: npt.NDArray[Any] = np.ndarray(
            guard.shape, array.dtype, cast(Any, guard), strides=guard.strides
        )
        self._root = _Root(memory) if memory.flags.writeable else None
        self._part = self._root.view() if self._root else memory

    def __repr__(self) -> str:
        kind, state = type(self).__name__.lower(), ", released" if self._is_released else ""
        return f"<oikaze.SharedArray.{kind} of {self._array.name!r}, shape {self._part.shape}{state}>"

    @property
    def part(self) -> npt.NDArray[Any]:
        """The part, as an array over the shared pages."""
        return self._part

    def release(self) -> None:
        """Ends the guard. Its array must not be used afterwards: it may show old values.

        The array is read-only then. If a slice or another view of an array that was written is left,
        a `ViewWarning` tells: its stores would be lost. Delete it before, or make it a ``copy()``.
        """
        self._end(warned=True)

    def _end(self, warned: bool) -> None:
        if self._root:
            self._part.flags.writeable = False
        self._guard.release()
        self._is_released = True
        root, self._root = self._root, None
        if warned and root:
            remedy = "delete slices and loop variables before, or take copies: part[0].copy()"
            root.end(self._array, "ending a guard", remedy)

    def __enter__(self) -> npt.NDArray[Any]:
        return self._part

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The frames of an exception may hold views.
        self._end(warned=kind is None)


class Writing(Reading):
    """Guard that writes part of an array, for ``with array.writing[lo:hi] as part``.

    Nobody else writes the elements until the next barrier. Their bytes are sent to readers when the
    guard ends, or with the barrier.
    """

    def push_to(self, ranks: Iterable[int]) -> None:
        """Sends the bytes to these nodes when the guard ends, without being asked."""
        try:
            given = list(ranks)
        except TypeError as error:
            raise named(error, "push_to")
        self._guard.push_to(given)


class _Selector:
    """Makes guards by an index: ``array.reading[2:4, :]``."""

    def __init__(self, array: SharedArray, how: Literal["read", "write", "merge"]) -> None:
        self._array, self._how = array, how

    def __repr__(self) -> str:
        return f"<oikaze.SharedArray selector of guards that {self._how}, of {self._array.name!r}>"

    def __getitem__(self, index: Index) -> Any:
        array, memory = self._array, self._array._memory
        part = array._part(index)
        if self._how == "read":
            return Reading(array, memory.read(part))
        return Writing(array, memory.write(part, self._how == "merge"))


class SharedArray:
    """A shared array that is accessed through guards alone.

    Attributes:
        dtype: type of the elements.
        reading: ``reading[index]`` is a guard that reads.
        writing: ``writing[index]`` is a guard that writes elements that nobody else writes.
        merging: ``merging[index]`` is a guard that writes into pages which others write, too. The
            bytes that have changed are merged at the next synchronisation.
    """

    def __init__(self, job: Job, memory: SharedMemory, dtype: np.dtype[Any]) -> None:
        self._job, self._memory, self.dtype = job, memory, dtype
        self._is_freed = False
        self._root: _Root | None = None
        self._has_left_views = False
        self._note_shape()
        self.reading = _Selector(self, "read")
        self.writing = _Selector(self, "write")
        self.merging = _Selector(self, "merge")

    @property
    def name(self) -> str:
        """Name of the array."""
        return self._memory.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return self._shape

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def why_not_shared(self) -> str | None:
        """Why each node keeps pages of its own of the array.

        ``None``: all nodes map the same memory, because the job is on one machine. Nothing is fetched
        or sent then.
        """
        return self._memory.why_not_shared

    def home(self, rank: int | None = None) -> tuple[int, int]:
        """First index and end, along the first axis, of the elements whose home is the node.

        Without a rank, it is this node. The home has the present values, and writes its elements
        without any traffic. A node without elements has an empty home at the array's end.
        """
        rows = self.home_block(rank)[0]
        return rows.start, rows.stop

    def home_block(self, rank: int | None = None) -> tuple[slice, ...]:
        """The elements whose home is the node, as an index: ``array[array.home_block()]``."""
        block = self._memory.home_block(self._rank(rank))
        if any(start == end for start, end in block):
            # At the end, so that slices of the rows before and after do not wrap around.
            return tuple(slice(extent, extent) for extent in self.shape)
        return tuple(slice(*bounds) for bounds in block)

    def home_blocks(self, rank: int | None = None) -> list[tuple[slice, ...]]:
        """All blocks of elements whose home is the node: several for a cyclic distribution."""
        blocks = self._memory.home_blocks(self._rank(rank))
        return [tuple(slice(*bounds) for bounds in block) for block in blocks]

    def home_of(self, index: int | tuple[int, ...]) -> int | None:
        """Rank of the home of an element, or ``None`` if there is no such element."""
        given = index if isinstance(index, tuple) else (index,)
        indices = [whole_number(one, "home_of", "an index") for one in given]
        if any(not -extent <= at < extent for at, extent in zip(indices, self.shape, strict=False)):
            return None
        return self._memory.home_of(self._place(index))

    def fill_all(self, value: Any) -> None:
        """Sets all elements on all nodes. Collective."""
        with self._told_to_all("fill"):
            element = self._bytes(value)
        self._memory.fill(element)

    def free(self) -> None:
        """Ends the array on all nodes. Collective. Do not touch its memory afterwards."""
        self._memory.free()
        self._is_freed = True
        self._end_views("freeing the array")

    def redistribute(self, distribution: Distribution) -> None:
        """Gives the elements other homes. Collective. Views of the array are old afterwards."""
        with self._told_to_all("redistribute", declares=True):
            if not isinstance(distribution, Distribution):
                cause = f"{distribution!r} is not a distribution"
                remedy = "give one, such as oikaze.Distribution.block()"
                raise wrong_type(self._named("redistribute"), cause, remedy)
        self._memory.redistribute(distribution)
        self._end_views("redistributing the array")

    def resize(self, shape: int | tuple[int, ...]) -> None:
        """Gives the array another shape. Collective. Views of the array are old afterwards.

        Elements keep their indices. New ones are zero.
        """
        with self._told_to_all("resize", declares=True):
            extents = _extents(shape, self._named("resize"))
        self._memory.resize(extents)
        self._note_shape()
        self._end_views("resizing the array")

    def save(self, path: Path) -> None:
        """Writes the array to a ``.npy`` file. Collective: each node writes its own elements.

        The file replaces an older one when it is whole. Its mode and symbolic links stay. Devices
        and pipes are refused.
        """
        with self._told_to_all("save"):
            place = _path(path, self._named("save"))
        self._memory.save(place)

    def load(self, path: Path) -> None:
        """Reads the array from a ``.npy`` file of the same shape and dtype. Collective."""
        with self._told_to_all("load"):
            place = _path(path, self._named("load"))
        self._memory.load(place)

    def _named(self, doing: str) -> str:
        return f"{doing} array {self.name!r}"

    @contextlib.contextmanager
    def _told_to_all(self, doing: str, declares: bool = False) -> Iterator[None]:
        """Checks arguments of a call of all nodes. If they are refused, it fails on all of them.

        Otherwise the other nodes would wait for this one. ``declares`` says that the call begins with
        the declaration of another array.
        """
        try:
            yield
        except Exception as error:
            what = self._named(doing)
            of_package = named(error, what)
            why = of_package.cause if isinstance(of_package, Error) else str(error)
            with contextlib.suppress(LeftError):
                (self._job._refuse_array if declares else self._job._refuse_collective)(what, why)
            raise of_package

    def prefetch(self, index: Index) -> None:
        """Begins to fetch elements that will be read soon."""
        self._memory.prefetch(self._part(index))

    def subscribe(self, index: Index) -> None:
        """Makes writers send these elements here with each barrier, without being asked."""
        self._memory.subscribe(self._part(index))

    def unsubscribe(self, index: Index) -> None:
        """Ends a subscription."""
        self._memory.unsubscribe(self._part(index))

    def subscribe_halo(self, index: Index, n: int) -> None:
        """Subscribes to the elements around a block, up to ``n`` indices away on each side."""
        self._memory.halo(self._part(index), n)

    def put_elements(self, first: int, values: npt.ArrayLike) -> None:
        """Writes elements at their homes at once, counted in row-major order from ``first`` on."""
        self._memory.put(first, self._elements(values, "put_elements").view("u1"))

    def get_elements(self, first: int, end: int) -> npt.NDArray[Any]:
        """Reads elements from their homes, counted in row-major order."""
        return np.frombuffer(self._memory.get(first, end), self.dtype)

    def fetch_add(self, index: int | tuple[int, ...], add: Any) -> Any:
        """Adds to one element atomically, and returns the previous value.

        Elements are uint32, int32, uint64, int64, float32 or float64.
        """
        return self.fetch_combine(index, "sum", add)

    def fetch_combine(
        self, index: int | tuple[int, ...], combine: Literal["sum", "min", "max"], other: Any
    ) -> Any:
        """Combines one element with a number atomically, and returns the previous value."""
        place = self._place(index)
        return self._one(self._memory.fetch_combine(place, combine, self._bytes(other)))

    def compare_exchange(self, index: int | tuple[int, ...], expected: Any, new: Any) -> Any:
        """Stores ``new`` if the element is ``expected``. Returns the previous value."""
        place = self._place(index)
        before = self._memory.compare_exchange(place, self._bytes(expected), self._bytes(new))
        return self._one(before)

    def accumulate(
        self, first: int, numbers: npt.ArrayLike, combine: Literal["sum", "min", "max"] = "sum"
    ) -> None:
        """Combines numbers with elements from ``first`` on, each atomically."""
        elements = self._elements(numbers, "accumulate")
        self._memory.accumulate(first, combine, elements.view("u1"))

    def statistics(self) -> dict[str, int]:
        """Counters of this array on this node."""
        return self._memory.statistics()

    def __repr__(self) -> str:
        state = ", freed" if self._is_freed else ""
        return f"<oikaze.SharedArray {self.name!r}, {self.dtype} of shape {self.shape}{state}>"

    def _rank(self, rank: int | None) -> int:
        return self._job.rank if rank is None else whole_number(rank, "home", "rank")

    def _bytes(self, value: Any) -> bytes:
        try:
            element = np.asarray(_plain(value, "storing an element"), self.dtype)
            if element.size != 1:
                raise ValueError(f"a value of shape {element.shape} is not an element; give one number")
            return element.tobytes()
        except (TypeError, ValueError, OverflowError) as error:
            raise named(error, f"storing {value!r} as {self.dtype}")

    def _elements(self, values: npt.ArrayLike, operation: str) -> npt.NDArray[Any]:
        try:
            return np.ascontiguousarray(_plain(values, operation), self.dtype).reshape(-1)
        except (TypeError, ValueError, OverflowError) as error:
            raise named(error, operation)

    def _end_views(self, operation: str) -> None:
        root, self._root = self._root, None
        if root is not None:
            remedy = "delete slices before, and take new ones from the array afterwards"
            root.end(self, operation, remedy)

    def _one(self, raw: bytearray) -> Any:
        return np.frombuffer(raw, self.dtype)[0]

    def _note_shape(self) -> None:
        self._shape: tuple[int, ...] = tuple(self._memory.shape)
        self._other_axes = [(0, extent) for extent in self._shape[1:]]

    def _place(self, index: int | tuple[int, ...]) -> list[int]:
        """Turns the index of an element into numbers from 0 on. Negative ones count from the end."""
        indices, shape = index if isinstance(index, tuple) else (index,), self.shape
        if len(indices) != len(shape):
            cause = f"{len(indices)} indices are given for {len(shape)} axes"
            raise invalid("selecting an element", cause, "give one for each axis")
        return [_within(one, extent) for one, extent in zip(indices, shape, strict=True)]

    def _part(self, index: Index) -> list[tuple[int, int]]:
        """Turns an index into first index and end along each axis."""
        shape = self._shape
        if type(index) is slice and index.step is None:
            # The most frequent index, without the work for all others.
            start, end, _ = index.indices(shape[0])
            return [(start, max(start, end)), *self._other_axes]
        indices = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in indices:
            at = indices.index(Ellipsis)
            indices[at : at + 1] = [slice(None)] * (len(shape) - len(indices) + 1)
        indices += [slice(None)] * (len(shape) - len(indices))
        if len(indices) != len(shape):
            cause = f"{len(indices)} indices are given for {len(shape)} axes"
            raise invalid("selecting part of an array", cause, "give a slice for each axis")
        part = []
        for one, extent in zip(indices, shape, strict=True):
            if isinstance(one, slice):
                start, end, step = one.indices(extent)
                if step != 1:
                    cause = f"the step is {step}"
                    remedy = "take all elements of a range, and select from the guard's array"
                    raise invalid("selecting part of an array", cause, remedy)
                part.append((start, max(start, end)))
            else:
                at = _within(one, extent)
                part.append((at, at + 1))
        return part


# Looked up once: stores of single elements are frequent.
_MASKED = np.ma.MaskedArray
_store = np.ndarray.__setitem__


class Array(np.ndarray[Any, Any]):
    """A `numpy.ndarray` over the pages of a shared array: the same array on every node.

    Plain loads and stores, slices and ufuncs work in place and without a copy. After a barrier,
    each node sees what all others wrote before it. ``array.shared`` has everything else: guards,
    homes, subscriptions, files. The most used of it is here, too.

    Two nodes must not write one element between two synchronisations (a barrier, or a lock that
    both take). Nothing stops them, and the element may become a mixture of the bytes of both
    values, which neither has written. ``fetch_add`` is atomic.

    Slices of the array are views. Results of arithmetic are ordinary arrays.
    """

    shared: SharedArray

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool | None = None
    ) -> Any:
        # Results are ordinary arrays: they are not shared.
        if return_scalar is None:
            # NumPy 1 does not say which results are numbers, and makes new arrays of this class.
            if type(array.base) is np.ndarray:
                array = array.view(np.ndarray)
            return_scalar = type(array) is np.ndarray and array.ndim == 0
        return array[()] if return_scalar else array

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, _MASKED):
            check_plain(value, "storing elements")
        _store(self, index, value)

    def __reduce__(self) -> Any:
        # What is sent elsewhere is a copy.
        return np.array(self, copy=True, subok=False).__reduce__()

    def _of_job(self) -> SharedArray:
        shared = self.__dict__.get("shared")
        if shared is None:
            cause = "this is a view of part of a shared array"
            raise invalid("using a shared array", cause, "call the array that job.array returned")
        return shared  # type: ignore[no-any-return]

    @property
    def reading(self) -> _Selector:
        """``array.reading[index]`` is a guard that reads, for ``with``."""
        return self._of_job().reading

    @property
    def writing(self) -> _Selector:
        """``array.writing[index]`` is a guard that writes, for ``with``."""
        return self._of_job().writing

    @property
    def why_not_shared(self) -> str | None:
        """Why each node keeps pages of its own. ``None``: all nodes map the same memory."""
        return self._of_job().why_not_shared

    def home(self, rank: int | None = None) -> tuple[int, int]:
        """First index and end, along the first axis, of the elements whose home is the node.

        An empty home is at the array's end.
        """
        return self._of_job().home(rank)

    def home_block(self, rank: int | None = None) -> tuple[slice, ...]:
        """The elements whose home is the node, as an index: ``array[array.home_block()]``."""
        return self._of_job().home_block(rank)

    def fetch_add(self, index: int | tuple[int, ...], add: Any) -> Any:
        """Adds to one element atomically, and returns the previous value."""
        return self._of_job().fetch_add(index, add)

    def fill_all(self, value: Any) -> None:
        """Sets all elements on all nodes. Collective."""
        self._of_job().fill_all(value)

    def save(self, path: Path) -> None:
        """Writes the array to a ``.npy`` file. Collective."""
        self._of_job().save(path)

    def load(self, path: Path) -> None:
        """Reads the array from a ``.npy`` file. Collective."""
        self._of_job().load(path)

    def free(self) -> None:
        """Ends the array on all nodes. Collective. Do not touch its memory afterwards."""
        self._of_job().free()

    def resized(self, shape: int | tuple[int, ...]) -> Array:
        """Gives the array another shape, and returns it. Collective.

        Elements keep their indices, and new ones are zero. This object shows old values afterwards,
        and is read-only. A `ViewWarning` tells of slices that are left.
        """
        shared = self._of_job()
        shared.resize(shape)
        return view_of(shared)

    def redistributed(self, distribution: Distribution) -> Array:
        """Gives the elements other homes, and returns the array. Collective.

        This object shows old values afterwards, and is read-only. A `ViewWarning` tells of slices
        that are left.
        """
        shared = self._of_job()
        shared.redistribute(distribution)
        return view_of(shared)


def view_of(shared: SharedArray) -> Array:
    """Returns the array over the pages of a shared array."""
    shared._memory.make_plain()
    # The view keeps the memory: the array may get other memory later.
    memory = memoryview(cast(Any, shared._memory))
    shared._root = _Root(np.ndarray.__new__(Array, shared.shape, shared.dtype, memory))
    array = cast(Array, shared._root.view())
    array.shared = shared
    return array


PLAIN.add(Array)


def make(
    job: Job,
    name: str,
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike,
    distribution: Distribution | None,
    delivery: str | None,
    unordered_updates: bool,
) -> SharedArray:
    """Makes a shared array."""
    _faults.watch_changes()
    try:
        kind = np.dtype(dtype)
        elements = elements_of(kind, f"array {name!r}")
        extents = _extents(shape, f"making array {name!r}")
        plan = ArrayPlan(
            name, extents, elements, kind.itemsize, distribution, delivery, unordered_updates
        )
    except Exception as error:
        # Otherwise the others would wait for this node.
        why = error.cause if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        job._refuse_array("make an array", why)
        raise named(error, f"making array {name!r}")
    return SharedArray(job, job._array(plan), kind)


def _plain(value: Any, operation: str) -> Any:
    """Refuses arrays and tables whose meaning would be lost, such as masked ones."""
    if isinstance(value, list | tuple):
        holds_integers(value, operation)
        return value
    if isinstance(value, int | float | complex | range | np.generic):
        return value
    return array_of(value, operation)


def _within(index: Any, extent: int) -> int:
    at = whole_number(index, "selecting part of an array", "an index")
    if not -extent <= at < extent:
        cause = f"index {at} is outside of {extent} elements"
        raise invalid("selecting part of an array", cause, "see array.shape")
    return at % extent


def _path(path: Any, operation: str) -> str:
    """Returns the path of a file."""
    try:
        return os.fsdecode(path)
    except TypeError:
        cause = f"the path is {path!r}, which is not a path"
        raise wrong_type(operation, cause, "give a str, bytes or a pathlib.Path") from None


def _extents(shape: int | tuple[int, ...], operation: str) -> list[int]:
    given = shape if isinstance(shape, tuple | list) else (shape,)
    extents = [whole_number(extent, operation, "an extent") for extent in given]
    if any(extent < 0 for extent in extents):
        raise invalid(operation, f"an extent of {shape} is negative", "give 1 or more")
    return extents
