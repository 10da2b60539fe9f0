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
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _ending, _errors

if TYPE_CHECKING:
    from ._job import Job
    from ._native import Arrival, Arrivals, Operation

#: What a waiting task takes.
_Taken = TypeVar("_Taken")

#: Seconds after which a task that waits for a message looks whether it waits in vain.
_LOOK_INTERVAL = 1.0

_watchers: dict[int, Watcher] = {}


class Watcher:
    """Watches one job for all event loops of the process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queue = job.completion_queue()
        self._numbers = itertools.count(1)
        #: The number by which the queue reports an operation, which it does once.
        self._contexts: weakref.WeakKeyDictionary[Operation, int] = weakref.WeakKeyDictionary()
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._receiving: set[asyncio.Future[bool]] = set()
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
        context = self._contexts.get(operation)
        if context is None:
            context = next(self._numbers)
            try:
                operation.report_to(self._queue, context)
            except _errors.InvalidError:
                # The program has its own queue, and an operation reports to one only.
                return await asyncio.to_thread(operation.wait)
            self._contexts[operation] = context
        ended = loop.create_future()
        tasks = self._waiting.setdefault(context, set())
        tasks.add(ended)
        try:
            self._take(loop)
            # The end may have been taken before this task waited for it.
            if not operation.done:
                self._poll_soon(loop)
                await ended
        finally:
            tasks.discard(ended)
            if not tasks and self._waiting.get(context) is tasks:
                del self._waiting[context]
        return operation.wait()

    async def next(
        self, take: Callable[[], _Taken | None], look: Callable[[], _Taken]
    ) -> _Taken:
        """Waits until `take` returns something: a message, or an entry of a queue.

        `look` is the blocking call with no time left. It raises an exception if there is nothing
        to wait for, as after the loss of a peer.
        """
        loop = self.watch()
        while True:
            # Noted first, so that nothing comes unseen. It is taken by the one who gets it, and not
            # before: a task that is cancelled takes none.
            arrived = loop.create_future()
            self._receiving.add(arrived)
            timer = loop.call_later(_LOOK_INTERVAL, _settle, arrived, _set_overdue, loop)
            try:
                taken = take()
                if taken is not None:
                    return taken
                self._poll_soon(loop)
                is_overdue = await arrived
            finally:
                timer.cancel()
                self._receiving.discard(arrived)
            if is_overdue:
                try:
                    return look()
                except _errors.TimeoutError:
                    pass

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
        for ended in self._awaited():
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
        loops = itertools.chain(
            (ended.get_loop() for ended in self._awaited()),
            (arrived.get_loop() for arrived in list(self._receiving)),
        )
        return any(other is loop for other in loops)

    def _awaited(self) -> list[asyncio.Future[None]]:
        """Returns the futures of all tasks that await an operation."""
        return [ended for tasks in list(self._waiting.values()) for ended in list(tasks)]

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
            for ended in list(self._waiting.pop(context, ())):
                _settle(ended, lambda future: future.set_result(None), running)

    def _wake_receivers(self, running: asyncio.AbstractEventLoop | None) -> None:
        """Lets those who wait for messages look for theirs."""
        for arrived in list(self._receiving):
            _settle(arrived, lambda future: future.set_result(False), running)


def _set_overdue(arrived: asyncio.Future[bool]) -> None:
    arrived.set_result(True)


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
    return await watcher(job).next(arrivals.try_next, lambda: arrivals.next(timeout=0))


async def wait(operation: Operation) -> Any:
    """Waits for the end of an operation, and returns its result."""
    if operation.done:
        return operation.wait()
    job = _job_at(operation._job)
    if job is None:
        return operation.wait()
    return await watcher(job).wait(operation)
