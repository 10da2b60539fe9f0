"""Jobs: joining, waiting, leaving, and ends of all kinds."""

import os
import signal
import subprocess
import sys

from conftest import COMMAND, HANG, environment


def test_two_nodes_meet_and_exchange(run):
    done = run(
        2,
        """
        with oikaze.join() as job:
            assert job.size == 2
            other = job.peer(1 - job.rank)
            sent = other.send(b"hello", tag=7)
            message = job.receive(source=1 - job.rank)
            sent.wait()
            inbox = job.publish("inbox", 8192, oikaze.Rights.ALL)
            there = other.region("inbox")
            there.put(16, b"written from afar").wait()
            job.barrier()
            assert inbox.read(16, 17) == there.get(16, 17).wait() == b"written from afar"
            print(job.rank, message.source, message.tag, message.data.decode())
            job.barrier()
        """,
    )
    assert done.lines() == ["0 1 7 hello", "1 0 7 hello"]


def test_processes_of_the_program_meet_by_its_own_exchange(alone):
    alone(
        """
        import multiprocessing

        context = multiprocessing.get_context("fork")

        def node(rank, told, all_here):
            def gather(mine):
                told[rank] = mine
                all_here.wait()
                return list(told)

            with oikaze.join(rank=rank, size=2, gather=gather) as job:
                assert (job.rank, job.size) == (rank, 2)
                shared = job.array("sums", 8)
                shared[rank] = 5
                job.barrier()
                assert shared[:2].sum() == 10

        with context.Manager() as manager:
            told, all_here = manager.list([b"", b""]), manager.Barrier(2, timeout=60)
            nodes = [context.Process(target=node, args=(rank, told, all_here)) for rank in (0, 1)]
            [one.start() for one in nodes]
            [one.join() for one in nodes]
            assert [one.exitcode for one in nodes] == [0, 0]
        """
    )


def test_own_exchange_that_fails_is_named(alone):
    alone(
        """
        def fails(_):
            raise RuntimeError("actor died")

        for settings, text in [
            ({"rank": 0, "size": 2, "gather": fails}, "actor died"),
            ({"rank": 0, "size": 2, "gather": lambda _: [b""]}, "1 processes of 2"),
            ({"rank": 0, "size": 2, "gather": lambda _: 5}, "object"),
            ({"rank": 2, "size": 2, "gather": fails}, "no process 2 of 2"),
        ]:
            try:
                oikaze.join(**settings)
            except oikaze.JoinError as error:
                assert text in str(error), error
            else:
                raise AssertionError(settings)
        try:
            oikaze.join(rank=0)
        except TypeError as error:
            assert "given together" in str(error)
        else:
            raise AssertionError("joined by a rank alone")
        assert oikaze.join(rank=0, size=1, gather=fails).size == 1
        """
    )


def test_settings_are_checked(alone):
    alone(
        """
        for settings, text in [
            ({"time_limit": 0}, "time limit is zero"),
            ({"time_limit": -1.0}, "time_limit=-1"),
            ({"waiting": "sleep"}, "waiting"),
            ({"seal": "wax"}, "is not a seal"),
            ({"engine": "none"}, "expected inline, thread"),
            ({"engine": "thread:0,1000"}, "this machine has no core 1000"),
            ({"engine": "process:io@0", "engine_core": 0}, "give cores as in"),
            ({"engine_priority": "high"}, "expected fifo"),
            ({"ports": (5, 4)}, "are not ports"),
            ({"flows": 17}, "flows=17: no such number of flows; write auto or a number from 1"),
            ({"flows": "many"}, "flows=many: no such number of flows"),
            ({"without": "everything"}, "everything"),
        ]:
            try:
                oikaze.join(**settings)
            except ValueError as error:
                assert text in str(error), error
            else:
                raise AssertionError(settings)
        job = oikaze.join(
            time_limit=2.5, failure_time=10, explain_after=0, keep_going=True, waiting="block",
            engine="inline", ports=(20000, 60000), seal="integrity",
            cubic_congestion_control=True, flows="auto", without="xdp" if False else "",
        )
        assert job.time_limit == 2.5 and job.keeps_going
        """
    )


