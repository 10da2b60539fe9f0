"""NumPy's element types, as the library names them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from . import _native
from ._errors import invalid

#: The library's kinds by kind and size in NumPy.
_KINDS = {name[1:]: kind for kind, name in _native.kinds()}


#: Signs of a path, before which a backslash stands in the name of a field.
_SIGN = re.compile(r"[\\.\[\]]")


def _known(dtype: np.dtype[Any]) -> str | None:
    return _KINDS.get(f"{dtype.kind}{dtype.itemsize}") if dtype.isnative else None


def is_number(dtype: np.dtype[Any]) -> bool:
    """Returns whether the library knows the elements as numbers of one kind."""
    return _known(dtype) is not None


def kind_of(dtype: np.dtype[Any], operation: str) -> str:
    """Returns the name of a kind of numbers."""
    kind = _known(dtype)
    if kind is None:
        known = ", ".join(np.dtype(name).name for name in _KINDS)
        cause = f"elements of {dtype!r} are not known"
        raise invalid(operation, cause, f"use {known}, in this machine's byte order")
    return kind


def elements_of(dtype: np.dtype[Any], operation: str) -> str | list[tuple[str, str]]:
    """Returns a kind of numbers, or the fields of a structure with their kinds."""
    if dtype.itemsize == 0:
        raise invalid(operation, f"elements of {dtype!r} have no bytes", "use numbers")
    if dtype.fields is None and dtype.subdtype is None:
        return kind_of(dtype, operation)
    fields = list(_fields("", 0, dtype, operation))
    end = 0
    for _, _, start, size in fields:
        if start != end:
            break
        end += size
    else:
        if end == dtype.itemsize:
            return [(name, kind) for name, kind, _, _ in fields]
    cause = f"{dtype!r} has padding between its fields, or they are not in their order"
    raise invalid(operation, cause, "make it packed: numpy.dtype([...], align=False)")


def _fields(path: str, start: int, dtype: np.dtype[Any], operation: str) -> Any:
    """Yields path, kind, first byte and size of each field."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        if base.fields is not None:
            cause = f"field {path!r} is an array of structures"
            raise invalid(operation, cause, "make it fields of their own")
        extents = "".join(f"[{extent}]" for extent in shape)
        yield f"{path}{extents}", kind_of(base, operation), start, dtype.itemsize
    elif dtype.fields is not None:
        for name in dtype.names or ():
            plain = _SIGN.sub(r"\\\g<0>", name)
            inner = f"{path}.{plain}" if path else plain
            field, offset = dtype.fields[name][:2]
            yield from _fields(inner, start + offset, field, operation)
    else:
        yield path, kind_of(dtype, operation), start, dtype.itemsize
