"""Functions in new processes, and the command."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conftest import COMMAND, HANG, environment

NOTEBOOK = Path(__file__).parents[3] / "docs/book/src/local.ipynb"


@pytest.fixture
def program(alone):
    """Returns a function that runs a program, which may use pools."""

    def program(source, **more):
        return alone(PREAMBLE + textwrap.dedent(source), OIKAZE_COMMAND=COMMAND, **more)

    return program


#: Names that programs use.
PREAMBLE = """
import contextlib, io, os, sys, threading, time
import numpy as np
J = oikaze.current_job

def raised(kind, function, *arguments):
    # Returns the exception that the function raises.
    try:
        function(*arguments)
    except kind as error:
        return error
    raise AssertionError(f"{function} has raised nothing")

def works(pool):
    # All that the nodes do together works.
    def all_together():
        job = J()
        job.barrier()
        array = job.array("works", 10)
        array.shared.fill_all(3)
        job.barrier()
        total = array.sum()
        team = job.split(0)
        assert job.try_receive() is None
        return float(total), job.all_reduce(1), team.all_reduce(1), job.broadcast(job.rank)
    assert pool.run(all_together) == [(30.0, pool.size, pool.size, 0)] * pool.size

class On:
    # A standard output that calls a function as soon as a text is printed.
    def __init__(self, text, act):
        self.out, self.text, self.act = sys.stdout, text, act
    def write(self, text):
        self.out.write(text)
        if self.text in text:
            self.act()
    def flush(self):
        self.out.flush()

def interrupt():
    raise KeyboardInterrupt