def test_engine_is_set_in_the_words_of_its_variable(alone):
    source = """
        import os
        job = oikaze.join(engine=ENGINE, engine_priority="nice:5")
        job.barrier()
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/status") as file:
                    fields = dict(line.split(":", 1) for line in file)
                nice = os.getpriority(os.PRIO_PROCESS, int(task))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            print(fields["Name"].strip(), fields["Cpus_allowed_list"].strip(), nice)
    """
    for engine in ("thread:0", f"process:python-{os.getpid()}@0"):
        done = alone(source.replace("ENGINE", repr(engine)), OIKAZE_COMMAND=COMMAND)
        assert "oikaze 0 5" in done.lines(), done.out + done.err


def test_observations(alone):
    alone(
        """
        job = oikaze.join()
        before = job.statistics()["barriers"]
        job.barrier()
        assert job.statistics()["barriers"] == before + 1
        assert job.lost == [] and job.refused_accesses() == [] and job.page_tracking
        assert not job.has_left and "node 0 of 1" in repr(job)
        job.fence()
        job.flush()
        """
    )


def test_time_limits_end_waits(alone):
    alone(
        """
        import builtins
        job = oikaze.join()
        inbox = job.publish("inbox", 64, oikaze.Rights.ATOMIC)
        fifo = job.fifo("fifo", 2, 8)
        for call in [
            lambda: job.receive(timeout=0.01),
            lambda: inbox.wait_until(0, at_least=1, timeout=0.01),
            lambda: fifo.pop(timeout=0.01),
            lambda: job.completion_queue().wait(timeout=0.01),
            lambda: job.peer(0).region("missing", timeout=0.01),
        ]:
            try:
                call()
            except oikaze.Error as error:
                assert isinstance(error, builtins.TimeoutError) or "missing" in str(error), error
                assert error.cause and str(error)
            else:
                raise AssertionError(call)
        assert job.receive_batch(3, timeout=0.01) == []
        for bad in (-1, float("nan")):
            try:
                job.receive(timeout=bad)
            except ValueError as error:
                assert "timeout" in str(error)
            else:
                raise AssertionError(bad)
        """
    )


def test_use_after_leave_is_an_exception(alone):
    alone(
        """
        job = oikaze.join()
        inbox = job.publish("inbox", 64, oikaze.Rights.ALL)
        me = job.peer(0)
        there, lock = me.region("inbox"), job.lock(1)
        view = memoryview(inbox)
        job.leave()
        job.leave()
        assert job.has_left and job.rank == 0 and job.size == 1
        for call in [
            job.barrier, job.statistics, lambda: job.peer(0), lambda: me.send(b""),
            lambda: there.put(0, b"x"), lambda: there.get(0, 1), lambda: there.fetch_add(0, 1),
            lambda: job.receive(), lambda: lock.acquire(), lambda: me.region("inbox"),
            lambda: job.publish("other", 64, 0), job.flush, job.completion_queue,
        ]:
            try:
                call()
            except oikaze.LeftError as error:
                assert "left" in error.cause and error.remedy
            else:
                raise AssertionError(call)
        view[0] = 1
        """
    )


def test_lost_peer_is_named(run):
    done = run(
        2,
        """
        import os
        job = oikaze.join(keep_going=True)
        # Rank 0 may learn of the death in the barrier.
        try:
            job.barrier()
            if job.rank == 1:
                os._exit(7)
            job.receive(source=1)
        except oikaze.PeerLostError as error:
            assert error.peer == 1 and error.operation and isinstance(error, ConnectionError)
            print("lost", error.peer, job.lost)
        """,
        "--keep-going",
        succeeds=False,
    )
    assert "lost 1 [1]" in done.out, done.out + done.err


def test_exception_on_one_rank_is_printed_and_ends_the_job(run):
    done = run(
        2,
        """
        job = oikaze.join()
        job.barrier()
        if job.rank == 1:
            raise ArithmeticError("the iteration diverges")
        job.receive()
        """,
        succeeds=False,
    )
    assert done.status != 0
    # The node prints before it ends the others. The launcher reads the nodes' outputs in any order.
    assert 'raise ArithmeticError("the iteration diverges")' in done.err, done.err
    assert "AbortedError" in done.err, done.err
    assert "program.py, line" in done.err


