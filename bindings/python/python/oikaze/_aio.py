"""Operations in coroutines.

One object a job drives the job's node for each event loop that awaits something: in rounds of the
loop for as long as a blocking wait would poll, and then when the job's descriptor is readable. It
takes what has ended out of a completion queue, whichever loop it serves, and wakes those who wait
for messages.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _ending

if TYPE_CHECKING:
    from ._job import Job
    from ._native import Arrival, Arrivals, Operation

#: What a waiting task takes.
_Taken = TypeVar("_Taken")

_watchers: dict[int, Watcher] = {}


class Watcher:
    """Watches one job for all event loops of the process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queue = job.completion_queue()
        self._next = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._receiving: set[asyncio.Future[None]] = set()
        #: A copy of the job's descriptor for each loop, which watches it until it closes it itself.
        self._loops: dict[asyncio.AbstractEventLoop, int] = {}
        #: Loops that call `_poll` in their next round.
        self._polling: set[asyncio.AbstractEventLoop] = set()

    def watch(self) -> asyncio.AbstractEventLoop:
        """Watches the job in the running loop, and returns the loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for other in [other for other in self._loops if other.is_closed()]:
                os.close(self._loops.pop(other))
                self._polling.discard(other)
            descriptor = os.dup(self._job.descriptor)
            self._loops[loop] = descriptor
            loop.add_reader(descriptor, self._look, loop)
        return loop

    async def wait(self, operation: Operation) -> Any:
        """Waits for the end of an operation, and returns its result."""
        loop = self.watch()
        self._next += 1
        context, ended = self._next, loop.create_future()
        self._waiting[context] = ended
        try:
            operation.report_to(self._queue, context)
            self._take(loop)
            self._poll_soon(loop)
            await ended
        finally:
            self._waiting.pop(context, None)
        return operation.wait()

    async def next(self, take: Callable[[], _Taken | None]) -> _Taken:
        """Waits until `take` returns something: a message, or an entry of a queue."""
        loop = self.watch()
        while True:
            # Noted first, so that nothing comes unseen. It is taken by the one who gets it, and not
            # before: a task that is cancelled takes none.
            arrived = loop.create_future()
            self._receiving.add(arrived)
            try:
                taken = take()
                if taken is not None:
                    return taken
                self._poll_soon(loop)
                await arrived
            finally:
                self._receiving.discard(arrived)

    def close(self) -> None:
        """Stops watching. Called when the process leaves the job."""
        for loop, descriptor in self._loops.items():
            if loop.is_closed():
                os.close(descriptor)
            else:
                # The number is not free for another descriptor before the loop has forgotten it.
                loop.call_soon_threadsafe(_forget, loop, descriptor)
        self._loops.clear()
        self._take(None)
        for ended in list(self._waiting.values()):
            _settle(ended, lambda future: future.cancel(), None)
        # Those who wait for messages find that the process has left.
        self._wake_receivers(None)

    def _poll_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Lets a loop poll in its next round, after the tasks that are ready."""
        if loop not in self._polling:
            self._polling.add(loop)
            loop.call_soon(self._poll, loop)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._polling.discard(loop)
        if self._job.has_left or not self._awaits(loop):
            return
        news, polls_on = self._job._progress()
        if news:
            self._settle_ended(loop)
        if polls_on and self._awaits(loop):
            self._poll_soon(loop)

    def _awaits(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Returns whether a task of this loop awaits something."""
        futures = itertools.chain(list(self._waiting.values()), list(self._receiving))
        return any(future.get_loop() is loop for future in futures)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._job.has_left:
            return
        self._job.clear_descriptor()
        self._settle_ended(loop)

    def _settle_ended(self, loop: asyncio.AbstractEventLoop) -> None:
        """Settles what has ended, in a round of this loop."""
        self._take(loop)
        self._wake_receivers(loop)

    def _take(self, running: asyncio.AbstractEventLoop | None) -> None:
        for context, _, _ in self._queue.poll():
            ended = self._waiting.pop(context, None)
            if ended is not None:
                _settle(ended, lambda future: future.set_result(None), running)

    def _wake_receivers(self, running: asyncio.AbstractEventLoop | None) -> None:
        """Lets those who wait for messages look for theirs."""
        for arrived in list(self._receiving):
            _settle(arrived, lambda future: future.set_result(None), running)


def _forget(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    loop.remove_reader(descriptor)
    os.close(descriptor)


def _settle(
    future: asyncio.Future[Any],
    settle: Callable[..., Any],
    running: asyncio.AbstractEventLoop | None,
) -> None:
    """Settles a future in the thread of its loop. `running` is the loop of this thread, if any."""

    def now() -> None:
        if not future.done():
            settle(future)

    loop = future.get_loop()
    if loop is running:
        now()
    elif not loop.is_closed():
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


def _job_at(address: int) -> Job | None:
    return next((job for job in _ending._joined if job._address == address), None)


async def next_arrival(arrivals: Arrivals) -> Arrival:
    """Waits for a put with notice, and takes it."""
    job = _job_at(arrivals._job)
    if job is None:
        return arrivals.next()
    return await watcher(job).next(arrivals.try_next)


async def wait(operation: Operation) -> Any:
    """Waits for the end of an operation, and returns its result."""
    if operation.done:
        return operation.wait()
    job = _job_at(operation._job)
    if job is None:
        return operation.wait()
    return await watcher(job).wait(operation)
