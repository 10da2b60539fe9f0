"""What values mean beyond their bytes: classes of arrays, whole numbers, pickles, tensors."""

from __future__ import annotations

import ctypes
import functools
import operator
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import Error, invalid, wrong_type

#: Classes of arrays that mean what their elements are. `oikaze.Array` adds itself.
PLAIN: set[type] = {np.ndarray, np.memmap}
#: Classes whose bytes are all that they have, if the bytes alone are passed.
_WHOLE: set[type] = {np.recarray, np.matrix}


def check_plain(array: npt.NDArray[Any], operation: str) -> None:
    """Refuses an array whose class means more than its elements, such as a masked one."""
    kind = type(array)
    if kind in PLAIN:
        return
    if isinstance(array, np.ma.MaskedArray):
        cause = "the array is masked, and its mask would be lost"
        remedy = "pass array.filled(value), or its data and numpy.ma.getmaskarray(array) in turn"
    else:
        cause = f"an array of class {kind.__module__}.{kind.__qualname__} is more than its elements"
        remedy = "pass numpy.asarray(array) if the elements are meant"
    raise invalid(operation, cause, remedy)


def check_bytes(array: npt.NDArray[Any], operation: str) -> None:
    """Refuses an array whose bytes are not all that it has. Called by the native module."""
    if type(array) not in _WHOLE:
        check_plain(array, operation)


def array_of(value: Any, operation: str, writable: bool = False) -> npt.NDArray[Any]:
    """Returns the array that an array, a buffer or a tensor is, over the same memory."""
    if isinstance(value, np.ndarray):
        check_plain(value, operation)
        return value
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        pass
    except (BufferError, ValueError):
        return with_axes(value, operation)
    if hasattr(type(value), "__dlpack__"):
        return of_dlpack(value, writable, operation)
    if hasattr(value, "__array_interface__"):
        return with_axes(value, operation)
    cause = f"an object of type {type(value).__qualname__} is neither a number nor an array"
    raise wrong_type(operation, cause, "pass numbers, a NumPy array or a tensor")


def with_axes(value: Any, operation: str) -> npt.NDArray[Any]:
    """Returns an array over the memory of an object, with one axis at least. Called by the native
    module for objects of ctypes, numbers of NumPy and arrays without axes."""
    try:
        has_interface = hasattr(value, "__array_interface__")
        array = np.atleast_1d(np.asarray(value if has_interface else memoryview(value)))
        if array.dtype.hasobject:
            raise TypeError("its elements are Python objects")
        if array.dtype.kind in "mM":
            # Times have no buffer of their own.
            array = array.view("i8")
    except (BufferError, TypeError, ValueError) as error:
        cause = f"the memory of an object of type {type(value).__qualname__} cannot be had ({error})"
        remedy = "pass bytes, a bytearray, a memoryview or a NumPy array of numbers"
        raise wrong_type(operation, cause, remedy) from error
    if isinstance(value, np.generic):
        # This memory is a copy.
        array.flags.writeable = False
    return array


