"""Waits name the line of the program, and SIGQUIT asks for them (MEM-21.5, MEM-21.6)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import COMMAND, HANG, Finished, environment

#: Begin of the programs. The test lets them end.
PREFACE = """
import os, sys, time
import oikaze

def stay_away():
    while not os.path.exists("go"):
        time.sleep(0.01)

"""


class Job:
    """A job of two nodes whose standard error is read while it runs."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.program = folder / "program.py"
        self.program.write_text(PREFACE + textwrap.dedent(source))
        options = ["--explain-after", "0.2", "--timeout", str(HANG), "-n", "2"]
        self.launcher = subprocess.Popen(
            [COMMAND, "run", *options, "--", sys.executable, "program.py"],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=folder,
        )

    def place(self, code: str) -> str:
        """Returns the place of the line with this code."""
        lines = self.program.read_text().splitlines()
        return f"program.py:{1 + next(at for at, line in enumerate(lines) if code in line)}"

    def line(self, *words: str) -> str:
        """Returns the next line with all of these words."""
        assert self.launcher.stderr is not None
        seen = []
        for line in self.launcher.stderr:
            if all(word in line for word in words):
                return line
            seen.append(line)
        pytest.fail(f"no line with {words} in {seen}")

    def quit(self) -> None:
        self.launcher.send_signal(signal.SIGQUIT)

    def goes_on(self) -> None:
        """Lets the nodes end, which have to succeed."""
        (self.folder / "go").touch()
        _, rest = self.launcher.communicate(timeout=HANG)
        assert self.launcher.returncode == 0, rest


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    """Returns a function that starts a job, which is killed at the end of the test."""
    jobs: list[Job] = []

    def start(source: str) -> Job:
        jobs.append(Job(tmp_path, source))
        return jobs[-1]

    yield start
    for job in jobs:
        job.launcher.kill()
        job.launcher.communicate()


def test_waits_of_the_main_thread_and_of_another_name_their_lines(start) -> None:
    """MEM-21.5."""
    job = start("""
        from threading import Thread
        job = oikaze.join()

        def take():
            job.receive(1)  # in a thread

        if job.rank == 0:
            thread = Thread(target=take)
            thread.start()
            total = job.all_reduce(1)  # in the main thread
            thread.join()
        else:
            stay_away()
            job.all_reduce(1)
            job.peer(0).send(b"end").wait()
        """)
    one = job.place("in a thread")
    job.line("node 0 has waited", f"a message from node 1 at {one}: node 1 computes")
    # The other wait has been explained before or after. A report has both.
    job.quit()
    other = job.place("in the main thread")
    line = job.line("node 0: waits for ", f" at {one} (")
    assert f" of the job at {other} (" in line
    assert "node 1: computes" in job.line("node 1: ")
    job.goes_on()


def test_lock_is_named_as_the_program_names_it(start) -> None:
    """MEM-21.5."""
    job = start("""
        job = oikaze.join()
        if job.rank == 0:
            lock = job.lock("histogram")
            lock.acquire()
            job.barrier()
            stay_away()
            lock.release()
        else:
            job.barrier()
            try:
                with job.lock("histogram"), job.lock("histogram"):
                    pass  # the second lock is an error
            except oikaze.Error as error:
                print(error)
        """)
    place = job.place('with job.lock("histogram")')
    line = job.line("node 1 has waited", f'lock "histogram" at {place}: held by node 0')
    assert 'holds lock "histogram"' in line
    job.goes_on()


def test_join_names_its_line(start) -> None:
    """MEM-21.5: the wait is that of another thread, which joins for the caller."""
    job = start("""
        if os.environ["OIKAZE_RANK"] == "1":
            stay_away()
        job = oikaze.join()
        """)
    job.line("node 0 has waited", f"can be reached at {job.place('job = oikaze.join()')}: node 1")
    job.goes_on()


def test_handler_of_the_program_gets_the_signal_of_the_launcher(start) -> None:
    """LAUNCH-4.2, MEM-21.6: `faulthandler` prints its tracebacks, and nobody else does."""
    job = start("""
        import faulthandler, signal
        job = oikaze.join()

        faulthandler.register(signal.SIGQUIT)
        job.barrier()
        print("ready", file=sys.stderr, flush=True)
        stay_away()
        """)
    job.line("ready")
    job.line("ready")
    job.quit()
    said: set[str] = set()
    while len(said) < 2:
        said.add(job.line("most recent call first")[:3])
    assert said == {"[0]", "[1]"}
    job.goes_on()


def test_top_names_the_script(start) -> None:
    job = start("""
        job = oikaze.join()
        job.barrier()
        print("ready", job.rank, file=sys.stderr, flush=True)
        stay_away()
        """)
    job.line("ready")

    def programs() -> list[str]:
        done = subprocess.run(
            [COMMAND, "top", "--once", "--json", "program.py"],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        return [node["program"] for node in json.loads(done.stdout)["nodes"]]

    assert "program.py" in programs()
    job.goes_on()


def test_node_that_is_sent_quit_reports_and_goes_on(alone: Callable[..., Finished]) -> None:
    """MEM-21.6: a node without a launcher, in no call of Oikaze."""
    done = alone("""
        import os, signal
        read, write = os.pipe()
        os.dup2(write, 2)
        job = oikaze.join()
        os.kill(os.getpid(), signal.SIGQUIT)
        print(os.read(read, 200).decode())
        job.leave()
        """)
    assert "oikaze: node 0: computes: no call of Oikaze waits" in done.out
