"""Interrupted waits, and ends of processes: by exit, by an abort, with threads that wait."""

import pytest

#: What a handler brings about while the main thread waits, and the call that waits for it.
BROUGHT = {
    "receive": ("me.send(b'x', tag=7).wait()", "job.receive(timeout=T).tag"),
    "receive of a source": ("me.send(b'x', tag=7).wait()", "job.receive(0, timeout=T).tag"),
    "probe": ("me.send(b'x', tag=7).wait()", "job.probe(timeout=T).tag"),
    "batch": (
        "[me.send(b'x', tag=tag).wait() for tag in (3, 4)]",
        "sum(message.tag for message in job.receive_batch(2, timeout=T)) or time_is_up()",
    ),
    "fifo": ("pushes.push(b'7')", "int(fifo.pop(timeout=T))"),
    "arrivals": ("there.put(0, b'x', notify=7).wait()", "job.arrivals().next(timeout=T).tag"),
    "arrivals of a region": (
        "there.put(0, b'x', notify=7).wait()",
        "inbox.arrivals().next(timeout=T).tag",
    ),
    "queue": (
        "sent = me.send(b'x'); sent.wait(); sent.report_to(queue, 7)",
        "queue.wait(timeout=T)[0][0]",
    ),
}

SETTING = """
    import os, signal, threading
    class Stop(Exception):
        pass
    def time_is_up():
        raise TimeoutError
    job = oikaze.join()
    me = job.peer(0)
    inbox = job.publish("inbox", 16, oikaze.Rights.ALL)
    there, fifo, queue = me.region("inbox"), job.fifo("fifo", 4, 8), job.completion_queue()
    pushes = me.fifo("fifo")
"""


@pytest.mark.parametrize(("bring", "wait"), BROUGHT.values(), ids=BROUGHT.keys())
def test_exception_of_a_handler_leaves_what_has_come_to_the_next_wait(alone, bring, wait):
    """MEM-19.4: the value comes while the handler runs inside the wait."""
    done = alone(
        SETTING
        + f"""
    def handler(*_):
        {bring}
        raise Stop
    signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        {wait.replace("T", "30")}
        print("not interrupted")
    except Stop:
        print({wait.replace("T", "0")})
    """
    )
    assert done.out == "7\n", done.out + done.err


@pytest.mark.parametrize(("bring", "wait"), BROUGHT.values(), ids=BROUGHT.keys())
def test_signal_just_before_the_value_takes_nothing(alone, bring, wait):
    """MEM-19.4: the handler has not run yet when the value comes."""
    done = alone(
        SETTING
        + f"""
    waits = threading.Event()
    def handler(*_):
        raise Stop
    signal.signal(signal.SIGUSR1, handler)
    def other():
        waits.wait()
        os.kill(os.getpid(), signal.SIGUSR1)
        {bring}
    thread = threading.Thread(target=other)
    thread.start()
    try:
        try:
            waits.set()
            {wait.replace("T", "30")}
            print("not interrupted")
        finally:
            # The value comes after the signal, whenever that has ended the wait.
            thread.join()
    except Stop:
        print({wait.replace("T", "0")})
    """
    )
    assert done.out == "7\n", done.out + done.err


def test_interrupted_wait_for_a_notification_takes_none(run):
    """MEM-19.4, COH-15.4: as above, from another node."""
    done = run(
        2,
        """
        import signal
        class Stop(Exception):
            pass
        job = oikaze.join()
        if job.rank == 0:
            def handler(*_):
                job.peer(1).send(b"notify")
                job.receive()
                raise Stop
            signal.signal(signal.SIGALRM, handler)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                job.wait_notify(1)
                print("not interrupted")
            except Stop:
                job.wait_notify(1, timeout=60)
                print("notified")
        else:
            job.receive()
            job.notify(0)
            job.peer(0).send(b"done").wait()
        job.barrier()
        """,
    )
    assert done.lines() == ["notified"], done.out + done.err


def test_handler_in_a_declaration_cannot_declare(run):
    """COH-2.1: the handler would wait for its own thread. The declaration goes on afterwards."""
    done = run(
        2,
        """
        import signal
        job = oikaze.join()
        # Lines that two signals in turn have interrupted.
        last = None
        def handler(_signal, frame):
            global last
            now = (id(frame), frame.f_lasti)
            is_waiting = frame.f_code.co_name == "make" and now == last
            last = now
            if is_waiting:
                signal.setitimer(signal.ITIMER_REAL, 0)
                try:
                    job.guarded_array("inner", 8)
                except oikaze.InvalidError as error:
                    print("own call" in str(error) and '"outer"' in str(error))
                job.peer(1).send(b"come").wait()
        if job.rank == 0:
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        else:
            job.receive()
        print(job.guarded_array("outer", 8).shape)
        print(job.guarded_array("inner", 8).shape)
        job.barrier()
        """,
        OIKAZE_TIMEOUT="60000",
    )
    assert done.lines() == ["(8,)"] * 4 + ["True"], done.out + done.err


