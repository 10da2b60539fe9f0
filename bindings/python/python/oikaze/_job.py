"""The job of this process."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn

import numpy.typing as npt

from . import _aio, _array, _ending, _native
from ._array import Array, SharedArray
from ._collectives import Collectives
from ._errors import invalid, whole_number, wrong_type


class Rights(enum.IntFlag):
    """Rights of peers to a region. Combine them: ``Rights.READ | Rights.WRITE``."""

    NONE = 0
    READ = 1
    WRITE = 2
    ATOMIC = 4
    PUSH = 8
    ALL = 15


class Job(_native.Job, Collectives):
    """A job that this process has joined; `oikaze.join` returns it.

    As a context manager the job leaves at the end of the block, or ends for all nodes if the block
    raises an exception.
    """

    def __new__(cls, **settings: Any) -> Job:
        return super().__new__(cls, settings)

    def __init__(self, **_settings: Any) -> None:
        _ending.joined(self)

    def leave(self) -> None:
        """Waits for all other nodes to leave, then says goodbye. Later calls raise `LeftError`.

        A process leaves at its end in any case. This call also raises errors, such as those of
        operations that nobody waited for. A second call does nothing. If a signal's handler raises
        an exception meanwhile, the process has not left, and the next call goes on.
        """
        if self.has_left:
            return
        try:
            super().leave()
        finally:
            if self.has_left:
                _aio.close(self)
                _ending.left(self)

    def abort(self, reason: str, status: int = 1) -> NoReturn:
        """Ends the job for all nodes, for this reason, and this process with this status.

        Does not return, as `comm.Abort` of mpi4py does not. The output of this process is flushed,
        and functions of `atexit` do not run. Every wait of every other node raises `AbortedError`
        with the reason. The job's status is this one.

        Raises:
            InvalidError: the status is not 1 to 255.
        """
        status = whole_number(status, "abort", "status")
        if not 1 <= status <= 255:
            remedy = "give 1 to 255, as an aborted job has failed"
            raise invalid("abort", f"status is {status}", remedy)
        if not isinstance(reason, str):
            raise wrong_type("abort", f"reason is {reason!r}, which is not a text", "give a str")
        _ending.flush_output()
        self._abort(reason, status)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.leave()
        elif isinstance(error, SystemExit):
            _ending.exiting(error.code)
        # Another exception ends the job by the hook for uncaught exceptions, once it is printed.

    def lock(self, name: int | str) -> _native.Lock:
        """Returns a lock of the job, for ``with``: each name or number is one lock for all nodes.

        The writes of earlier holders to shared arrays are visible to later ones. A name is the same
        lock in C and Rust (``oik_lock_number``, ``Job::lock_named``).
        """
        return self._lock_of(name, False)

    def read_lock(self, name: int | str) -> _native.Lock:
        """Returns a lock of the job for reading, for ``with``.

        Any number of threads and nodes can have it at once, while none has ``lock`` of this name.
        The writes of earlier holders to shared arrays are visible. Writes under the lock are not
        prevented, and two holders that write the same elements race.
        """
        return self._lock_of(name, True)

    def _lock_of(self, name: int | str, reads: bool) -> _native.Lock:
        if isinstance(name, str):
            return self._lock_named(name, reads)
        return self._lock(whole_number(name, "lock", "name"), reads)

    def array(
        self,
        name: str,
        shape: int | tuple[int, ...],
        dtype: npt.DTypeLike = "f8",
        *,
        distribution: _native.Distribution | None = None,
        delivery: str | None = None,
        unordered_updates: bool = False,
    ) -> Array:
        """Makes a shared array under a name: a `numpy.ndarray` that all nodes write in place.

        Collective: all nodes make the same arrays in the same order. The array begins as zeros.
        If two nodes write one element between two synchronisations, it may become a mixture of the
        bytes of both values.

        Args:
            name: up to 48 bytes.
            shape: one to four extents, or the number of elements.
            dtype: numbers, or a structure of numbers without padding.
            distribution: which node is the home of which elements; a block of the first axis for
                each, unless it is given.
            delivery: how updates end at readers, such as ``"direct_map"``.
            unordered_updates: sends updates without waiting for other messages.

        Raises:
            MismatchError: the nodes disagree on the array.
            InvalidError: the dtype cannot be shared.
        """
        shared = _array.make(
            self, name, shape, dtype, distribution, delivery, unordered_updates
        )
        return _array.view_of(shared)

    def guarded_array(
        self,
        name: str,
        shape: int | tuple[int, ...],
        dtype: npt.DTypeLike = "f8",
        *,
        distribution: _native.Distribution | None = None,
        delivery: str | None = None,
        unordered_updates: bool = False,
    ) -> SharedArray:
        """Makes a shared array as `array` does, for access through guards alone.

        Such an array takes no page faults, and its updates are sent as guards end.
        """
        return _array.make(self, name, shape, dtype, distribution, delivery, unordered_updates)

    async def receive_async(self, source: int | None = None) -> _native.Message:
        """Waits for the next message in a coroutine, from the node `source` or from any.

        Raises:
            PeerLostError: the node that is waited for is lost, which is noticed within a second.
        """
        message = self.try_receive(source)
        if message is not None:
            return message
        return await _aio.watcher(self).next(
            lambda: self.try_receive(source), lambda: self.receive(source, timeout=0)
        )

    async def barrier_async(self) -> None:
        """Waits in a coroutine until all nodes have come here. A thread of the loop waits."""
        await asyncio.to_thread(self.barrier)

    def __repr__(self) -> str:
        return f"<oikaze.Job, node {self.rank} of {self.size}{', left' if self.has_left else ''}>"


def join(
    *,
    time_limit: float | None = None,
    failure_time: float | None = None,
    explain_after: float | None = None,
    keep_going: bool | None = None,
    seal: Literal["full", "integrity", "crc", "header"] | None = None,
    cubic_congestion_control: bool = False,
    flows: int | Literal["auto"] | None = None,
    ports: tuple[int, int] | None = None,
    waiting: str | None = None,
    engine: str | None = None,
    engine_core: int | None = None,
    engine_priority: str | None = None,
    without: str | None = None,
    rank: int | None = None,
    size: int | None = None,
    gather: Callable[[bytes], Sequence[bytes]] | None = None,
) -> Job:
    """Joins the job of this process and returns it. Without a launcher, it is a job of one node.

    The launcher is ``oikaze run``, ``mpirun``, ``mpiexec``, ``srun``, ``torchrun`` or Kubernetes.
    With ``rank``, ``size`` and ``gather``, processes that the program has started itself make a
    job. So Oikaze runs beside mpi4py:

        oikaze.join(rank=comm.rank, size=comm.size, gather=comm.allgather)

    Args:
        time_limit: seconds after which each wait without a limit of its own ends.
        failure_time: seconds without a sign of life after which a peer is taken for lost.
        explain_after: seconds after which a wait is explained on stderr; 0 for never.
        keep_going: whether survivors go on after the death of a node.
        seal: protection of datagrams between machines: encrypted (the default), authenticated
            only, by a checksum, or by a checksum of headers. All nodes choose the same.
        cubic_congestion_control: uses CUBIC (RFC 9438) in place of the default for data centres.
        flows: number of UDP source ports from which bulk to a peer leaves, 1 to 16, or "auto" for
            as many as pay. Clouds cap what one of them carries.
        ports: first and last UDP port that this node may use.
        waiting: how a thread waits: "spin", "poll:10us" (another time, too), "block" at once, or
            "adaptive": it decides by what has paid.
        engine: which thread drives communication: "inline" for the threads that wait, "thread" or
            "thread:0,2-3" for one of its own (on these cores), "process", "process:NAME" or
            "process:NAME@CORES" for one that leaves system calls to a server of the machine.
        engine_core: core of the engine's thread, as in ``engine="thread:3"``.
        engine_priority: priority of that thread over applications: "fifo", "fifo:N" (1 to 99) or
            "nice:N" (-20 to 19).
        without: mechanisms to do without, as in ``OIKAZE_WITHOUT``.
        rank: rank of this process in a job that ``gather`` makes.
        size: number of processes of that job.
        gather: function that each of them calls once, in a thread of its own: it is given some
            bytes of this process, and returns those of all processes in the order of their ranks.
            The bytes of rank 0 hold the job's secret.

    Raises:
        JoinError: the launcher or another node could not be reached.
        ForkedError: a parent of this process has joined.
        InvalidError: a setting makes no sense.
    """
    return Job(
        time_limit=time_limit,
        failure_time=failure_time,
        explain_after=explain_after,
        keep_going=keep_going,
        seal=seal,
        cubic_congestion_control=cubic_congestion_control,
        flows=flows,
        ports=ports,
        waiting=waiting,
        engine=engine,
        engine_core=engine_core,
        engine_priority=engine_priority,
        without=without,
        rank=rank,
        size=size,
        gather=gather,
    )