"""


def test_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "oikaze", "run", "-n", "2", "--", "echo", "here"],
        capture_output=True,
        text=True,
        timeout=HANG,
        env=environment(OIKAZE_COMMAND=COMMAND),
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == ["[0] here", "[1] here"]
    missing = subprocess.run(
        [sys.executable, "-m", "oikaze"],
        capture_output=True,
        text=True,
        timeout=HANG,
        env=environment(OIKAZE_COMMAND="/nowhere/oikaze"),
        check=False,
    )
    assert missing.returncode == 1 and "OIKAZE_COMMAND" in missing.stderr


def test_functions_run_on_all_nodes(alone):
    done = alone(
        """
        import numpy as np
        def sums(factor, offset=0):
            job = oikaze.current_job()
            array = job.array(f"sums {factor}", 300, distribution=oikaze.Distribution.block())
            lo, hi = array.home()
            array[lo:hi] = job.rank
            job.barrier()
            print(f"node {job.rank} computes")
            return job.rank, factor * float(array.sum()) + offset
        with oikaze.local(3) as pool:
            assert pool.size == 3 and "3" in repr(pool)
            assert pool.run(sums, 2) == [(rank, 600.0) for rank in range(3)]
            assert pool.run(sums, 3, offset=1) == [(rank, 901.0) for rank in range(3)]
            assert pool.run(lambda: np.arange(3) + oikaze.current_job().rank)[2].tolist() == [2, 3, 4]
        pool.close()
        try:
            pool.run(sums, 1)
        except oikaze.InvalidError as error:
            assert "closed" in error.cause
        """,
        OIKAZE_COMMAND=COMMAND,
    )
    assert done.out.count("computes") == 6, done.out


def test_exception_on_one_rank_leaves_the_pool_and_its_state(program):
    program(
        """
        waits = {
            "receive": lambda: J().receive(),
            "barrier": lambda: J().barrier(),
            "barriers": lambda: [J().barrier() for _ in range(3)],
            "all_reduce": lambda: J().all_reduce(1),
            "broadcast": lambda: (J().broadcast(1), J().receive()),
            "array": lambda: J().array("not on all", 100),
            "split": lambda: J().split(1),
            "lock": lambda: [J().lock("mine").__enter__(), J().receive()],
            "sleep": lambda: time.sleep(1000),
            "loop": lambda: spin(),
            "messages": lambda: ([J().peer(n).send(b"old").wait() for n in (1, 2)], J().receive()),
        }

        def spin():
            while True:
                pass

        def fails(wait):
            if J().rank == 1:
                raise KeyError("what is missing")
            wait()

        def stays_behind():
            # The clean-up of a function may wait for the failed node, too.
            try:
                J().receive()
            finally:
                J().barrier()

        def keep():
            global kept, held
            kept, held = J().rank, J().array("held", 5)
            held[:] = 7
            J().barrier()

        with oikaze.local(3) as pool:
            pool.run(keep)
            for name, wait in {**waits, "finally": stays_behind}.items():
                error = raised(KeyError, pool.run, fails, wait)
                assert "what is missing" in str(error)
                assert "node 1" in str(error.__cause__) and "in fails" in str(error.__cause__)
                works(pool)
                print("after", name)
            assert pool.run(lambda: (kept, float(held.sum()))) == [(r, 35.0) for r in range(3)]
        """
    )


def test_calls_cut_off_in_the_middle_do_not_disturb_later_ones(program):
    program(
        """
        def all_to_all_messages(n):
            others = [rank for rank in range(J().size) if rank != J().rank]
            [J().peer(rank).send(bytes(100_000)) for rank in others]
            [J().receive() for _ in others]

        def arrays(n):
            array = J().array(f"of step {n}", 5000)
            array[J().rank] = n
            J().barrier()

        kinds = [
            lambda n: J().all_reduce(np.ones(1 << 18)),
            lambda n: J().broadcast(np.ones(1 << 18) if J().rank == 0 else None),
            lambda n: J().all_gather(bytes(300_000)),
            lambda n: J().split(J().rank % 2).barrier(),
            all_to_all_messages,
            arrays,
        ]

        def steps(step, last):
            n = 0
            while n < last or J().rank != 1:
                n += 1
                step(n)
            raise KeyError("the end")

        def check():
            following = J().peer((J().rank + 1) % J().size)
            following.send(b"of %d" % J().rank).wait()
            total = J().all_reduce(np.arange(1000.0))
            return bytes(J().receive().data), float(total.sum())

        with oikaze.local(3) as pool:
            for last, step in enumerate(kinds * 2):
                raised(KeyError, pool.run, steps, step, last)
                works(pool)
                expected = [(b"of %d" % ((rank - 1) % 3), 3 * 499500.0) for rank in range(3)]
                assert pool.run(check) == expected
        """
    )


def test_several_exceptions_raise_the_one_of_the_lowest_rank(program):
    program(
        """
        def fail():
            if J().rank == 2:
                raise KeyError("first")
            try:
                J().receive()
            except KeyboardInterrupt:
                raise ValueError(f"on rank {J().rank}") from None

        with oikaze.local(3) as pool:
            error = raised(ValueError, pool.run, fail)
            assert str(error) == "on rank 0"
            cause = str(error.__cause__)
            assert "node 0: Traceback" in cause, cause
            assert "node 1 failed, too: ValueError: on rank 1" in cause, cause
            assert "node 2 failed, too: KeyError: 'first'" in cause, cause
        """
    )


def test_objects_that_cannot_be_sent_are_errors_and_the_pool_lives_on(program):
    program(
        """
        class Unsendable(Exception):
            def __reduce__(self):
                raise TypeError("no")
            def __repr__(self):
                raise TypeError("no")

        def raise_one_of_there():
            # The module exists on the node alone.
            import types
            module = sys.modules["of_the_node"] = types.ModuleType("of_the_node")
            exec("class There(Exception): pass", module.__dict__)
            raise module.There("far away")

        def raise_unsendable():
            raise Unsendable("odd")

        def of_two_arguments():
            class Two(Exception):
                def __init__(self, first, second):
                    super().__init__(f"{first} and {second}")
            raise Two(1, 2)

        def end_generator():
            raise GeneratorExit

        def interrupt_itself():
            raise KeyboardInterrupt

        with oikaze.local(2) as pool:
            for kind, text, function, *arguments in [
                (RuntimeError, "There: far away", raise_one_of_there),
                (RuntimeError, "Unsendable", raise_unsendable),
                (RuntimeError, "1 and 2", of_two_arguments),
                (RuntimeError, "SystemExit: 3", lambda: sys.exit(3)),
                (RuntimeError, "SystemExit", sys.exit),
                (RuntimeError, "GeneratorExit", end_generator),
                (RuntimeError, "KeyboardInterrupt", interrupt_itself),
                (oikaze.InvalidError, "returning a result", lambda: (n for n in range(3))),
                (oikaze.InvalidError, "returning a result", lambda: J()),
                (oikaze.InvalidError, "asyncio.run", lambda: J().barrier_async()),
                (oikaze.InvalidError, "within another", len, [oikaze.by_rank([1, 2])]),
                (TypeError, "is not a function", 5),
                (oikaze.InvalidError, "sending a function", len, threading.Lock()),
                (oikaze.InvalidError, "sending a pool", lambda: pool.run(len, "abc")),
                (oikaze.InvalidError, "by_rank", len, oikaze.by_rank(["one"])),
                (NameError, "not_there", lambda: not_there),
                (TypeError, "argument", lambda: 1, 2),
            ]:
                error = raised(kind, pool.run, function, *arguments)
                assert text in str(error), (text, error)
                assert pool.run(len, "abc") == [3, 3]
            works(pool)
        error = raised(oikaze.InvalidError, pool.run, len, "abc")
        assert "closed" in error.cause and error.remedy
        for nodes in (0, -1):
            assert raised(oikaze.InvalidError, oikaze.local, nodes).remedy
        assert "join" in raised(oikaze.InvalidError, J).remedy
        """
    )


def test_names_of_an_earlier_call_can_be_given_again(program):
    program(
        """
        def make(name="x", extent=1000):
            job = J()
            array = job.array(name, extent)
            guarded = job.guarded_array(name + " guarded", (extent, 2))
            region, fifo = job.publish(name, 100, oikaze.Rights.ALL), job.fifo(name + " FIFO", 4, 8)
            with job.lock(name):
                array += 1
            job.barrier()
            return float(array.sum()), array, (array, guarded, region, fifo)

        def hold(extent=1000, again=False):
            global held
            before, total = held if again else None, make("held", extent)
            held = total[2]
            if before:
                assert before[1] is held[1] and before[2] is held[2] and before[3] is held[3]
            J().barrier()
            return total[0]

        def forget():
            global held
            del held

        with oikaze.local(2) as pool:
            for extent in (1000, 1000, 500):
                # Nobody holds the array: it is made anew.
                assert pool.run(lambda: make("x", extent)[0]) == [2 * extent] * 2
            assert pool.run(hold) == [2000.0] * 2
            # The same array, with what it holds.
            assert pool.run(hold, again=True) == [4000.0] * 2
            error = raised(oikaze.InvalidError, pool.run, hold, 500)
            for text in ("'held'", "(1000,)", "free"):
                assert text in str(error), error
            pool.run(forget)
            assert pool.run(hold, 500) == [1000.0] * 2
            # Another array that one node alone holds.
            pool.run(lambda: forget() if J().rank else None)
            assert "'held'" in str(raised(oikaze.Error, pool.run, hold, 500)).replace('"', "'")
            works(pool)

            def free():
                global freed
                freed = J().array("freed", 10)
                freed.free()

            # The name is free as soon as the array is, whatever holds it.
            pool.run(free)
            pool.run(free)
            assert pool.run(lambda: J().array("freed", 20).size) == [20, 20]

            def name_twice():
                # Only in another call.
                return [J().array("twice", 10) for _ in range(2)]

            assert "twice" in str(raised(oikaze.Error, pool.run, name_twice))
            works(pool)
        """
    )


@pytest.mark.parametrize("wait", ["time.sleep(1000)", "J().receive()", "J().barrier()"])
def test_interrupt_of_a_terminal_reaches_the_function_alone(wait):
    # Rank 1 does not come to the barrier.
    source = f"""
        import os, time, oikaze
        J = oikaze.current_job
        def waits():
            global state
            state = J().rank
            print("begun", flush=True)
            J().receive() if J().rank else {wait}
        pool = oikaze.local(2)
        pids = pool.run(os.getpid)
        try:
            pool.run(waits)
        except KeyboardInterrupt as error:
            print("interrupted", "in waits" in str(error.__cause__))
        print("after", pool.run(lambda: state) == [0, 1], pool.run(os.getpid) == pids)
        pool.run(lambda: J().barrier())
        pool.close()
        print("closed")
    """
    # The terminal is the one of the program, and its interrupts are not ignored, as in a shell.
    takes = "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    takes += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    source = takes + textwrap.dedent(source)
    terminal, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-c", source],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(OIKAZE_COMMAND=COMMAND),
        start_new_session=True,
    ) as child:
        os.close(theirs)
        end = threading.Timer(HANG, child.kill)
        end.start()
        with contextlib.suppress(OSError):
            while shown.count(b"begun") < 2:
                shown += os.read(terminal, 1000)
            os.write(terminal, b"\x03")
            while True:
                shown += os.read(terminal, 1000)
        end.cancel()
    os.close(terminal)
    assert b"interrupted True" in shown and b"after True True" in shown, shown
    assert b"closed" in shown, shown


def test_second_interrupt_returns_while_the_nodes_still_run(program):
    done = program(
        """
        def ignores():
            while True:
                try:
                    print("begun")
                    time.sleep(1000)
                except KeyboardInterrupt:
                    print("ignored")

        pool = oikaze.local(2)
        out = sys.stdout
        sys.stdout = On("begun", interrupt)
        sys.stdout.act = lambda: setattr(sys.stdout, "text", "interrupt again") or interrupt()
        error = raised(KeyboardInterrupt, pool.run, ignores)
        sys.stdout = out
        assert "nodes 0, 1" in str(error) and "kill" in str(error), error
        later = pool.submit(len, "abc")
        assert later.cancel()
        pool.kill()
        pool.kill()
        pool.close()
        assert "closed" in str(raised(oikaze.InvalidError, pool.run, len, "abc"))
        """
    )
    assert "ignored" in done.out


WAYS = {
    "idle": "pass",
    "waits": "J().receive()",
    "sleeps": "time.sleep(1000)",
    "ignores": """
            while True:
                try:
                    time.sleep(1000)
                except BaseException:
                    pass""",
    "holds the interpreter": "import re; print('begun', flush=True); re.match('(a*)*b', 'a' * 100)",
}


def are_gone(pids):
    """Waits until these processes have ended."""
    end = time.monotonic() + HANG
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("way", WAYS)
def test_close_and_the_end_of_the_program_leave_no_process(program, way):
    done = program(
        f"""
        def busy():
            print("begun", flush=True)
            {WAYS[way]}

        for end in ("close", "kill", "drop", "exit"):
            pool = oikaze.local(2)
            print("pids", *pool.run(os.getpid))
            if {way != "idle"}:
                begun, sys.stdout = threading.Event(), On("begun", lambda: begun.set())
                future = pool.submit(busy)
                assert begun.wait(100)
                sys.stdout = sys.stdout.out
            if end in ("close", "kill"):
                [getattr(pool, end)() for _ in range(2)]
                if {way != "idle"}:
                    assert future.exception(0) is not None
            elif end == "drop":
                del pool
        """
    )
    lines = [line.split()[1:] for line in done.out.splitlines() if line.startswith("pids")]
    assert len(lines) == 4 and are_gone([pid for line in lines for pid in line])


@pytest.mark.parametrize("way", WAYS)
def test_nodes_end_with_a_killed_parent(way):
    source = f"""
        import os, signal, time, oikaze
        J = oikaze.current_job
        def busy():
            print("pid", os.getpid(), flush=True)
            {WAYS[way]}
        pool = oikaze.local(2)
        pool.run(busy)
        print("idle", flush=True)
        time.sleep(1000)
    """
    program = [sys.executable, "-c", textwrap.dedent(source)]
    pipe, more = subprocess.PIPE, environment(OIKAZE_COMMAND=COMMAND)
    with subprocess.Popen(program, stdout=pipe, text=True, env=more) as parent:
        pids = [parent.stdout.readline().split()[-1] for _ in range(2)]
        if way == "idle":
            assert parent.stdout.readline() == "idle\n"
        parent.send_signal(signal.SIGKILL)
    assert are_gone(pids)


def test_dead_node_is_an_error_with_a_remedy(program):
    program(
        """
        def die():
            if J().rank == 1:
                print("the last words", flush=True)
                os._exit(5)
            J().receive()

        out = io.StringIO()
        pool = oikaze.local(2)
        with contextlib.redirect_stdout(out):
            error = raised(oikaze.PeerLostError, pool.run, die)
        assert error.peer == 1 and "another pool" in error.remedy
        assert "[1] the last words" in out.getvalue()
        again = raised(oikaze.PeerLostError, pool.run, len, "abc")
        assert again.peer == 1 and "ended" in again.cause and "another pool" in again.remedy
        pool.close()
        # Also between two calls.
        pool = oikaze.local(2)
        os.kill(pool.run(os.getpid)[0], 9)
        assert raised(oikaze.PeerLostError, pool.run, lambda: J().receive()).peer == 0
        """
    )


def test_names_that_nodes_set_are_not_replaced_by_names_of_the_notebook(program):
    program(
        """
        import oikaze
        counter, scale, field, word = 0, 1, "the notebook's", "first"
        def count():
            global counter
            counter += scale
            return counter
        def make():
            global field
            field = [oikaze.current_job().rank]
        def show():
            return field, scale, word
        with oikaze.local(2) as pool:
            assert pool.run(show) == [("the notebook's", 1, "first")] * 2
            assert [pool.run(count) for _ in range(2)] == [[1, 1], [2, 2]]
            pool.run(make)
            field, scale, word, counter = "anew", 10, "second", 0
            assert pool.run(show) == [([0], 10, "second"), ([1], 10, "second")]
            assert pool.run(count) == [12, 12]
            pool.push(counter=5, field="pushed")
            assert pool.run(count) == [15, 15]
            assert pool.run(show) == [("pushed", 10, "second")] * 2
        """
    )


def test_pushed_names_are_seen_by_later_functions(program):
    program(
        """
        offset = "of this process"

        def helper(x):
            return x + offset + part

        def count():
            global calls
            calls = globals().get("calls", 0) + 1
            return calls

        with oikaze.local(2) as pool:
            pool.push(offset=100, part=oikaze.by_rank([10, 20]))
            assert pool.run(lambda x: helper(x), 1) == [111, 121]
            assert pool.run(helper, oikaze.by_rank([1, 2])) == [111, 122]
            both = pool.run(lambda *, a, b: (a, b), a=oikaze.by_rank("xy"), b=3)
            assert both == [("x", 3), ("y", 3)]
            assert pool.pull("part") == [10, 20]
            pool.push(self=1, name=2, function=3)
            assert pool.pull("self") == [1, 1]
            assert "missing" in str(raised(NameError, pool.pull, "missing"))
            assert pool.run(count) == [1, 1] and pool.run(count) == [2, 2]
            # A name that was not pushed is the one of this process.
            own = 1
            assert pool.run(lambda: own) == [1, 1]
            own = 2
            assert pool.run(lambda: own) == [2, 2]
            pool.run(lambda: exec("global keep; keep = 5"))
            assert pool.run(lambda: keep) == [5, 5]
        """
    )


def test_submitted_calls_run_one_after_the_other(program):
    program(
        """
        def wait():
            print("begun", flush=True)
            J().receive()

        with oikaze.local(2) as pool, oikaze.local(1) as other:
            begun, sys.stdout = threading.Event(), On("begun", lambda: begun.set())
            first = pool.submit(wait)
            second, third = pool.submit(len, "abc"), pool.submit(len, "ab")
            assert begun.wait(100) and third.cancel() and not first.cancel()
            assert other.run(len, "abc") == [3]
            pool.interrupt()
            assert isinstance(first.exception(), KeyboardInterrupt)
            assert second.result() == [3, 3]
            pool.interrupt()
            # Calls of several threads.
            results = []
            threads = [
                threading.Thread(target=lambda n=n: results.append(pool.run(pow, n, 2)))
                for n in range(8)
            ]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert sorted(results) == [[n * n] * 2 for n in range(8)]
        """
    )


def test_output_comes_whole_and_before_the_call_returns(program):
    program(
        """
        def speak():
            print("said")
            print("warned", file=sys.stderr)
            os.write(1, b"written\\n")
            print("without end", end="")

        def shout():
            for _ in range(30):
                print("\u6e29" * 20_000)

        with oikaze.local(2) as pool:
            for _ in range(100):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    pool.run(speak)
                lines = out.getvalue().splitlines()
                for rank in range(2):
                    mine = [line for line in lines if line.startswith(f"[{rank}] ")]
                    words = [line[4:] for line in mine]
                    assert words == ["said", "warned", "written", "without end"], lines
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                pool.run(shout)
            assert out.getvalue().count("\u6e29") == 1_200_000 and "\ufffd" not in out.getvalue()
        """
    )


def test_results_do_not_need_a_standard_output(program):
    done = program(
        """
        def speak():
            print("\u6e29")
            return 7

        full = open("/dev/full", "w")
        closed = open("/dev/null", "w")
        closed.close()
        narrow = io.TextIOWrapper(io.BytesIO(), "ascii")
        out = sys.stdout
        with oikaze.local(2) as pool:
            for sys.stdout in (None, full, closed, narrow, object()):
                assert pool.run(speak) == [7, 7]
        sys.stdout = out
        assert narrow.buffer.getvalue().count(b"\\\\u6e29") == 2
        os._exit(0)  # the full file cannot be closed
        """,
        # Longer than the path of a socket may be.
        TMPDIR="/tmp/" + "/".join(["a-long-folder"] * 20),
    )
    assert done.err == ""


def test_long_arguments_pass_long_output(program):
    program(
        """
        begun = threading.Event()

        def chatty():
            print("begun", flush=True)
            for n in range(20_000):
                print("a line that nobody reads at the moment", n)

        with oikaze.local(2) as pool:
            pool.submit(chatty)
            assert pool.run(len, bytes(8 << 20)) == [8 << 20] * 2
            assert [len(echo) for echo in pool.run(lambda x: x, bytes(8 << 20))] == [8 << 20] * 2
        """
    )


def test_cells_of_the_notebook_run_twice(program):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    done = program(
        f"""
        for source in {sources!r}:
            for _ in range(2):
                exec(source)
        """
    )
    assert done.out.count("residual") == 2


@pytest.mark.long
def test_notebook_runs(tmp_path):
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # As somebody does who changes a cell and runs all of them again.
    notebook.cells = [cell for cell in notebook.cells for _ in range(2)]
    for cell in notebook.cells:
        cell["id"] = f"cell-{id(cell)}"
    resources = {"metadata": {"path": tmp_path}}
    client = nbclient.NotebookClient(notebook, timeout=HANG, resources=resources)
    client.execute(env=environment(OIKAZE_COMMAND=COMMAND))
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert "residual" in printed and "AssertionError" not in printed


def test_exception_of_a_signal_handler_is_raised_at_once_and_the_next_call_says_why_it_waits(program):
    done = program(
        """
        import signal

        class OfHandler(Exception):
            pass

        armed = []

        def handler(number, frame):
            if armed:
                raise armed.pop()

        signal.signal(signal.SIGUSR1, handler)
        signal.signal(signal.SIGINT, handler)
        main = threading.main_thread().ident

        def raise_in_main(number, kind):
            # Python notices a signal that comes just before a lock is waited for once the next
            # signal comes. The handler raises once.
            def until_raised():
                pause = threading.Event()
                while armed:
                    signal.pthread_kill(main, number)
                    pause.wait(0.01)
            armed.append(kind)
            threading.Thread(target=until_raised).start()

        hit = lambda: raise_in_main(signal.SIGUSR1, OfHandler)
        hurt = lambda: raise_in_main(signal.SIGINT, KeyboardInterrupt)

        def waits():
            print("begun")
            J().receive()

        with oikaze.local(2) as pool:
            out = sys.stdout
            ways = {
                "run": (OfHandler, hit, lambda: pool.run(waits)),
                "push": (OfHandler, hit, lambda: (pool.submit(waits), pool.push(a=1))),
                "result": (OfHandler, hit, lambda: pool.submit(waits).result()),
                "result, Ctrl-C": (KeyboardInterrupt, hurt, lambda: pool.submit(waits).result()),
            }
            for way, (kind, strike, call) in ways.items():
                once = iter([strike])
                sys.stdout = On("begun", lambda: next(once, bool)())
                raised(kind, call)
                text = io.StringIO()
                sys.stdout = On("waits for an earlier call on nodes 0, 1", pool.interrupt)
                sys.stdout.out = text
                assert pool.run(len, "abc") == [3, 3]
                sys.stdout = out
                assert text.getvalue().count("earlier call") == 1, text.getvalue()
                assert "pool.kill()" in text.getvalue()
                works(pool)
                print("after", way)
        """
    )
    assert done.out.count("after") == 4


def test_stopped_node_closes_the_pool_with_a_remedy(program):
    program(
        """
        import signal
        def meets():
            J().barrier()
        def meets_and_catches():
            try:
                J().barrier()
            except oikaze.PeerLostError:
                pass
        for function in (meets, meets_and_catches):
            pool = oikaze.local(2)
            assert not pool.closed and "closed" not in repr(pool)
            pids = pool.run(os.getpid)
            os.kill(pids[1], signal.SIGSTOP)
            error = raised(oikaze.PeerLostError, pool.run, meets)
            for one in (error, raised(oikaze.PeerLostError, pool.run, meets)):
                assert one.peer == 1 and "another pool" in one.remedy, one
                assert "node 1" in one.cause, one
            assert pool.closed and "closed" in repr(pool)
            pool.close()
        """,
        OIKAZE_FAILURE_TIME="2000",
    )


def test_close_ends_a_stopped_node(program):
    done = program(
        """
        import signal
        pool = oikaze.local(2)
        pids = pool.run(os.getpid)
        print("pids", *pids)
        os.kill(pids[1], signal.SIGSTOP)
        pool.close()
        assert pool.closed and "closed" in repr(pool)
        pool = oikaze.local(1)
        pool.kill()
        assert pool.closed
        """
    )
    assert are_gone(done.out.split()[1:])


def test_job_that_a_function_has_ended_closes_the_pool(program):
    program(
        """
        def ends():
            if J().rank:
                J()._end("enough")
            J().barrier()

        pool = oikaze.local(2)
        error = raised(oikaze.PeerLostError, pool.run, ends)
        assert "another pool" in error.remedy and pool.closed, error
        raised(oikaze.PeerLostError, pool.run, len, "abc")
        """
    )


def test_leave_in_a_function_of_a_pool_is_refused(program):
    program(
        """
        def leaves_block():
            with J() as job:
                job.barrier()

        def fails_in_block():
            with J():
                sys.exit(3)

        with oikaze.local(2) as pool:
            assert "SystemExit: 3" in str(raised(RuntimeError, pool.run, fails_in_block))
            works(pool)
            for leaves in (lambda: J().leave(), leaves_block):
                error = raised(oikaze.InvalidError, pool.run, leaves)
                assert error.operation == "leaving the job" and "pool.close()" in error.remedy
                works(pool)
        """
    )


@pytest.mark.parametrize("then", ["pass", "J().barrier()", "print('more')"])
def test_function_that_closes_all_descriptors_is_an_error_that_names_the_node(program, then):
    program(
        f"""
        def closes():
            if J().rank == 1:
                os.closerange(3, 256)
            {then}

        pool = oikaze.local(2)
        error = raised(oikaze.PeerLostError, pool.run, closes)
        assert "node 1" in str(error) and "another pool" in error.remedy, error
        assert pool.closed
        pool.close()
        """,
        OIKAZE_FAILURE_TIME="2000",
    )


def test_traceback_of_a_node_names_the_file_and_the_line(program, tmp_path):
    program(
        """
        import linecache, runpy
        source = "def divides(n):\\n    return n / 0  # here\\n"
        open("script.py", "w").write(source)
        cell = "a cell that is no file"
        linecache.cache[cell] = (len(source), None, source.splitlines(True), cell)
        for name in ("script.py", cell):
            namespace = sys.modules["__main__"].__dict__
            exec(compile(source, name, "exec"), namespace)
            with oikaze.local(1) as pool:
                cause = str(raised(ZeroDivisionError, pool.run, divides, 1).__cause__)
            assert f'"{name}", line 2, in divides' in cause and "n / 0  # here" in cause, cause
        """
    )


def test_variable_that_cannot_be_sent_is_named(program):
    program(
        """
        guard = threading.Lock()

        def inner():
            return guard

        def outer():
            return inner()

        def made():
            captured = threading.Lock()
            return lambda: captured

        with oikaze.local(1) as pool:
            for words, call, *arguments in [
                ("'guard'", lambda: guard),
                ("'guard'", outer),
                ("'guard'", lambda: [guard for _ in range(3)]),
                ("'captured'", made()),
                ("argument 2", len, 1, guard),
            ]:
                error = raised(oikaze.InvalidError, pool.run, call, *arguments)
                assert words in error.cause and error.remedy, error
            error = raised(oikaze.InvalidError, lambda: pool.run(len, key=guard))
            assert "argument 'key'" in error.cause, error
            assert pool.run(len, "abc") == [3]
        """
    )


def test_pool_without_references_closes_itself(program):
    done = program(
        """
        import gc

        def forgets():
            pool = oikaze.local(1)
            print("pids", *pool.run(os.getpid))
            pool.itself = pool
            pool.run(lambda: 1 / 0)

        for _ in range(2):
            try:
                forgets()
            except ZeroDivisionError as error:
                kept = error
            del kept
            gc.collect()
            live = [one for one in gc.get_objects() if type(one) is oikaze.Pool and not one.closed]
            assert not live
            assert not [one for one in threading.enumerate() if one.name == "oikaze-pool"]
        """
    )
    lines = [line.split()[1:] for line in done.out.splitlines() if line.startswith("pids")]
    assert len(lines) == 2 and are_gone([pid for line in lines for pid in line])


@pytest.mark.parametrize("nodes", ['"2"', "2.5", "None", "True", "-1", "10**30"])
def test_number_of_nodes_that_makes_no_sense_is_an_error(program, nodes):
    program(
        f"""
        error = raised(oikaze.InvalidError, oikaze.local, {nodes})
        assert error.operation == "starting nodes" and error.remedy
        """
    )