def test_interrupted_wait_for_a_lock_holds_none(run):
    """MEM-19.4: the lock goes to the next node that asks."""
    done = run(
        2,
        """
        import signal
        class Stop(Exception):
            pass
        job = oikaze.join()
        lock = job.lock("mine")
        if job.rank == 1:
            lock.acquire()
        job.barrier()
        if job.rank == 0:
            def handler(*_):
                job.peer(1).send(b"release")
                job.receive()
                raise Stop
            signal.signal(signal.SIGALRM, handler)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                lock.acquire()
                print("not interrupted")
            except Stop:
                print("held" if lock.held else "free")
        else:
            job.receive()
            lock.release()
            job.peer(0).send(b"released").wait()
        job.barrier()
        with job.lock("mine"):
            print("taken")
        """,
    )
    assert done.lines() == ["free", "taken", "taken"], done.out + done.err


def test_cancelled_task_takes_nothing(alone):
    """A task is cancelled in the round of the loop in which its value has come."""
    done = alone(
        """
        import asyncio
        job = oikaze.join()
        inbox = job.publish("inbox", 16, oikaze.Rights.ALL)
        me, there = job.peer(0), job.peer(0).region("inbox")

        async def cancelled(wait, bring):
            task = asyncio.create_task(wait())
            await asyncio.sleep(0)
            await bring()
            task.cancel()
            try:
                return await task
            except asyncio.CancelledError:
                return await wait()

        async def main():
            message = await cancelled(job.receive_async, lambda: me.send(b"x", tag=7))
            print(message.tag)
            arrivals = job.arrivals()
            arrival = await cancelled(arrivals.next_async, lambda: there.put(0, b"x", notify=8))
            print(arrival.tag)

        asyncio.run(main())
        """
    )
    assert done.out == "7\n8\n", done.out + done.err


