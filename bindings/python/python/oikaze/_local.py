"""Functions that run on the nodes of a new job on this machine, for notebooks and scripts.

The processes are new ones, started by ``oikaze run``. Each connects to this process by a socket in
a private directory, takes functions, and sends results or exceptions back. Each has a job of its
own from `current_job`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener, wait
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from ._command import find
from ._errors import invalid, make

if TYPE_CHECKING:
    from ._job import Job

#: Number of a call, before the pickled call and its outcome.
_NUMBER = struct.Struct("<Q")
_KEY, _PLACE = "OIKAZE_POOL_KEY", "OIKAZE_POOL_PLACE"


def _pickler() -> ModuleType:
    """Returns cloudpickle, which also sends functions of a notebook, or pickle."""
    try:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return pickle
    return cloudpickle  # type: ignore[no-any-return, unused-ignore]


class RemoteError(Exception):
    """Traceback of a node, as the cause of an exception that `Pool.run` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Pool:
    """Nodes of a job on this machine, which run functions; `oikaze.local` makes one.

    As a context manager the pool ends at the end of the block.
    """

    def __init__(self, nodes: int) -> None:
        if nodes < 1:
            raise invalid("starting nodes", f"{nodes} nodes are asked for", "give 1 or more")
        self.size = nodes
        self._calls = 0
        self._folder = tempfile.TemporaryDirectory(prefix="oikaze-")
        place, key = os.path.join(self._folder.name, "pool"), os.urandom(32)
        self._connections: list[Connection[Any, Any]] = []
        with Listener(place, "AF_UNIX", backlog=nodes, authkey=key) as listener:
            environment = {**os.environ, _KEY: key.hex(), _PLACE: place}
            # Output of the nodes goes where the output of this process goes, in a notebook, too.
            program = [sys.executable, "-m", "oikaze._node"]
            self._launcher = subprocess.Popen(
                [find(), "run", "-n", str(nodes), "--", *program],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert self._launcher.stdout is not None
            self._output = self._launcher.stdout.fileno()
            found = self._accept(listener)
        self._connections = [found[rank] for rank in range(nodes)]

    def _accept(self, listener: Listener) -> dict[int, Connection[Any, Any]]:
        """Takes the connections of all nodes, by rank."""
        socket = listener._listener._socket  # type: ignore[attr-defined]
        found: dict[int, Connection[Any, Any]] = {}
        while len(found) < self.size:
            # The launcher's output ends if the nodes do before they have come.
            ready = wait([socket, self._output])
            if socket in ready:
                connection = listener.accept()
                found[connection.recv()] = connection
            elif not self._print():
                cause = f"the launcher ended with status {self._launcher.wait()}"
                raise _failed("starting nodes", cause, "see its output above")
        return found

    def _print(self) -> bool:
        """Prints what the nodes have printed. Returns false at its end."""
        output = os.read(self._output, 1 << 16)
        sys.stdout.write(output.decode(errors="replace"))
        return bool(output)

    def run(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> list[Any]:
        """Calls ``function(*arguments, **keywords)`` on every node. Returns the results by rank.

        The function gets its job from ``oikaze.current_job()``. It may be one of a notebook, if
        cloudpickle is installed. An exception of a node is raised here, with its traceback as the
        cause. Output of the nodes is printed.

        ``KeyboardInterrupt`` ends the wait. The nodes go on with the function, and the next call
        begins when they have ended it.

        Raises:
            PeerLostError: a process has ended.
        """
        if not self._connections:
            raise invalid("running a function", "the pool is closed", "make another one")
        sent = _pickler().dumps((function, arguments, keywords))
        self._calls += 1
        with self._whole():
            for rank, connection in enumerate(self._connections):
                try:
                    connection.send_bytes(_NUMBER.pack(self._calls) + sent)
                except OSError:
                    self._lost(rank)
        outcomes: dict[int, Any] = {}
        waiting = {connection: rank for rank, connection in enumerate(self._connections)}
        while waiting:
            ready = self._await(list(waiting))
            for connection in ready:
                rank = waiting[connection]
                try:
                    with self._whole():
                        answer = connection.recv_bytes()
                except (EOFError, OSError):
                    self._lost(rank)
                is_well, outcome, trace = pickle.loads(memoryview(answer)[_NUMBER.size :])
                if _NUMBER.unpack_from(answer)[0] != self._calls:
                    # It belongs to an earlier call, which was interrupted.
                    if not is_well:
                        self._end()
                        cause = f"an earlier call, interrupted here, failed on node {rank}"
                        error = invalid("running a function", cause, "make another pool")
                        raise error from RemoteError(f"node {rank}: {trace}")
                    continue
                del waiting[connection]
                outcomes[rank] = outcome
                if not is_well:
                    # Other nodes may wait for this one for ever.
                    if waiting:
                        self._end()
                    raise outcome from RemoteError(f"node {rank}: {trace}")
        return [outcomes[rank] for rank in range(self.size)]

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Ends the nodes if a message was sent or received in part, or not to all nodes."""
        try:
            yield
        except OSError:
            raise
        except BaseException:
            if self._connections:
                self._end()
            raise

    def _await(self, connections: list[Connection[Any, Any]]) -> list[Any]:
        """Waits for a connection, and prints what the nodes print meanwhile."""
        while True:
            ready = wait([self._output, *connections])
            if self._output not in ready:
                return ready
            if not self._print():
                # All nodes have ended, which their connections tell.
                return list(wait(connections))

    def _lost(self, rank: int) -> None:
        self._end()
        operation, cause = "running a function", f"the process of node {rank} has ended"
        remedy = "see its output above, and make another pool"
        error = make("PeerLostError", f"{operation}: {cause}; {remedy}", operation, cause, remedy)
        error.peer = rank  # type: ignore[attr-defined]
        raise error

    def _end(self) -> None:
        """Ends the nodes at once."""
        self._launcher.terminate()
        self.close()

    def close(self) -> None:
        """Ends the nodes, and waits for their processes. A second call does nothing."""
        for connection in self._connections:
            connection.close()
        self._connections = []
        if self._launcher.stdout is not None and not self._launcher.stdout.closed:
            while self._print():
                pass
            self._launcher.stdout.close()
        self._launcher.wait()
        self._folder.cleanup()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<oikaze.Pool of {self.size} nodes>"


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
    cause = "this process has joined none"
    raise invalid("finding the job", cause, "call oikaze.join first")


def _failed(operation: str, cause: str, remedy: str) -> Exception:
    return make("SystemCallError", f"{operation}: {cause}; {remedy}", operation, cause, remedy)


def _outcome(sent: bytes) -> bytes:
    """Calls a function, and returns its pickled outcome."""
    pickler = _pickler()
    try:
        function, arguments, keywords = pickle.loads(sent)
        outcome = pickler.dumps((True, function(*arguments, **keywords), ""))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised elsewhere
        trace = traceback.format_exc()
        try:
            outcome = pickler.dumps((False, error, trace))
            pickle.loads(outcome)
        except Exception:
            # The exception itself cannot be sent.
            outcome = pickle.dumps((False, RuntimeError(repr(error)), trace))
    return bytes(outcome)


def serve() -> None:
    """Runs functions on a node until the pool closes its connection."""
    from ._job import join

    key, place = bytes.fromhex(os.environ.pop(_KEY)), os.environ.pop(_PLACE)
    with join() as job, Client(place, "AF_UNIX", authkey=key) as connection:
        connection.send(job.rank)
        while True:
            try:
                sent = connection.recv_bytes()
            except (EOFError, OSError):
                return
            number, call = sent[: _NUMBER.size], sent[_NUMBER.size :]
            outcome = _outcome(call)
            sys.stdout.flush()
            connection.send_bytes(number + outcome)
