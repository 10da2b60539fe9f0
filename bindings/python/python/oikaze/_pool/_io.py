"""Processes of a pool, and the thread that reads from them and writes to them.

One thread does all that concerns the nodes: it starts them, sends calls, reads outcomes and output,
and ends them. It never waits for one node alone, so long arguments and long output do not block
each other. Other threads hand it functions (`Nodes._post`) and wait for calls.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pickle
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from . import _calls
from .._command import find
from .._errors import AbortedError, PeerLostError, invalid, make

#: Time in seconds for which a call waits for the other nodes after one has failed. Then they are
#: interrupted, and again after each further interval.
GRACE, INTERRUPT_INTERVAL = 0.5, 1.0
#: Time in seconds after which nodes that do not end by themselves are terminated, and killed.
TERMINATE_AFTER, KILL_AFTER = 1.0, 1.5
#: Time in seconds for the repair of the job after a call that failed.
REPAIR_TIME = 20.0
#: Length of one read in bytes.
READ_MAX = 1 << 18


class RemoteError(Exception):
    """Traceback of a node, as the cause of an exception that `Pool.run` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Call:
    """A call of all nodes.

    Attributes:
        future: gets the results by rank, or the exception.
        news: output of the nodes for the caller, and ``None`` once the call has ended.
        is_watched: whether a caller prints the news.
    """

    def __init__(self, bodies: list[bytes]) -> None:
        self.future: Future[list[Any]] = Future()
        self.news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.is_watched = False
        self.bodies = bodies
        self.number = 0
        self.waiting: set[int] = set()
        self.outcomes: dict[int, _calls.Outcome] = {}
        self.is_interrupted = False


