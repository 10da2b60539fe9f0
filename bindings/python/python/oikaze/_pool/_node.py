"""Program of a node that `oikaze.local` starts: it runs functions until its pool closes.

A thread reads what the pool sends. So a function can be interrupted while it runs, and the node
ends when the process of the pool does.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np

from . import _calls
from .._array import Array, SharedArray, view_of
from .._errors import AbortedError, Error, invalid
from .._job import Job, join

#: Time limit in seconds for the other nodes to come in step.
ALIGN_TIME = 10.0
#: Time limit in seconds for operations and messages of a call that failed.
FLUSH_TIME = 1.0


class _NodeJob(Job):
    """Job of a node of a pool.

    Names that an earlier call of the pool has given to an array, a region or a FIFO may be given
    again: a notebook's cell runs more than once. What the program still holds is given back then,
    if it is declared alike.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._call = 0
        #: Whether functions of a pool run, none of which may leave.
        self.is_served = False
        #: Arrays that all nodes held after the previous call.
        self._kept: frozenset[str] = frozenset()
        self._arrays: dict[str, tuple[int, str, weakref.ref[SharedArray]]] = {}
        self._others: dict[tuple[str, str], tuple[int, str, weakref.ref[Any]]] = {}

    def leave(self) -> None:
        if self.is_served:
            cause = "this process is a node of a pool, which leaves when the pool closes"
            raise invalid("leaving the job", cause, "call pool.close() in the program of the pool")
        super().leave()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # An exception is one of the call, also `SystemExit`, and ends no job.
        if not self.is_served or kind is None:
            super().__exit__(kind, error, trace)

    def begin_call(self, number: int, kept: frozenset[str]) -> None:
        """Notes that a call begins."""
        self._call, self._kept = number, kept

    def end_call(self) -> dict[str, str]:
        """Frees what the call has dropped. Returns what is held, and how it was declared."""
        if self._arrays or self._others:
            # Objects that refer to each other stay until they are collected.
            gc.collect()
        self._others = {key: made for key, made in self._others.items() if made[2]() is not None}
        arrays = ((made[2](), name, made) for name, made in self._arrays.items())
        self._arrays = {
            name: made for array, name, made in arrays if array is not None and not array._is_freed
        }
        return {name: declared for name, (_, declared, _) in self._arrays.items()}

    def array(self, name: str, shape: Any, dtype: Any = "f8", **settings: Any) -> Array:
        made = self._again(name, shape, dtype, settings)
        if made is not None:
            return view_of(made)
        array = super().array(name, shape, dtype, **settings)
        self._note(array.shared, shape, dtype, settings)
        return array

    def guarded_array(
        self, name: str, shape: Any, dtype: Any = "f8", **settings: Any
    ) -> SharedArray:
        declared = {**settings, "guarded": True}
        made = self._again(name, shape, dtype, declared)
        if made is not None:
            return made
        array = super().guarded_array(name, shape, dtype, **settings)
        self._note(array, shape, dtype, declared)
        return array

    def publish(self, name: str, memory: Any, rights: Any) -> Any:
        if not isinstance(memory, int):
            return super().publish(name, memory, rights)
        return self._local("region", name, (memory, rights), super().publish)

    def fifo(self, name: str, slots: int, longest: int) -> Any:
        return self._local("FIFO", name, (slots, longest), super().fifo)

    def _note(self, array: SharedArray, shape: Any, dtype: Any, settings: Any) -> None:
        declared = _declaration(shape, dtype, settings)
        self._arrays[array.name] = (self._call, declared, weakref.ref(array))

    def _again(self, name: str, shape: Any, dtype: Any, settings: Any) -> SharedArray | None:
        """Returns the array of an earlier call that has this name on all nodes."""
        call, declared, made = self._arrays.get(name, (self._call, "", None))
        array = made() if made is not None else None
        if array is None or array._is_freed or call == self._call or name not in self._kept:
            return None
        # The shape may have changed meanwhile.
        if declared == _declaration(shape, dtype, settings) and array.shape == _extents(shape):
            return array
        kept = f"{array.dtype} of shape {array.shape}"
        cause = f"an earlier call keeps the array of this name, {kept}{_holders(array)}"
        remedy = "free it on all nodes (array.free(), or del), or take another name"
        self._refuse_array("make an array", f"{cause}; {remedy}")
        raise invalid(f"making array {name!r}", cause, remedy)

    def _local(self, kind: str, name: str, arguments: tuple[Any, ...], make: Any) -> Any:
        """Returns what an earlier call has made under this name on this node, or makes it."""
        declared = repr(arguments)
        call, before, made = self._others.get((kind, name), (self._call, "", None))
        held = made() if made is not None else None
        if held is not None and call != self._call and not getattr(held, "closed", False):
            if declared == before:
                return held
            cause = f"an earlier call keeps the {kind} of this name, {before}{_holders(held)}"
            raise invalid(f"making {kind} {name!r}", cause, "del that name first, or take another")
        held = make(name, *arguments)
        self._others[kind, name] = (self._call, declared, weakref.ref(held))
        return held


def _declaration(shape: Any, dtype: Any, settings: dict[str, Any]) -> str:
    given = {name: value for name, value in settings.items() if value not in (None, False)}
    more = f", {given}" if given else ""
    return f"{np.dtype(dtype)} of shape {_extents(shape)}{more}"


def _extents(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, tuple | list) else (shape,)


def _holders(held: Any) -> str:
    """Returns in words which global names hold an object."""
    names = [
        name
        for name, value in sys.modules["__main__"].__dict__.items()
        if value is held or (isinstance(value, Array) and value.__dict__.get("shared") is held)
    ]
    return f", as {', '.join(names)}" if names else ""


