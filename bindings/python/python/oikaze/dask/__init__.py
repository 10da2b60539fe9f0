"""Jobs of the workers of Dask."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Sequence
from typing import Any

from .._errors import make
from .._workers import ArrayHandle, WorkerJob, join_here

__all__ = ["ArrayHandle", "WorkerJob", "join"]


#: Seconds for the worker of rank 0 to tell the others where it is.
_MEET_TIME = 30


#: Seconds to look whether the variable has a value.
_LOOK_TIME = 0.05
#: Value of the variable when the driver has given up.
_OVER = ""


def _is_over(told: Any, timed_out: type[BaseException]) -> bool:
    """Returns whether the driver has given up."""
    try:
        return bool(told.get(timeout=_LOOK_TIME) == _OVER)
    except timed_out:
        return False


def _join_here(key: str, rank: int, size: int, settings: dict[str, Any]) -> None:
    """Joins in a worker. A variable of the cluster has the bytes of rank 0, which all need."""
    distributed: Any = importlib.import_module("distributed")
    told = distributed.Variable(key, client=distributed.get_client())

    def gather(mine: bytes) -> list[bytes]:
        # The bytes have the job's secret, and nobody would delete them after the driver.
        if rank == 0 and not _is_over(told, distributed.TimeoutError):
            told.set(mine.hex())
        text = told.get(timeout=_MEET_TIME)
        if text == _OVER:
            cause = "another worker could not join"
            text = f"joining: {cause}; the driver's error says why"
            raise make("JoinError", text, "joining", cause, "see the driver's error")
        return [bytes.fromhex(text), *[b""] * (size - 1)]

    try:
        join_here(key, rank, size, gather, settings)
    except BaseException:
        # The driver may have given up just before the bytes were set.
        if rank == 0:
            told.set(_OVER)
        raise


def _nothing() -> None:
    """Lets a driver ask which workers there are."""


def join(client: Any, workers: Sequence[str] | None = None, **settings: Any) -> WorkerJob:
    """Makes workers of Dask the nodes of a job, with ranks in the order of their addresses.

    Tasks find the job by `oikaze.current_job`, and get the array where they are given its handle::

        job = oikaze.dask.join(client)
        x = job.array("x", 1_000_000)
        job.run(lambda job, x: x[job.rank :: job.size].sum(), x)

    The workers are processes (``LocalCluster(processes=True)``), and stay as they are: a worker
    that is restarted is a lost node.

    Args:
        client: client of the cluster.
        workers: addresses of the workers, or all of them.
        settings: settings of each node, as `oikaze.join` has them.

    Raises:
        JoinError: a worker could not join.
    """
    key = f"oikaze-{uuid.uuid4().hex}"
    addresses = sorted(client.run(_nothing)) if workers is None else list(workers)
    size = len(addresses)

    def submit(address: str, function: Any, *arguments: Any) -> Any:
        return client.submit(
            function, *arguments, workers=[address], allow_other_workers=False, pure=False
        )

    def on_all(function: Any, *arguments: Any) -> list[Any]:
        futures = [submit(address, function, *arguments) for address in addresses]
        results: list[Any] = client.gather(futures)
        return results

    told = importlib.import_module("distributed").Variable(key, client=client)
    joining = enumerate(addresses)
    futures = [submit(at, _join_here, key, rank, size, settings) for rank, at in joining]
    try:
        client.gather(futures)
    except BaseException:
        # Those that still wait for rank 0 end by an error.
        told.set(_OVER)
        raise
    # It has the job's secret, which nobody needs any more. The scheduler drops the value when it
    # pleases, so another one takes its place first.
    told.set(_OVER)
    told.delete()
    return WorkerJob(key, size, on_all)
