"""Functions in new processes, and the command."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMAND, HANG, environment


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


def test_exceptions_of_nodes_are_raised_here(alone):
    alone(
        """
        def fails():
            job = oikaze.current_job()
            if job.rank == 1:
                raise KeyError("what is missing")
            job.receive()
        class Unsendable(Exception):
            def __reduce__(self):
                raise TypeError("no")
        def fails_oddly():
            raise Unsendable("odd")
        def dies():
            import os
            os._exit(5)
        for function, kind, text in [
            (fails, KeyError, "what is missing"), (fails_oddly, RuntimeError, "odd"),
            (dies, oikaze.PeerLostError, "has ended"),
        ]:
            with oikaze.local(2) as pool:
                try:
                    pool.run(function)
                except kind as error:
                    assert text in str(error)
                    if kind is KeyError:
                        assert "node 1" in str(error.__cause__), error.__cause__
                        assert "in fails" in str(error.__cause__)
                else:
                    raise AssertionError(function)
        for nodes in (0, -1):
            try:
                oikaze.local(nodes)
            except oikaze.InvalidError as error:
                assert error.remedy
        try:
            oikaze.current_job()
        except oikaze.InvalidError as error:
            assert "join" in error.remedy
        """,
        OIKAZE_COMMAND=COMMAND,
    )


@pytest.mark.long
def test_notebook_runs(tmp_path):
    import nbclient
    import nbformat

    book = Path(__file__).parents[3] / "docs/book/src/local.ipynb"
    notebook = nbformat.read(book, as_version=4)
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


def test_answers_of_an_interrupted_call_are_not_taken_for_later_ones(alone):
    alone(
        """
        import os, sys
        gates = [f"gate{rank}" for rank in range(2)]
        [os.mkfifo(gate) for gate in gates]

        def slow():
            rank = oikaze.current_job().rank
            oikaze.current_job().barrier()
            print("begun", flush=True)
            open(f"gate{rank}").close()
            return f"slow {rank}"

        def quick():
            return f"quick {oikaze.current_job().rank}"

        def fails():
            print("begun", flush=True)
            open(f"gate{oikaze.current_job().rank}").close()
            raise ValueError("after the interrupt")

        class Interrupting:
            # The pool prints here what the nodes print.
            def __init__(self, out):
                self.out = out
            def write(self, text):
                self.out.write(text)
                if "begun" in text:
                    raise KeyboardInterrupt

        def interrupted(pool, function):
            out, sys.stdout = sys.stdout, Interrupting(sys.stdout)
            try:
                pool.run(function)
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("not interrupted")
            finally:
                sys.stdout = out
            [open(gate, "w").close() for gate in gates]

        with oikaze.local(2) as pool:
            interrupted(pool, slow)
            assert pool.run(quick) == ["quick 0", "quick 1"]
            assert pool.run(quick) == ["quick 0", "quick 1"]
            interrupted(pool, fails)
            try:
                pool.run(quick)
            except oikaze.InvalidError as error:
                assert "earlier" in error.cause and "after the interrupt" in str(error.__cause__)
            else:
                raise AssertionError("the failure is lost")
        """,
        OIKAZE_COMMAND=COMMAND,
    )
