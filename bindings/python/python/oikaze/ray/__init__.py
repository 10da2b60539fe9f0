"""Jobs of the actors of Ray."""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Sequence
from typing import Any

from .._workers import ArrayHandle, WorkerJob, join_here

__all__ = ["ArrayHandle", "WorkerJob", "join"]


class _Exchange:
    """An actor at which the nodes meet."""

    def __init__(self, size: int) -> None:
        self._all: list[bytes | None] = [None] * size
        self._is_complete = asyncio.Event()

    async def gather(self, rank: int, mine: bytes) -> list[bytes | None]:
        self._all[rank] = mine
        if None not in self._all:
            self._is_complete.set()
        await self._is_complete.wait()
        return self._all


def _join_here(
    exchange: Any, key: str, rank: int, size: int, settings: dict[str, Any]
) -> None:
    """Joins in an actor."""
    ray: Any = importlib.import_module("ray")
    join_here(key, rank, size, lambda mine: ray.get(exchange.gather.remote(rank, mine)), settings)


def join(actors: Sequence[Any], **settings: Any) -> WorkerJob:
    """Makes the processes of actors the nodes of a job, with ranks in the order of the list.

    Each actor has a process of its own, and is in one job at a time. Its methods find the job by
    `oikaze.current_job`, and get the array where they are given its handle::

        job = oikaze.ray.join([Worker.remote() for _ in range(4)])
        x = job.array("x", 1_000_000)
        ray.get([actor.fill.remote(x) for actor in actors])

    Args:
        actors: handles of the actors.
        settings: settings of each node, as `oikaze.join` has them.

    Raises:
        JoinError: an actor could not join (inside an exception of Ray).
    """
    ray: Any = importlib.import_module("ray")
    key, size = uuid.uuid4().hex, len(actors)
    # It waits for all of them at once, and needs no core meanwhile.
    exchange = ray.remote(num_cpus=0, max_concurrency=size + 1)(_Exchange).remote(size)

    def on_all(function: Any, *arguments: Any) -> list[Any]:
        def run(_actor: Any, *given: Any) -> Any:
            return function(*given)

        results: list[Any] = ray.get([one.__ray_call__.remote(run, *arguments) for one in actors])
        return results

    def run(_actor: Any, rank: int) -> None:
        _join_here(exchange, key, rank, size, settings)

    pending = [actor.__ray_call__.remote(run, rank) for rank, actor in enumerate(actors)]
    try:
        while pending:
            done, pending = ray.wait(pending)
            ray.get(done)
    finally:
        # It has the job's secret, which nobody needs any more. After a failure, those that still
        # wait there end by an error.
        ray.kill(exchange)
    return WorkerJob(key, size, on_all)