class _Alias:
    """Shows the memory of an array as memory that may be written."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        place = (array.__array_interface__["data"][0], False)
        self.__array_interface__ = {**array.__array_interface__, "data": place}


def of_dlpack(tensor: Any, writable: bool, operation: str) -> npt.NDArray[Any]:
    """Returns the array over the memory of a tensor in this host's memory, by DLPack.

    A capsule without a version does not say whether its memory may be written. NumPy takes it for
    read-only then. A caller that passes such a tensor as a destination says that it may.
    """
    try:
        array: npt.NDArray[Any] = np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        cause = f"its memory cannot be had by DLPack ({error})"
        remedy = "pass a tensor of numbers in this host's memory, such as tensor.cpu()"
        raise invalid(operation, cause, remedy) from error
    if writable and not array.flags.writeable and not _says_read_only(tensor):
        return np.asarray(_Alias(array))
    return array


def _says_read_only(tensor: Any) -> bool:
    """Returns whether a capsule with a version says that its memory may not be written."""
    try:
        capsule = tensor.__dlpack__(max_version=(1, 0))
    except TypeError:
        # The producer is older than versions.
        return False
    except BufferError:
        return True
    name, api = b"dltensor_versioned", ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    if not api.PyCapsule_IsValid(capsule, name):
        return False
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    # DLManagedTensorVersioned: version (2 x u32), manager_ctx, deleter, then flags (u64). The
    # capsule keeps it, and bit 0 is DLPACK_FLAG_BITMASK_READ_ONLY.
    place = api.PyCapsule_GetPointer(capsule, name) + 24
    return bool(ctypes.c_uint64.from_address(place).value & 1)


def meaning_of(array: npt.NDArray[Any], is_number: bool) -> str:
    """Returns what an array is beyond its bytes, which the ranks compare.

    It is empty for numbers along one axis, which ranks of C and Rust pass as well.
    """
    if is_number and array.ndim == 1:
        return ""
    return f"an array of {array.dtype!r} and of shape {array.shape}"


def holds_integers(values: Any, operation: str) -> bool:
    """Returns whether nested sequences hold nothing but whole numbers, one at least.

    Refuses what numpy.asarray would turn into numbers of another meaning.
    """
    found: set[bool] = set()
    is_truth = True
    inexact: int | None = None
    open_ = [values]
    while open_:
        for value in open_.pop():
            kind = type(value)
            if kind in (int, float, complex, bool):
                found.add(kind in (int, bool))
                is_truth = is_truth and kind is bool
                if kind is int and not _fits(value):
                    inexact = value
            elif isinstance(value, list | tuple):
                open_.append(value)
            elif isinstance(value, np.ndarray):
                check_plain(value, operation)
                found.add(False)
            elif isinstance(value, np.generic | int | float | complex):
                found.add(isinstance(value, np.integer | int))
                if isinstance(value, np.integer | int) and not _fits(int(value)):
                    inexact = int(value)
                is_truth = is_truth and isinstance(value, np.bool_)
            else:
                cause = f"a list holds an object of type {kind.__qualname__}, which is not a number"
                raise invalid(operation, cause, "pass numbers, or give a function as the operator")
    if inexact is not None and False in found:
        cause = f"a list holds floats and the whole number {inexact}, which no float64 is"
        remedy = "pass whole numbers alone, float(number), or a function as the operator"
        raise invalid(operation, cause, remedy)
    return found == {True} and not is_truth


def _fits(number: int) -> bool:
    """Returns whether a whole number is exact as float64."""
    try:
        return -(1 << 53) <= number <= 1 << 53 or int(float(number)) == number
    except OverflowError:
        return False


def array_of_list(values: Any, operation: str) -> npt.NDArray[Any]:
    """Returns the array that nested sequences of numbers are."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise invalid(operation, f"the lists make no array ({error})", "give equal lengths") from None