class _Server:
    """Runs the functions of a pool in the main thread, while another thread reads."""

    def __init__(self, link: socket.socket, job: _NodeJob) -> None:
        self._link, self._job = link, job
        self._link_stat = os.fstat(link.fileno())
        self._frames: queue.SimpleQueue[tuple[int, int, bytes] | None] = queue.SimpleQueue()
        #: Call whose function runs, and call that is to be interrupted.
        self._running: int | None = None
        self._interrupted: int | None = None
        signal.signal(signal.SIGINT, self._on_signal)

    def serve(self) -> None:
        """Runs functions until the pool closes."""
        threading.Thread(target=self._read, name="oikaze-pool", daemon=True).start()
        self._send(_calls.READY, 0, b"")
        while (received := self._frames.get()) is not None:
            kind, number, body = received
            if kind == _calls.CALL:
                self._send(_calls.OUTCOME, number, pickle.dumps(self._run(number, body)))
            elif kind in (_calls.ALIGN, _calls.CLEAR):
                self._send(_calls.REPAIRED, number, self._repair(kind, body).encode())

    def _read(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, number, length = _calls.HEAD.unpack(self._receive(_calls.HEAD.size))
                body = bytes(self._receive(length))
                if kind == _calls.INTERRUPT:
                    self._interrupt(number)
                else:
                    self._frames.put((kind, number, body))
        self._frames.put(None)
        self._interrupt(self._running)

    def _receive(self, length: int) -> bytearray:
        received = bytearray(length)
        rest = memoryview(received)
        while rest:
            count = self._link.recv_into(rest)
            if count == 0:
                raise EOFError
            rest = rest[count:]
        return received

    def _send(self, kind: int, number: int, body: bytes) -> None:
        # A pool that is gone is noticed by the reader.
        with contextlib.suppress(OSError):
            for part in _calls.frame(kind, number, body):
                self._link.sendall(part)

    def _interrupt(self, number: int | None) -> None:
        self._interrupted = number
        # To the thread, so that it leaves system calls such as those of `time.sleep`.
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)

    def _on_signal(self, _number: int, _frame: types.FrameType | None) -> None:
        if self._running is not None and self._running == self._interrupted:
            raise KeyboardInterrupt

    def _run(self, number: int, body: bytes) -> _calls.Outcome:
        """Calls a function of the pool."""
        # The program may have changed it.
        signal.signal(signal.SIGINT, self._on_signal)
        outcome = self._outcome(number, body)
        self._check_link()
        outcome.kept = self._job.end_call()
        # A function may have left the job.
        with contextlib.suppress(Error):
            outcome.counts = self._job._call_counts()
            outcome.lost = self._job.lost
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        return outcome

    def _check_link(self) -> None:
        """Ends this process if a function has closed the socket to the pool."""
        try:
            if os.path.samestat(os.fstat(self._link.fileno()), self._link_stat):
                return
        except OSError:
            pass
        # The thread that reads keeps the socket open, and the pool would wait for ever.
        why = "the function has closed descriptors of this process, the one of the pool among them"
        with contextlib.suppress(Exception):
            print(f"oikaze: node {self._job.rank}: {why}", file=sys.stderr, flush=True)
        os._exit(1)

    def _outcome(self, number: int, body: bytes) -> _calls.Outcome:
        try:
            try:
                self._running = number
                end = 8 + int.from_bytes(body[:8], "little")
                self._job.begin_call(number, pickle.loads(body[8:end]))
                function, arguments, keywords = pickle.loads(memoryview(body)[end:])
                value = function(*arguments, **keywords)
            finally:
                self._running = None
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised elsewhere
            self._running = None
            # The frame of this call says nothing to the program.
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                error.__traceback__ = error.__traceback__.tb_next
            is_asked = isinstance(error, KeyboardInterrupt) and self._interrupted == number
            outcome = _calls.outcome_of_error(error, "interrupted" if is_asked else "error")
            outcome.has_ended_job = isinstance(error, AbortedError)
            return outcome
        return _calls.outcome_of_value(value)

    def _repair(self, step: int, body: bytes) -> str:
        """Does a step of the repair of the job. Returns why it failed, or an empty text."""
        job = self._job
        try:
            if step == _calls.ALIGN:
                why = "an earlier call of the pool has failed"
                job._catch_up(pickle.loads(body), why, ALIGN_TIME)
                # Messages arrive before they are discarded. Errors are those of that call.
                with contextlib.suppress(Error):
                    job.flush(timeout=FLUSH_TIME)
            else:
                while job.try_receive() is not None:
                    pass
        except Exception as error:  # noqa: BLE001 - the pool says it
            return str(error) or type(error).__name__
        return ""


def main() -> None:
    """Joins the job, and serves the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link, theirs = socket.socketpair()
    output, written = os.pipe()
    with socket.socket(fileno=int(os.environ.pop(_calls.DESCRIPTOR))) as meeting, theirs:
        rank = os.environ["OIKAZE_RANK"].encode()
        socket.send_fds(meeting, [rank], [theirs.fileno(), output])
    os.close(output)
    # Both in one pipe, so that the order of the output is kept.
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    job = _NodeJob(**(join.__kwdefaults__ or {}))
    # Functions of the pool get a module of their own for global names.
    main_of_pool = types.ModuleType("__main__")
    main_of_pool.__dict__["__builtins__"] = builtins
    main_of_node, sys.modules["__main__"] = sys.modules["__main__"], main_of_pool
    job.is_served = True
    _Server(link, job).serve()
    job.is_served = False
    sys.modules["__main__"] = main_of_node
    # Errors of functions were errors of their calls.
    with contextlib.suppress(Error):
        job.leave()


if __name__ == "__main__":
    main()