def show(text: str) -> None:
    """Prints text of the nodes where this process prints. Output that cannot be printed is lost."""
    out = sys.stdout
    if out is None:
        return
    # The standard output may be closed, full, or take ASCII alone. The results are more important.
    with _lost_unless_of_handler():
        try:
            out.write(text)
        except UnicodeEncodeError:
            encoding = getattr(out, "encoding", None) or "ascii"
            out.write(text.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()


@contextlib.contextmanager
def _lost_unless_of_handler() -> Iterator[None]:
    """Suppresses exceptions, but those that a signal's handler raises meanwhile."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever the program's stream raises
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        # A handler is a function, a method, or an object with a method for its calls.
        handlers += [getattr(handler, "__call__", None) for handler in handlers]  # noqa: B004
        codes = [getattr(handler, "__code__", None) for handler in handlers]
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise


class _Lines:
    """Output of one node or of the launcher, as whole lines with the rank in front."""

    def __init__(self, descriptor: int, front: str) -> None:
        self.descriptor, self._front = descriptor, front
        os.set_blocking(descriptor, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        #: Parts of the line that is not finished.
        self._parts: list[str] = []

    def read(self, length: int = READ_MAX) -> tuple[str, int]:
        """Reads once. Returns the lines, and the number of bytes: 0 at the end, -1 for none."""
        try:
            read = os.read(self.descriptor, length)
        except BlockingIOError:
            return "", -1
        except OSError:
            read = b""
        *lines, rest = self._decoder.decode(read, not read).split("\n")
        if lines:
            lines[0] = "".join([*self._parts, lines[0]])
            self._parts.clear()
        self._parts.append(rest)
        text = "".join(f"{self._front}{line}\n" for line in lines)
        return (text if read else text + self.rest()), len(read)

    def read_all(self) -> str:
        """Returns all that the node has written up to now."""
        text = ""
        # A process that writes without end fills the pipe anew while it is read.
        rest = fcntl.fcntl(self.descriptor, fcntl.F_GETPIPE_SZ) if self.descriptor >= 0 else 0
        while rest > 0:
            more, count = self.read(rest)
            text += more
            if count <= 0:
                break
            rest -= count
        return text + self.rest()

    def rest(self) -> str:
        """Returns the line that is not finished."""
        rest = "".join(self._parts)
        self._parts.clear()
        return f"{self._front}{rest}\n" if rest else ""


class _Node:
    """One node, as the pool sees it."""

    def __init__(self, rank: int, link: socket.socket, output: int) -> None:
        self.rank, self.link = rank, link
        self.lines = _Lines(output, f"[{rank}] ")
        self.unsent: deque[memoryview] = deque()
        self._head = bytearray()
        self._body: tuple[int, int, bytearray] | None = None
        self._received = 0
        link.setblocking(False)

    def send(self) -> None:
        """Sends as much as there is room for."""
        while self.unsent:
            part = self.unsent[0]
            try:
                count = self.link.send(part)
            except BlockingIOError:
                return
            except OSError:
                # The end is noticed by reading.
                self.unsent.clear()
                return
            if count == len(part):
                self.unsent.popleft()
            else:
                self.unsent[0] = part[count:]

    def receive(self) -> tuple[int, int, bytearray] | None:
        """Returns a frame if one is complete.

        Raises:
            BlockingIOError: there is none.
            EOFError: the process has ended.
        """
        if self._body is None:
            try:
                read = self.link.recv(_calls.HEAD.size - len(self._head))
            except ConnectionError:
                read = b""
            if not read:
                raise EOFError
            self._head += read
            if len(self._head) < _calls.HEAD.size:
                return None
            kind, number, length = _calls.HEAD.unpack(self._head)
            self._head.clear()
            self._body, self._received = (kind, number, bytearray(length)), 0
        kind, number, body = self._body
        if self._received < len(body):
            try:
                count = self.link.recv_into(memoryview(body)[self._received :])
            except ConnectionError:
                count = 0
            if count == 0:
                raise EOFError
            self._received += count
        if self._received < len(body):
            return None
        self._body = None
        return kind, number, body


class Nodes:
    """Processes of a pool: a launcher, and the nodes that it starts."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_working = True
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._woken)
        self._nodes: dict[int, _Node] = {}
        self._meeting: socket.socket | None = None
        self._launcher: subprocess.Popen[bytes] | None = None
        self._launched: _Lines | None = None
        #: Process that kills the launcher if this process is killed.
        self._guard: subprocess.Popen[bytes] | None = None
        self._queue: deque[Call] = deque()
        #: The call under way. At first, all nodes are to say that they are ready.
        self._current: Call | None = Call([])
        self._current.waiting.update(range(size))
        self.start: Call = self._current
        self._numbers = 0
        self._kept: frozenset[str] = frozenset()
        #: Time of the next interrupt of the nodes that a failed call waits for.
        self._interrupt_at: float | None = None
        #: Step of a repair, the nodes it waits for, and its end in time.
        self._repair: tuple[int, set[int], float] | None = None
        #: Steps of the end, with their times.
        self._ends: deque[tuple[float, Callable[[], None]]] = deque()
        #: Nodes that others have lost, although their processes may go on.
        self._silent: frozenset[int] = frozenset()
        #: Why the pool has ended by itself, and the rank of the node that has.
        self._lost: tuple[str, int | None] | None = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="oikaze-pool", daemon=True)
        self._thread.start()

    # Called by other threads.

    def submit(self, call: Call) -> None:
        """Runs a call after all earlier ones."""
        if not self._post(lambda: self._enqueue(call)):
            self._settle(call, self._why_closed())

    def interrupt(self, call: Call | None) -> None:
        """Interrupts a call, or the one under way."""
        self._post(lambda: self._interrupt(call))

    def close(self) -> None:
        """Ends the nodes: asks them, then terminates them, then kills them."""
        self._finish(self._begin_close)

    def kill(self) -> None:
        """Kills the nodes."""
        self._finish(self._begin_kill)

    @property
    def is_closed(self) -> bool:
        """Whether no call can run any more."""
        return self._is_closing or self._lost is not None

    def earlier_than(self, call: Call) -> str:
        """Returns in words which nodes run an earlier call, or an empty text if none does."""
        current = self._current
        if current is None or current is call:
            return ""
        ranks = _words(current.waiting.copy())
        return f"nodes {ranks}" if ranks else "the nodes"

    def check_thread(self) -> None:
        """Refuses a wait of the thread that everything is waited for."""
        if threading.current_thread() is self._thread:
            cause, remedy = "this is a callback of a future", "use pool.submit there"
            raise invalid("running a function", cause, remedy)

    def _finish(self, begin: Callable[[], None]) -> None:
        if os.getpid() != self._process:
            # A child by fork. The nodes are those of its parent.
            return
        self._post(begin)
        if threading.current_thread() is self._thread:
            return
        try:
            self._thread.join()
        except BaseException:
            self._post(self._begin_kill)
            raise

    def _post(self, function: Callable[[], None]) -> bool:
        """Lets the thread call a function. Returns false if the thread has ended."""
        with self._lock:
            if not self._is_working:
                return False
            self._posted.append(function)
            # A full socket wakes the thread as well.
            with contextlib.suppress(BlockingIOError):
                self._waker.send(b"\0")
            return True

    # The thread.

    def _work(self) -> None:
        try:
            self._launch()
            while not self._is_over():
                for key, events in self._selector.select(self._time_left()):
                    key.data(events)
                while self._posted:
                    self._posted.popleft()()
                self._keep_time()
        except BaseException as error:  # noqa: BLE001 - callers would wait for ever
            self._end_calls(error)
        finally:
            self._clean_up()

    def _launch(self) -> None:
        # The nodes send their sockets by this one. The launcher has none of theirs, so that each
        # socket ends with its node.
        self._meeting, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._guard = subprocess.Popen(
                [find(), "guard"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._launcher = subprocess.Popen(
                [find(), "run", "-n", str(self.size), "--", sys.executable, "-m", "oikaze._pool._node"],
                env={**os.environ, _calls.DESCRIPTOR: str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C in a terminal reaches this process alone.
                start_new_session=True,
            )
        self._tell_guard(f"group {self._launcher.pid}")
        assert self._launcher.stdout is not None
        output = self._launcher.stdout.fileno()
        self._launched = _Lines(output, "")
        self._selector.register(output, selectors.EVENT_READ, self._launcher_said)
        self._selector.register(self._meeting, selectors.EVENT_READ, self._meet)

    def _meet(self, _events: int) -> None:
        """Takes the socket and the output of a node."""
        assert self._meeting is not None
        said, descriptors, _, _ = socket.recv_fds(self._meeting, 16, 2, socket.MSG_CMSG_CLOEXEC)
        if len(descriptors) == 2:
            link, output = descriptors
            node = _Node(int(said), socket.socket(fileno=link), output)
            self._nodes[node.rank] = node
            self._watch(node)
            self._selector.register(output, selectors.EVENT_READ, self._reader(node))
        if len(self._nodes) == self.size or not said:
            self._selector.unregister(self._meeting)

    def _tell_guard(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            # The nodes end without a guard, too, unless this process is killed.
            with contextlib.suppress(OSError):
                self._guard.stdin.write(f"{line}\n".encode())
                self._guard.stdin.flush()

    def _reader(self, node: _Node) -> Callable[[int], None]:
        def read(_events: int) -> None:
            text, count = node.lines.read()
            self._say(text)
            if count == 0:
                self._selector.unregister(node.lines.descriptor)

        return read

    def _watch(self, node: _Node) -> None:
        """Waits for what a node sends, and for room for what it is sent."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if node.unsent else 0)
        try:
            key = self._selector.get_key(node.link)
        except KeyError:
            self._selector.register(node.link, events, lambda events: self._serve(node, events))
        else:
            if key.events != events:
                self._selector.modify(node.link, events, key.data)

    def _serve(self, node: _Node, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            node.send()
            self._watch(node)
        if events & selectors.EVENT_READ:
            try:
                frame = node.receive()
            except BlockingIOError:
                return
            except EOFError:
                self._selector.unregister(node.link)
                self._has_ended(node)
                return
            if frame is not None:
                self._take(node, *frame)

    def _send(self, rank: int, kind: int, number: int, *parts: bytes) -> None:
        node = self._nodes[rank]
        node.unsent.extend(_calls.frame(kind, number, *parts))
        node.send()
        if node.unsent:
            self._watch(node)

    def _woken(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup.recv(READ_MAX)

    def _say(self, text: str) -> None:
        """Shows output of the nodes: by the caller of the call under way, if there is one."""
        if not text:
            return
        call = self._current
        if call is not None and call.is_watched:
            call.news.put(text)
        else:
            with contextlib.suppress(BaseException):
                show(text)

    def _launcher_said(self, _events: int) -> None:
        assert self._launched is not None
        text, count = self._launched.read()
        # A launcher that was told to end its nodes says nothing new.
        if not self._is_closing:
            self._say(text)
        if count == 0:
            self._selector.unregister(self._launched.descriptor)
            self._launched = None

    def _take(self, node: _Node, kind: int, number: int, body: bytearray) -> None:
        call = self._current
        if call is None or number != call.number:
            return
        if kind == _calls.REPAIRED:
            self._has_repaired(node.rank, body.decode(errors="replace"))
            return
        self._say(node.lines.read_all() if kind == _calls.OUTCOME else "")
        outcome = pickle.loads(body) if kind == _calls.OUTCOME else _calls.Outcome("value")
        call.outcomes[node.rank] = outcome
        call.waiting.discard(node.rank)
        self._silent = self._silent or frozenset(outcome.lost)
        if (outcome.status != "value" or self._silent) and self._interrupt_at is None:
            self._interrupt_at = time.monotonic() + GRACE
        if not call.waiting:
            self._all_have_ended(call)

    # Calls.

    def _enqueue(self, call: Call) -> None:
        if self.is_closed:
            self._settle(call, self._why_closed())
            return
        self._queue.append(call)
        self._begin_next()

    def _begin_next(self) -> None:
        if self.is_closed:
            self._end_calls(self._why_closed())
        while self._current is None and self._queue:
            call = self._queue.popleft()
            if not call.future.set_running_or_notify_cancel():
                call.news.put(None)
                continue
            self._numbers += 1
            call.number, call.waiting = self._numbers, set(range(self.size))
            self._current, self._interrupt_at = call, None
            kept = pickle.dumps(self._kept)
            head = len(kept).to_bytes(8, "little") + kept
            for rank in range(self.size):
                body = call.bodies[rank % len(call.bodies)]
                self._send(rank, _calls.CALL, call.number, head, body)
            call.bodies = []

    def _interrupt(self, call: Call | None) -> None:
        current = self._current
        if current is None or (call is not None and call is not current):
            return
        current.is_interrupted = True
        for rank in current.waiting:
            self._send(rank, _calls.INTERRUPT, current.number)

    def _all_have_ended(self, call: Call) -> None:
        self._interrupt_at = None
        if self._silent:
            self._end_with_silent_nodes(call)
            return
        if any(outcome.has_ended_job for outcome in call.outcomes.values()):
            self._end_lost(call, "the job was ended by an earlier call, and the pool with it", None)
            return
        counts = [outcome.counts for outcome in call.outcomes.values()]
        are_well = all(outcome.status == "value" for outcome in call.outcomes.values())
        if are_well and all(one == counts[0] for one in counts):
            self._end_call(call)
            return
        most: dict[tuple[str, int], int] = {}
        for one in counts:
            for key, count in one.items():
                most[key] = max(count, most.get(key, 0))
        self._begin_step(_calls.ALIGN, pickle.dumps(most))

    def _begin_step(self, step: int, body: bytes) -> None:
        """Begins a step of the repair of the job, so that the next call finds the nodes in step."""
        assert self._current is not None
        end = time.monotonic() + REPAIR_TIME
        self._repair = (step, set(range(self.size)), end)
        for rank in range(self.size):
            self._send(rank, step, self._current.number, body)

    def _has_repaired(self, rank: int, why: str) -> None:
        if self._repair is None or self._current is None:
            return
        step, waiting, _ = self._repair
        if why:
            self._give_up(f"node {rank}: {why}")
            return
        waiting.discard(rank)
        if waiting:
            return
        if step == _calls.ALIGN:
            self._begin_step(_calls.CLEAR, b"")
        else:
            self._repair = None
            self._end_call(self._current)

    def _give_up(self, why: str) -> None:
        """Ends the nodes, because the job cannot be repaired after a call that failed."""
        self._repair = None
        show(f"oikaze: the pool ends with its data: the job cannot go on after this call: {why}\n")
        self._lost = (f"the job could not go on after an earlier call: {why}", None)
        if self._current is not None:
            self._end_call(self._current)
        self._begin_kill()

    def _end_with_silent_nodes(self, call: Call) -> None:
        """Ends the nodes, because some of them were silent for longer than the failure time."""
        ranks = sorted(self._silent)
        those = f"node {ranks[0]} was" if len(ranks) == 1 else f"nodes {_words(ranks)} were"
        why = "silent for longer than the failure time (stopped or overloaded)"
        self._end_lost(call, f"{those} {why}, and the pool and its data end", ranks[0])

    def _end_lost(self, call: Call, why: str, rank: int | None) -> None:
        self._lost = (why, rank)
        self._end_call(call)
        self._begin_kill()

    def _end_call(self, call: Call) -> None:
        """Gives a call its results or its exception, and begins the next one."""
        self._current = None
        outcomes = call.outcomes
        kept = [set(outcome.kept.items()) for outcome in outcomes.values()]
        self._kept = frozenset(name for name, _ in set.intersection(*kept)) if kept else frozenset()
        try:
            error, results = _result_of(call)
            if self._lost is not None and isinstance(error, PeerLostError | AbortedError):
                # The remedy of the node's error is none for a pool.
                cause, error = error.__cause__, self._why_closed()
                error.__cause__ = cause
            self._settle(call, error, results)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._settle(call, error)
        self._begin_next()

    def _settle(
        self, call: Call, error: BaseException | None, results: list[Any] | None = None
    ) -> None:
        # A call that was cancelled, or has ended, keeps its outcome.
        with contextlib.suppress(Exception):
            if error is not None:
                call.future.set_exception(error)
            else:
                call.future.set_result(results or [])
        call.news.put(None)

    def _end_calls(self, error: BaseException) -> None:
        """Fails all calls."""
        current, self._current = self._current, None
        for call in [*([current] if current else []), *self._queue]:
            self._settle(call, error)
        self._queue.clear()

    # The end.

    def _has_ended(self, node: _Node) -> None:
        """Called when the process of a node has ended."""
        self._say(node.lines.read_all())
        if self.is_closed or self._current is self.start:
            return
        self._lost = (
            f"the process of node {node.rank} has ended, and the pool and its data with it",
            node.rank,
        )
        # The launcher says how the node has ended, and ends the others.
        self._end_after([(0.2, self._terminate), (TERMINATE_AFTER, self._kill)])

    def _begin_close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        for node in self._nodes.values():
            with contextlib.suppress(OSError):
                node.unsent.clear()
                node.link.shutdown(socket.SHUT_WR)
        self._end_after([(TERMINATE_AFTER, self._terminate), (KILL_AFTER, self._kill)])

    def _begin_kill(self) -> None:
        self._is_closing = True
        self._kill()

    def _end_after(self, steps: list[tuple[float, Callable[[], None]]]) -> None:
        now = time.monotonic()
        self._ends = deque((now + after, step) for after, step in steps)

    def _terminate(self) -> None:
        if self._launcher is not None and self._launched is not None:
            self._launcher.terminate()

    def _kill(self) -> None:
        # The kernel kills the nodes with their launcher.
        if self._launcher is not None:
            self._launcher.kill()

    def _is_over(self) -> bool:
        """Returns true once the launcher and all nodes have ended."""
        links = self._selector.get_map()
        are_gone = all(node.link not in links for node in self._nodes.values())
        return self._launched is None and are_gone

    def _time_left(self) -> float | None:
        times = [self._interrupt_at, self._repair and self._repair[2]]
        times.append(self._ends[0][0] if self._ends else None)
        due = min((at for at in times if at is not None), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _keep_time(self) -> None:
        now = time.monotonic()
        call = self._current
        if self._interrupt_at is not None and self._interrupt_at <= now and call is not None:
            self._interrupt_at = now + INTERRUPT_INTERVAL
            if self._lost is None and call.waiting <= self._silent:
                # A stopped process does not answer.
                self._end_with_silent_nodes(call)
                return
            for rank in call.waiting:
                self._send(rank, _calls.INTERRUPT, call.number)
        if self._repair is not None and self._repair[2] <= now:
            self._give_up(f"nodes {_words(self._repair[1])} do not answer")
        while self._ends and self._ends[0][0] <= now:
            self._ends.popleft()[1]()

    def _why_closed(self) -> Exception:
        if self._lost is not None:
            cause, rank = self._lost
            remedy = "see the output above, and make another pool"
            return _failed("PeerLostError", "running a function", cause, remedy, rank)
        return invalid("running a function", "the pool is closed", "make another one")

    def _clean_up(self) -> None:
        """Ends what is left, after the nodes or after a mistake of this thread."""
        status = None
        if self._launcher is not None:
            if self._launched is not None:
                self._launcher.kill()
            status = self._launcher.wait()
            assert self._launcher.stdout is not None
            self._launcher.stdout.close()
        if self._guard is not None:
            self._tell_guard("done")
            with contextlib.suppress(OSError):
                self._guard.communicate()
        if self._meeting is not None:
            self._meeting.close()
        for node in self._nodes.values():
            node.link.close()
            os.close(node.lines.descriptor)
        self._is_closing = True
        current = self._current
        if current is self.start and self._lost is None:
            cause = f"the launcher ended with status {status}"
            remedy = "see its output above"
            self._settle(current, _failed("SystemCallError", "starting nodes", cause, remedy))
        self._end_calls(self._why_closed())
        with self._lock:
            self._is_working = False
        while self._posted:
            self._posted.popleft()()
        self._selector.close()
        self._wakeup.close()
        self._waker.close()


def _words(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))


def _failed(
    kind: str, operation: str, cause: str, remedy: str, peer: int | None = None
) -> Exception:
    return make(kind, f"{operation}: {cause}; {remedy}", operation, cause, remedy, peer)


def _result_of(call: Call) -> tuple[BaseException | None, list[Any]]:
    """Returns the exception of a call, or its results by rank."""
    outcomes = sorted(call.outcomes.items())
    failed = [(rank, outcome) for rank, outcome in outcomes if outcome.status == "error"]
    ended = failed or [(rank, outcome) for rank, outcome in outcomes if outcome.status != "value"]
    if call.is_interrupted:
        error: BaseException = KeyboardInterrupt()
    elif failed:
        error = _calls.exception_of(failed[0][1])
    else:
        results = []
        for rank, outcome in outcomes:
            try:
                results.append(pickle.loads(outcome.pickled) if outcome.pickled else None)
            except Exception as why:
                cause = f"the one of node {rank} means nothing here: {why!r}"
                remedy = "return numbers, arrays, or parts of it"
                raise invalid("taking a result", cause, remedy) from why
        return None, results
    if ended:
        rank, outcome = ended[0]
        others = [] if call.is_interrupted else ended[1:]
        more = "".join(f"\nnode {other} failed, too: {one.text}" for other, one in others)
        error.__cause__ = RemoteError(f"node {rank}: {outcome.trace}{more}")
    return error, []