#: Calls in which daemon threads are when the program ends.
WAITS = {
    "receive": "job.receive()",
    "receive again": "receive_for_ever()",
    "probe": "job.probe()",
    "batch": "job.receive_batch(3)",
    "fifo": "fifo.pop()",
    "push": "full.push(bytes(8))",
    "word": "word.wait_until(0, equal=1)",
    "word by function": "word.wait_until(0, lambda value: value == 1)",
    "arrivals": "job.arrivals().next()",
    "queue": "queue.wait()",
    "operation": "job.post_receive(bytearray(8)).wait()",
    "function of a result": "job.peer(0).send(b'x').then(sleep).wait()",
    "function that goes on": "job.peer(0).send(b'x').then(go_on).wait()",
    "batch of posts": "job.batch(sleep)",
    "lock": "job.lock(1).acquire()",
    "join again": "join_again()",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_daemon_threads_in_calls_let_the_program_end(run, wait):
    """The interpreter ends while threads are in the library, or come back from it."""
    source = f"""
        import threading, time
        job = oikaze.join()
        word, fifo, queue = job.register(8), job.fifo("empty", 4, 8), job.completion_queue()
        owned = job.fifo("full", 1, 8)
        full = job.peer(0).fifo("full")
        full.push(bytes(8))  # The FIFO has one slot.
        job.lock(1).acquire() if "lock" in {wait!r} else None
        def sleep(*_):
            begun.release()
            time.sleep(1000)
        def go_on(*_):
            while True:
                pass
        def receive_for_ever():
            while True:
                try:
                    job.receive(timeout=0.0001)
                except oikaze.TimeoutError:
                    pass
        def join_again():
            try:
                oikaze.join()
            except oikaze.Error:
                job.receive()
        begun = threading.Semaphore(0)
        def call():
            if "sleep" not in {wait!r}:
                begun.release()
            try:
                {wait}
            except oikaze.LeftError:
                pass
        for _ in range(8):
            threading.Thread(target=call, daemon=True).start()
        for _ in range(8):
            begun.acquire()
    """
    for _ in range(2):
        done = run(1, source)
        assert "Fatal" not in done.err and "panicked" not in done.err, done.err


#: Ends of a program, and the status of each.
EXITS = {
    "from sys import exit; exit(3)": 3,
    "import sys; sys.exit(3)": 3,
    "raise SystemExit(3)": 3,
    "class Mine(SystemExit): pass\n    raise Mine(3)": 3,
    "import builtins; builtins.exit(3)": 3,
    "quit(3)": 3,
    "import sys; sys.exit('no input')": 1,
    "exit(True)": 1,
    "exit(-1)": 255,
    "import os; os._exit(3)": 3,
    "error = SystemExit(); error.code = 3; raise error": 3,
}


@pytest.mark.parametrize(("end", "status"), EXITS.items(), ids=EXITS.keys())
def test_status_of_exit_is_that_of_the_job_however_it_is_named(run, end, status):
    """The other node waits, and would end with status 1 if this one seemed to leave."""
    done = run(
        2,
        f"""
from sys import exit as early
job = oikaze.join()
job.barrier()
if job.rank == 1:
    {end}
job.barrier()
""",
        succeeds=False,
    )
    assert done.status == status, done.out + done.err


def test_exit_named_before_oikaze_was_imported_has_its_status(run, tmp_path):
    (tmp_path / "early.py").write_text("from sys import exit\n")
    done = run(
        2,
        """
        import importlib, sys
        from early import exit
        job = oikaze.join()
        job.barrier()
        if job.rank == 1:
            exit(3)
        job.barrier()
        """,
        succeeds=False,
    )
    assert done.status == 3, done.out + done.err


def test_exits_that_do_not_end_the_process_end_no_job(run):
    done = run(
        2,
        """
        import contextlib, sys, threading
        job = oikaze.join()
        with contextlib.suppress(SystemExit):
            sys.exit(3)
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
        error = SystemExit(4)
        assert error.code == 4 and SystemExit().code is None and SystemExit(1, 2).code == (1, 2)
        error.code = 5
        assert error.code == 5 and type(error) is SystemExit
        job.barrier()
        sys.exit(0 if job.rank else None)
        """,
    )
    assert done.status == 0


def test_node_that_never_leaves_fails_the_job(run):
    """LAUNCH-3.4: the other node catches the loss, and ends well."""
    done = run(
        2,
        """
        import os, sys
        job = oikaze.join()
        if job.rank == 1:
            END
        try:
            job.barrier()
        except oikaze.PeerLostError as error:
            print("caught", error.peer)
        """.replace("END", "os._exit(0)"),
        succeeds=False,
    )
    assert done.lines() == ["caught 1"] and done.status == 1, done.out + done.err
    assert "node 1 ended with status 0 without leaving the job" in done.err, done.err


@pytest.mark.parametrize("status", [1, 3])
def test_abort_does_not_return_and_has_a_status(run, status):
    """END-3.1, LAUNCH-3.1."""
    done = run(
        2,
        f"""
        job = oikaze.join()
        # Rank 0 may learn of the end in either barrier.
        try:
            job.barrier()
            if job.rank == 1:
                print("before", end="")
                job.abort("the input is broken", {status})
                print("after")
            job.barrier()
        except oikaze.AbortedError as error:
            assert "the input is broken" in str(error)
            print("aborted")
        """,
        "--no-prefix",
        succeeds=False,
    )
    assert done.status == status, done.out + done.err
    assert "node 1 aborted the job: the input is broken" in done.err
    assert "aborted" in done.out and "before" in done.out and "after" not in done.out


def test_abort_has_status_1_by_default_and_no_other_than_a_failure(alone):
    done = alone(
        """
        job = oikaze.join()
        for status in (0, 256, -1):
            try:
                job.abort("no", status)
            except ValueError as error:
                assert "1 to 255" in str(error)
        job.abort("enough")
        """,
        succeeds=False,
    )
    assert done.status == 1, done.err


LEAVING = """
    import pathlib, signal, sys, time
    class Stop(Exception):
        pass
    def handler(*_):
        raise Stop
    job = oikaze.join()
    stopped = pathlib.Path("stopped")
    signal.signal(signal.SIGALRM, handler)
    job.barrier()
    if job.rank == 1:
        while not stopped.exists():
            time.sleep(0.01)
        sys.exit()
"""


def test_interrupted_leave_is_repeated_and_completes(run):
    """MEM-19.4: the process has not left after the exception of a handler."""
    done = run(
        2,
        LEAVING
        + """
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        job.leave()
    except Stop:
        print(job.has_left)
    stopped.touch()
    job.leave()
    print(job.has_left)
    """,
    )
    assert done.lines() == ["False", "True"], done.out + done.err


@pytest.mark.parametrize("options", [[], ["--keep-going"]])
def test_interrupted_leave_at_exit_fails_the_job(run, options):
    """LAUNCH-3.4: a node that ends without leaving has failed."""
    done = run(
        2,
        LEAVING
        + """
    import atexit
    # Functions of atexit run in the opposite order: this one runs after the automatic leave.
    def touch():
        stopped.touch()
    atexit.unregister(oikaze._ending._leave_all)
    atexit.register(touch)
    atexit.register(oikaze._ending._leave_all)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    """,
        *options,
        succeeds=False,
    )
    assert done.status == 1, done.out + done.err
    assert "Stop" in done.err