#: Bytes of a whole number of Python, as ranks send it.
_WIDTH = 16
#: What the operators do with whole numbers of Python, which do not wrap.
_EXACT: dict[str, Callable[[int, int], int]] = {
    "sum": operator.add,
    "product": operator.mul,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


class Integers:
    """Whole numbers of Python, one or nested lists, which the ranks combine exactly.

    Each rank gets the numbers of all and combines them, because results may be of any size.
    """

    def __init__(self, value: Any, operation: str, name: str) -> None:
        function = _EXACT.get(name)
        if function is None:
            known = ", ".join(map(repr, _EXACT))
            remedy = f"give {known}, 'min_location', 'max_location' or a function of two values"
            raise invalid(operation, f"operator {name!r} is not known", remedy)
        self._function = function
        self.operator = name
        if isinstance(value, list | tuple):
            try:
                # Objects: NumPy must not choose a type that numbers do not fit.
                array = np.array(value, dtype=object)
                numbers = [operator.index(one) for one in array.flat]
            except (TypeError, ValueError):
                cause = "the lists differ in length"
                raise invalid(operation, cause, "give lists of equal lengths") from None
            self.shape: tuple[int, ...] | None = array.shape
        else:
            numbers, self.shape = [operator.index(value)], None
        try:
            parts = [one.to_bytes(_WIDTH, "little", signed=True) for one in numbers]
        except OverflowError:
            cause = "a whole number needs more than 128 bits"
            remedy = "give a function in place of the operator's name, such as operator.add"
            raise invalid(operation, cause, remedy) from None
        self.data = b"".join(parts)
        of = "one" if self.shape is None else f"a list of shape {self.shape}"
        self.meaning = f"whole numbers of Python ({of})"

    def combined(self, raw: Any, ranks: int | None = None) -> Any:
        """Returns the numbers of the first ranks combined, of the bytes of all ranks."""
        return self._fold(raw, len(self.data), self.shape, ranks)

    def combined_block(self, raw: Any, size: int) -> Any:
        """Returns the blocks of all ranks for this one combined."""
        shape = (self.shape or ())[1:]
        return self._fold(raw, len(self.data) // size, shape or None, None)

    def _fold(
        self, raw: Any, length: int, shape: tuple[int, ...] | None, ranks: int | None
    ) -> Any:
        parts = [raw[at : at + _WIDTH] for at in range(0, len(raw), _WIDTH)]
        numbers = [int.from_bytes(part, "little", signed=True) for part in parts]
        count = length // _WIDTH
        rows = [numbers[at : at + count] for at in range(0, len(numbers), count)][:ranks]
        columns = zip(*rows, strict=True)
        results = [functools.reduce(self._function, column) for column in columns]
        if shape is None:
            return results[0]
        try:
            return np.array(results, np.int64).reshape(shape)
        except OverflowError:
            return np.array(results, object).reshape(shape)


def check_sequence(values: Any, size: int, operation: str) -> None:
    """Refuses what is no sequence of one value for each rank."""
    if not isinstance(values, Sequence | np.ndarray):
        cause = f"an object of type {type(values).__qualname__} is no sequence"
        raise invalid(operation, cause, "give a list or an array, with one value for each rank")
    if isinstance(values, np.ndarray) and values.ndim == 0:
        cause = "an array of no axes has no parts"
        raise invalid(operation, cause, "give an array with one row for each rank")
    if len(values) != size:
        cause = f"{len(values)} values are given for {size} ranks"
        remedy = "give one for each rank, such as numpy.array_split(values, job.size)"
        raise invalid(operation, cause, remedy)


#: Head of a value: the number of its buffers, and the length of its pickle.
_HEAD = struct.Struct("<QQ")
_LENGTH = struct.Struct("<Q")
#: Distance in bytes at which the buffers of a value begin, so that their elements are aligned.
_ALIGNMENT = 64


def _padding(at: int) -> int:
    return -at % _ALIGNMENT


def encoded(value: Any, operation: str) -> bytes:
    """Pickles a value. The memory of arrays in it is copied once."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        raws = [buffer.raw() for buffer in buffers]
    except MemoryError:
        raise
    except Exception as error:
        kind = type(value).__qualname__
        cause = f"a value of type {kind} cannot be pickled ({type(error).__name__}: {error})"
        remedy = "pass what it is made of, or the bytes of cloudpickle.dumps(value)"
        raise invalid(operation, cause, remedy) from error
    lengths = b"".join(_LENGTH.pack(raw.nbytes) for raw in raws)
    parts: list[Any] = [_HEAD.pack(len(raws), len(pickled)), lengths, pickled]
    at = sum(map(len, parts))
    for raw in raws:
        parts += [bytes(_padding(at)), raw]
        at += _padding(at) + raw.nbytes
    return b"".join(parts)


def decoded(raw: bytearray) -> Any:
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
        at += _padding(at)
        buffers.append(view[at : at + length])
        at += length
    try:
        return pickle.loads(pickled, buffers=buffers)
    except (Error, MemoryError):
        raise
    except Exception as error:
        cause = f"its pickle cannot be read here ({type(error).__name__}: {error})"
        remedy = "define its class in a module that all ranks can import"
        raise invalid("taking a value of another rank", cause, remedy) from error