def test_keyboard_interrupt_ends_a_wait(tmp_path):
    program = tmp_path / "wait.py"
    program.write_text(
        "import oikaze, signal, sys\n"
        # A shell that runs the tests in the background has them ignore the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "job = oikaze.join()\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        "    job.receive() if sys.argv[1] == 'receive' else job.register(8).wait_until(0, equal=1)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "    sys.exit(3)\n"
    )
    for what in ("receive", "word"):
        waiting = subprocess.Popen(
            [sys.executable, str(program), what],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert waiting.stdout.readline() == "waiting\n"
        waiting.send_signal(signal.SIGINT)
        out, _ = waiting.communicate(timeout=HANG)
        assert (out, waiting.returncode) == ("interrupted\n", 3)


def test_other_threads_run_while_one_waits(alone):
    alone(
        """
        import threading
        job = oikaze.join()
        received = []
        thread = threading.Thread(target=lambda: received.append(job.receive().data))
        thread.start()
        job.peer(0).send(b"from the main thread").wait()
        thread.join()
        assert received == [b"from the main thread"]
        """
    )


def test_leave_ends_calls_of_other_threads(alone):
    done = alone(
        """
        import threading
        job = oikaze.join()
        begun = threading.Event()
        def wait():
            begun.set()
            try:
                job.receive()
            except oikaze.LeftError:
                print("left")
        thread = threading.Thread(target=wait)
        thread.start()
        begun.wait()
        job.leave()
        thread.join()
        """
    )
    assert done.lines() == ["left"]


def test_fork_is_refused_with_advice(alone):
    alone(
        """
        import multiprocessing, os
        if os.fork() == 0:  # before the job: allowed
            os._exit(0)
        os.wait()
        job = oikaze.join()
        for fork in [
            os.fork,
            lambda: multiprocessing.get_context("fork").Process(target=print).start(),
        ]:
            try:
                fork()
            except oikaze.ForkedError as error:
                assert "spawn" in error.remedy and "node 0" in error.cause
            else:
                raise AssertionError("forked")
        import subprocess
        assert subprocess.run(["true"]).returncode == 0
        job.leave()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        """
    )


def test_a_second_interpreter_is_refused(alone):
    if sys.version_info >= (3, 13):
        module = "_interpreters"
    else:
        module = "_xxsubinterpreters"
    done = alone(
        f"""
        import {module} as interpreters
        one = interpreters.create()
        try:
            failed = interpreters.run_string(one, "import oikaze")
            assert "ImportError" in repr(failed)
        except interpreters.RunFailedError as error:
            assert "ImportError" in str(error), error
        print("refused")
        """
    )
    assert done.out == "refused\n"


def test_keyboard_interrupt_ends_a_join(run, tmp_path):
    os.mkfifo(tmp_path / "joining")
    done = run(
        2,
        """
        import os, signal, time
        if os.environ["OIKAZE_RANK"] == "1":
            open("joining").close()  # node 0 waits for this node
            raise SystemExit
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        begun = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            oikaze.join()
        except KeyboardInterrupt:
            # Other nodes are waited for for 30 s.
            assert time.monotonic() - begun < 15
            print("interrupted", flush=True)
        open("joining", "w").close()
        """,
        succeeds=False,
    )
    assert "interrupted" in done.out, done.out + done.err


def test_numbers_out_of_range_are_errors_of_the_package(alone):
    alone(
        """
        import numpy as np
        job = oikaze.join()
        inbox = job.publish("inbox", np.int64(8192), oikaze.Rights.ALL)
        there = job.peer(0).region("inbox")
        array = job.array("a", 8, "i8")
        for call in [
            lambda: job.peer(-1), lambda: job.peer(1 << 40), lambda: job.receive(source=-1),
            lambda: job.try_receive(-1), lambda: job.publish("other", -1, 0),
            lambda: there.put(-1, b"x"), lambda: there.get(-1, 4), lambda: there.get(0, -4),
            lambda: there.get_into(-8, bytearray(8)), lambda: there.fetch_add(-8, 1),
            lambda: there.fetch_add(0, 1 << 200), lambda: there.signal(-8),
            lambda: inbox.read(-1, 4), lambda: inbox.load(-8), lambda: inbox.store(0, -1),
            lambda: inbox.wait_until(0, at_least=-1), lambda: job.lock(-1).acquire(),
            lambda: job.fifo("f", -1, 8), lambda: job.peer(0).send(b"x", tag=-1),
            lambda: job.notify(-1), lambda: job.broadcast(1, root=-1),
            lambda: job.split(-1), lambda: job.split(1 << 40), lambda: job.split(0, 1 << 80),
            lambda: job.array("b", -1), lambda: job.array("b", (4, -1)),
            lambda: oikaze.Distribution.cyclic(-1), lambda: oikaze.Distribution.explicit([0, -1]),
            lambda: array.home(-1), lambda: array.fetch_add(-9, 1),
            lambda: array.shared.get_elements(-1, 4), lambda: array.fetch_add((0, 0), 1),
            lambda: oikaze.join(engine_core=-1), lambda: oikaze.join(ports=(-1, 70000)),
        ]:
            try:
                call()
            except oikaze.Error as error:
                assert error.cause, error
            else:
                import inspect
                raise AssertionError(inspect.getsource(call))
        assert array.fetch_add(-1, 5) == 0 and array[7] == 5
        assert array.shared.home_of(-1) == 0 and array.shared.home_of(8) is None
        # An array of one integer without axes is memory, not a length.
        number = np.array(300, "i8")
        published = job.publish("number", number, oikaze.Rights.ALL)
        word = job.peer(0).region("number")
        assert len(word) == 8
        word.fetch_add(0, 7).wait()
        assert number == 307
        """
    )


def test_exit_status_of_one_rank_ends_the_job(run):
    source = """
        import sys
        job = oikaze.join()
        try:
            sys.exit(5)  # caught: the program goes on
        except SystemExit as error:
            assert error.code == 5
        job.barrier()
        if job.rank == 1:
            sys.exit(STATUS)
        if STATUS:
            job.receive()
    """
    failed = run(2, source.replace("STATUS", "3"), succeeds=False)
    assert failed.status == 3, failed.err
    assert "SystemExit: 3" in failed.err
    told = run(2, source.replace("STATUS", "'no input'"), succeeds=False)
    assert told.status == 1 and "no input" in told.err
    assert run(2, source.replace("STATUS", "0")).status == 0
    block = """
        with oikaze.join() as job:
            job.barrier()
            if job.rank == 1:
                raise SystemExit(4)
            job.receive()
    """
    assert run(2, block, succeeds=False).status == 4


def test_exit_status_of_one_rank_leaves_survivors_alone(run):
    done = run(
        2,
        """
        import sys
        job = oikaze.join(keep_going=True)
        # Rank 0 may learn of the end in the barrier.
        try:
            job.barrier()
            if job.rank == 1:
                sys.exit(3)
            job.receive(source=1)
        except oikaze.PeerLostError:
            print("survived")
        """,
        "--keep-going",
        succeeds=False,
    )
    assert done.lines() == ["survived"] and done.status == 3, done.out + done.err


def test_loss_of_a_stopped_node_has_a_cause(run):
    done = run(
        2,
        """
        import os, signal
        job = oikaze.join(keep_going=True, failure_time=1)
        other = job.all_gather(os.getpid())[1]
        job.barrier()
        if job.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        for call in (job.barrier, lambda: job.receive(source=1), lambda: job.all_reduce(1)):
            try:
                call()
            except oikaze.PeerLostError as error:
                assert error.peer == 1 and error.operation, error
                assert "nothing was heard" in error.cause, error
                assert "failure_time" in error.remedy.lower(), error
        print("told")
        os.kill(other, signal.SIGKILL)
        """,
        "--keep-going",
        succeeds=False,
    )
    assert "told" in done.out, done.out + done.err
