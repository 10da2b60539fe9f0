"""Functions that run on the nodes of a new job on this machine, for notebooks and scripts.

The processes are new ones, started by ``oikaze run`` (`_pool._io`). Each takes functions by a
socket and sends back what they return or raise (`_pool._node`). Each has a job of its own from
`current_job`.
"""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._errors import invalid, whole_number, wrong_type
from ._native import NODES_MAX

if TYPE_CHECKING:
    from ._job import Job
    from ._pool._io import Call

#: Time in seconds after an interrupt after which nodes that go on are named.
HINT_AFTER = 2.0
#: Time in seconds after which a call that waits for an earlier one says so.
EARLIER_AFTER = 1.0
#: Time in seconds after which a wait sees interrupts that are no signals, such as those of
#: `_thread.interrupt_main`.
POLL_INTERVAL = 0.2


class ByRank:
    """Values of which each node gets its own; `by_rank` makes them."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = list(values)

    def __reduce__(self) -> Any:
        cause, remedy = "by_rank is within another value", "pass it as an argument of its own"
        raise invalid("running a function", cause, remedy)

    def __repr__(self) -> str:
        return f"<oikaze.by_rank of {len(self.values)} values>"


def by_rank(values: Sequence[Any]) -> ByRank:
    """Returns an argument of `Pool.run` or `Pool.push` of which each node gets its own value.

    Args:
        values: one value for each rank.

    Example::

        pool.run(solve, oikaze.by_rank(np.array_split(data, pool.size)))
    """
    try:
        return ByRank(values)
    except TypeError:
        cause = f"{values!r} is not a sequence"
        raise wrong_type("by_rank", cause, "give one value for each rank") from None


class Pool:
    """Nodes of a job on this machine, which run functions; `oikaze.local` makes one.

    The nodes keep their state between calls: global names, arrays, connections. A function that
    raises an exception, or is interrupted, does not change that. As a context manager the pool ends
    at the end of the block. It also ends with its last reference, and with this process.
    """

    def __init__(self, nodes: int) -> None:
        from ._pool._io import Nodes

        self.size = nodes = whole_number(nodes, "starting nodes", "nodes")
        if not 1 <= nodes <= NODES_MAX:
            remedy = f"give 1 to {NODES_MAX}"
            raise invalid("starting nodes", f"{nodes} nodes are asked for", remedy)
        self._pushed: set[str] = set()
        self._nodes = Nodes(nodes)
        # The thread holds the nodes and not the pool, which ends with its last reference.
        self._end = weakref.finalize(self, self._nodes.close)
        try:
            self._wait(self._nodes.start)
        except BaseException:
            self.kill()
            raise

    def run(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> list[Any]:
        """Calls ``function(*arguments, **keywords)`` on every node. Returns the results by rank.

        The function gets its job from ``oikaze.current_job()``. It may be one of a notebook: the
        global names that it uses are sent with it, unless they were pushed. It may keep its own
        with ``global``. Output of the nodes is printed.

        An exception of a node is raised here, with the node's traceback as the cause. If several
        nodes fail, it is the one of the lowest rank. Nodes that wait for the failed one are
        interrupted. Then the pool can be used again, with the state of all nodes. Messages that no
        function has received are discarded.

        ``KeyboardInterrupt`` is raised in the function on all nodes, and then here. A second one
        returns at once, while the nodes still run. So does an exception of another signal's handler.
        A later call waits for that function, and says so.

        Example::

            with oikaze.local(4) as pool:
                assert pool.run(lambda x: x + oikaze.current_job().rank, 10) == [10, 11, 12, 13]

        Raises:
            PeerLostError: a process has ended.
            InvalidError: the pool is closed, or the function cannot be sent.
        """
        __tracebackhide__ = True  # by IPython
        self._nodes.check_thread()
        return self._wait(self._submit(function, arguments, keywords, is_watched=True))

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any
    ) -> Future[list[Any]]:
        """Calls a function as `run` does, and does not wait for it.

        Functions run one after the other. `interrupt` ends the one that runs, and
        ``future.cancel()`` those that have not begun.

        Example::

            with oikaze.local(2) as pool:
                future = pool.submit(sum, [1, 2])
                assert future.result() == [3, 3]
        """
        return self._submit(function, arguments, keywords).future

    def push(self, /, **values: Any) -> None:
        """Sets global names of the nodes, for later functions of a notebook or script.

        A function that uses such a name finds the pushed value, also if this process has another
        one. Values of `by_rank` differ between nodes.

        Example::

            pool.push(data=np.arange(1e6), part=oikaze.by_rank(["first", "second"]))
            pool.run(lambda: (part, data.sum()))
        """
        self._nodes.check_thread()
        pushed, names = self._pushed, values.keys()
        call = self._submit(_push, (), values, is_watched=True)

        def note(future: Future[list[Any]]) -> None:
            if not future.cancelled() and future.exception() is None:
                pushed.update(names)

        # Also if an exception of a signal's handler ends the wait below.
        call.future.add_done_callback(note)
        self._wait(call)

    def pull(self, name: str) -> list[Any]:
        """Returns the values of a global name of the nodes, by rank.

        Example::

            pool.push(part=oikaze.by_rank(["first", "second"]))
            assert pool.pull("part") == ["first", "second"]

        Raises:
            NameError: a node has no such name.
        """
        return self.run(_pull, name)

    @property
    def closed(self) -> bool:
        """Whether the pool is closed, by `close` or `kill` or because a node is lost."""
        return self._nodes.is_closed

    def interrupt(self) -> None:
        """Interrupts the function that runs on the nodes, as Ctrl-C does."""
        self._nodes.interrupt(None)

    def close(self) -> None:
        """Ends the nodes within two seconds. A second call does nothing.

        The nodes leave their job and end. Those that do not are terminated, and then killed.
        """
        self._end()

    def kill(self) -> None:
        """Ends the nodes at once, whatever they do. A second call does nothing."""
        self._nodes.kill()
        self._end.detach()

    def _submit(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        is_watched: bool = False,
    ) -> Call:
        from ._pool._calls import pickled_call
        from ._pool._io import Call

        if not callable(function):
            cause = f"{function!r} is not a function"
            raise wrong_type("running a function", cause, "pass a function, and its arguments")
        ranks: Sequence[int] = range(self.size)
        given = [*arguments, *keywords.values()]
        lists = [one.values for one in given if isinstance(one, ByRank)]
        for values in lists:
            if len(values) != self.size:
                cause = f"by_rank has {len(values)} values for {self.size} nodes"
                raise invalid("running a function", cause, "give one for each rank")
        bodies = [
            pickled_call(
                function,
                [_of_rank(one, rank) for one in arguments],
                {name: _of_rank(one, rank) for name, one in keywords.items()},
                self._pushed,
            )
            for rank in (ranks if lists else ranks[:1])
        ]
        call = Call(bodies)
        call.is_watched = is_watched
        self._nodes.submit(call)
        return call

    def _wait(self, call: Call) -> list[Any]:
        """Waits for a call, and prints its output."""
        __tracebackhide__ = True
        from ._pool._io import show

        interrupts = 0
        try:
            while True:
                try:
                    self._show_news(call, interrupts > 0)
                    break
                except KeyboardInterrupt:
                    interrupts += 1
                    if call.future.cancel():
                        raise
                    if interrupts > 1:
                        raise KeyboardInterrupt(f"{_still(call)}; pool.kill() ends them") from None
                    self._nodes.interrupt(call)
        except BaseException:
            # The caller gets an exception of a signal's handler, and not the results.
            call.future.cancel()
            raise
        finally:
            call.is_watched = False
            while not call.news.empty():
                show(call.news.get() or "")
        error = call.future.exception()
        if error is None and interrupts:
            error = KeyboardInterrupt()
        if error is not None:
            try:
                raise error
            finally:
                # The traceback holds this frame.
                del error
        return call.future.result()

    def _show_news(self, call: Call, is_interrupted: bool) -> None:
        """Prints the output of a call until it has ended."""
        from ._pool._io import show

        now = time.monotonic()
        hint_at = now + HINT_AFTER if is_interrupted else math.inf
        earlier_at = now + EARLIER_AFTER
        while True:
            now = time.monotonic()
            if hint_at <= now:
                hint_at = math.inf
                show(f"oikaze: {_still(call)}; interrupt again to return without them\n")
            if earlier_at <= now and (earlier := self._nodes.earlier_than(call)):
                earlier_at = math.inf
                show(
                    f"oikaze: pool: this call waits for an earlier call on {earlier}; "
                    "pool.interrupt() ends that call, pool.kill() ends the nodes\n"
                )
            with contextlib.suppress(queue.Empty):
                news = call.news.get(timeout=POLL_INTERVAL)
                if news is None:
                    return
                show(news)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        remedy = "call oikaze.current_job() in the function"
        raise invalid("sending a pool", "it is no object of its nodes", remedy)

    def __repr__(self) -> str:
        return f"<oikaze.Pool of {self.size} nodes{', closed' if self.closed else ''}>"


def _still(call: Call) -> str:
    ranks = ", ".join(map(str, sorted(call.waiting.copy())))
    return f"the function still runs on the nodes {ranks}"


def _of_rank(value: Any, rank: int) -> Any:
    return value.values[rank] if isinstance(value, ByRank) else value


def _push(**values: Any) -> None:
    sys.modules["__main__"].__dict__.update(values)


def _pull(name: str) -> Any:
    try:
        return sys.modules["__main__"].__dict__[name]
    except KeyError:
        raise NameError(f"name {name!r} is not defined on this node") from None


def local(nodes: int) -> Pool:
    """Starts a job of new processes on this machine, which run functions.

    Example::

        def sum_of_ranks():
            return oikaze.current_job().all_reduce(oikaze.current_job().rank)

        with oikaze.local(4) as pool:
            assert pool.run(sum_of_ranks) == [6, 6, 6, 6]

    Raises:
        SystemCallError: the command ``oikaze`` is not there, or the nodes could not start.
    """
    return Pool(nodes)


def current_job() -> Job:
    """Returns the job of this process, in a function that `Pool.run` has sent.

    Elsewhere, it is the job that the process has joined.

    Raises:
        InvalidError: the process has joined none.
    """
    from . import _ending

    if _ending._joined:
        return _ending._joined[-1]
    cause, remedy = "this process has joined none", "call oikaze.join first, or run it on a pool"
    raise invalid("finding the job", cause, remedy)
