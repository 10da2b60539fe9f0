"""Operations in coroutines.

One object a job watches the job's descriptor in each event loop that awaits something. When the
descriptor is readable, it takes what has ended out of a completion queue, whichever loop it serves,
and offers messages that have arrived to those who wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _ending

if TYPE_CHECKING:
    from ._job import Job
    from ._native import Message, Operation

_watchers: dict[int, Watcher] = {}


class Watcher:
    """Watches one job for all event loops of the process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # A copy, which the event loops may watch for a moment longer than the job lasts.
        self._descriptor = os.dup(job.descriptor)
        self._queue = job.completion_queue()
        self._next = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._receiving: list[tuple[int | None, asyncio.Future[Message]]] = []
        self._loops: set[asyncio.AbstractEventLoop] = set()

    def watch(self) -> asyncio.AbstractEventLoop:
        """Watches the job in the running loop, and returns the loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops = {other for other in self._loops if not other.is_closed()}
            self._loops.add(loop)
            loop.add_reader(self._descriptor, self._look)
        return loop

    async def wait(self, operation: Operation) -> Any:
        """Waits for the end of an operation, and returns its result."""
        loop = self.watch()
        self._next += 1
        context, ended = self._next, loop.create_future()
        self._waiting[context] = ended
        try:
            operation.report_to(self._queue, context)
            self._take()
            await ended
        finally:
            self._waiting.pop(context, None)
        return operation.wait()

    async def receive(self, source: int | None) -> Message:
        """Waits for a message."""
        loop = self.watch()
        arrived = loop.create_future()
        entry = (source, arrived)
        self._receiving.append(entry)
        try:
            self._offer()
            message: Message = await arrived
        finally:
            if entry in self._receiving:
                self._receiving.remove(entry)
        return message

    def close(self) -> None:
        """Stops watching. Called when the process leaves the job."""
        for loop in self._loops:
            if not loop.is_closed():
                loop.call_soon_threadsafe(loop.remove_reader, self._descriptor)
        self._take()
        pending: list[asyncio.Future[Any]] = [*self._waiting.values()]
        pending += [arrived for _, arrived in self._receiving]
        for future in pending:
            _settle(future, lambda future: future.cancel())
        os.close(self._descriptor)

    def _look(self) -> None:
        if self._job.has_left:
            return
        self._job.clear_descriptor()
        self._take()
        self._offer()

    def _take(self) -> None:
        for context, _, _ in self._queue.poll():
            ended = self._waiting.pop(context, None)
            if ended is not None:
                _settle(ended, lambda future: future.set_result(None))

    def _offer(self) -> None:
        for entry in list(self._receiving):
            source, arrived = entry
            if arrived.done():
                continue
            message = self._job.try_receive(source)
            if message is not None:
                self._receiving.remove(entry)
                _settle(arrived, lambda future, message=message: future.set_result(message))


def _settle(future: asyncio.Future[Any], settle: Callable[..., Any]) -> None:
    """Settles a future in the thread of its loop."""

    def now() -> None:
        if not future.done():
            settle(future)

    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(now)


def watcher(job: Job) -> Watcher:
    """Returns the watcher of a job."""
    found = _watchers.get(job._address)
    if found is None:
        found = _watchers[job._address] = Watcher(job)
    return found


def close(job: Job) -> None:
    """Ends the watcher of a job, if there is one."""
    found = _watchers.pop(job._address, None)
    if found is not None:
        found.close()


async def wait(operation: Operation) -> Any:
    """Waits for the end of an operation, and returns its result."""
    if operation.done:
        return operation.wait()
    job = next((job for job in _ending._joined if job._address == operation._job), None)
    if job is None:
        return operation.wait()
    return await watcher(job).wait(operation)
