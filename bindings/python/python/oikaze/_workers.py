"""Jobs whose processes another system has started: actors of Ray, workers of Dask.

The driver is not a node. It runs functions on all nodes at once, and holds handles of their arrays.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from ._array import Array
from ._errors import invalid
from ._job import Job, join

#: Jobs of this process, by the keys of their drivers.
_jobs: dict[str, Job] = {}


class ArrayHandle:
    """A shared array, as the driver holds it.

    As an argument of a function that runs on a node of the job, it is the array itself.
    """

    def __init__(self, key: str, name: str, shape: int | tuple[int, ...], dtype: Any) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self._key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return array_here, (self._key, self.name, self.shape, self.dtype)

    def __dask_tokenize__(self) -> str:
        # A call with an array is a new one each time, because the array may have changed.
        return uuid.uuid4().hex

    def __repr__(self) -> str:
        return f"<oikaze.ArrayHandle {self.name!r}, shape {self.shape}, {self.dtype}>"


#: Arrays of this process, by the keys of their drivers and their names.
_arrays: dict[tuple[str, str], Array] = {}


def array_here(key: str, name: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Returns the array in a node of its job. Another process, such as a scheduler, passes the
    handle on.
    """
    here = _arrays.get((key, name))
    return ArrayHandle(key, name, shape, dtype) if here is None else here


def job_here(key: str) -> Job:
    """Returns the job in a node of it."""
    if key not in _jobs:
        cause = "this worker has left the job, or was restarted"
        raise invalid("finding the job", cause, "join again with all workers")
    return _jobs[key]


def join_here(
    key: str, rank: int, size: int, gather: Callable[[bytes], list[bytes]], settings: dict[str, Any]
) -> None:
    """Joins the job in this process, which is a node from now on."""
    _jobs[key] = join(rank=rank, size=size, gather=gather, **settings)


def make_here(key: str, name: str, shape: int | tuple[int, ...], dtype: Any) -> None:
    """Makes an array in this node. All nodes do so at the same time."""
    _arrays[key, name] = job_here(key).array(name, shape, dtype)


def leave_here(key: str) -> None:
    """Leaves the job in this node. All nodes do so at the same time."""
    job = job_here(key)
    for of_key in [known for known in _arrays if known[0] == key]:
        del _arrays[of_key]
    del _jobs[key]
    job.leave()


def call_here(key: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Calls a function of the driver with this node's job."""
    return function(job_here(key), *arguments)


class WorkerJob:
    """A job of workers, as its driver sees it."""

    def __init__(self, key: str, size: int, on_all: Callable[..., list[Any]]) -> None:
        self.size = size
        self._key = key
        self._on_all = on_all

    def array(
        self, name: str, shape: int | tuple[int, ...], dtype: npt.DTypeLike = "f8"
    ) -> ArrayHandle:
        """Makes a shared array of all nodes, as `Job.array` does, and returns its handle."""
        self._on_all(make_here, self._key, name, shape, dtype)
        return ArrayHandle(self._key, name, shape, dtype)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Calls ``function(job, *arguments)`` on all nodes at once. Returns the results by rank."""
        return self._on_all(call_here, self._key, function, arguments)

    def leave(self) -> None:
        """Lets all nodes leave the job. The workers go on without it."""
        self._on_all(leave_here, self._key)
