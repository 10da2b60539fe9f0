"""Collectives from Python: time of one operation between processes, by Oikaze or by mpi4py.

`oikaze perf collectives` measures the same in the same way. The operations are divided into blocks.
The time of an operation is the mean of a block on the slowest process, and the median of the blocks
counts. The root of a broadcast changes with each operation. Results are checked before and after
the measurement.
"""

import argparse
import json
import statistics
import time

import numpy as np

BLOCKS = 10
WARM_UP = 10


def of_oikaze(sent):
    """Returns the job, its collectives by case, and its maximum of arrays."""
    import oikaze

    job = oikaze.join()
    received, number = np.empty_like(sent), job.rank + 0.5
    calls = {
        "barrier": lambda _: job.barrier(),
        "all_reduce_number": lambda _: job.all_reduce(number),
        "all_reduce": lambda _: job.all_reduce(sent, out=received),
        "broadcast": lambda root: job.broadcast_into(sent, root),
        "all_gather": lambda _: job.all_gather(sent),
    }
    return job, calls, lambda array: job.all_reduce(array, "max")


def of_mpi4py(sent):
    """Returns the world, its collectives by case, and its maximum of arrays.

    Arrays are passed as buffers, which is the quicker form of mpi4py.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    received, number = np.empty_like(sent), world.rank + 0.5
    gathered = np.empty((world.size, *sent.shape), sent.dtype)

    def all_reduce(_):
        world.Allreduce(sent, received)
        return received

    def broadcast(root):
        world.Bcast(sent, root)
        return sent

    def all_gather(_):
        world.Allgather(sent, gathered)
        return gathered

    def maximum(array):
        most = np.empty_like(array)
        world.Allreduce(array, most, MPI.MAX)
        return most

    calls = {
        "barrier": lambda _: world.Barrier(),
        "all_reduce_number": lambda _: world.allreduce(number),
        "all_reduce": all_reduce,
        "broadcast": broadcast,
        "all_gather": all_gather,
    }
    return world, calls, maximum


LIBRARIES = {"oikaze": of_oikaze, "mpi4py": of_mpi4py}


def expected(case, turn, root, size):
    """Returns the result of a case, of arrays whose words are ``turn * size + rank``."""
    return {
        "barrier": None,
        "all_reduce_number": size * size / 2,
        "all_reduce": sum(turn * size + rank for rank in range(size)),
        "broadcast": turn * size + root,
        "all_gather": turn * size + np.arange(size)[:, None],
    }[case]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("case")
    parser.add_argument("--size", type=int, default=8, help="bytes of the array of one process")
    parser.add_argument("--iterations", type=int, default=10_000)
    options = parser.parse_args()
    sent = np.zeros(max(options.size // 8, 1))
    members, calls, maximum = LIBRARIES[options.library](sent)
    rank, size, call = members.rank, members.size, calls[options.case]

    def check(turn):
        sent[:] = turn * size + rank
        root = turn % size
        found, wanted = call(root), expected(options.case, turn, root, size)
        if not np.all(found == wanted):
            raise SystemExit(f"{options.case}: rank {rank} got {found}, not {wanted}")

    for turn in range(WARM_UP):
        check(turn)
    # Every process is the root equally often.
    roots = list(range(size)) * -(-options.iterations // (BLOCKS * size))
    times = np.empty(BLOCKS)
    for block in range(BLOCKS):
        begun = time.perf_counter()
        for root in roots:
            call(root)
        times[block] = (time.perf_counter() - begun) / len(roots) * 1e6
    check(WARM_UP)
    slowest = maximum(times)
    if rank == 0:
        print(json.dumps({"us": statistics.median(slowest.tolist())}), flush=True)
    if options.library == "oikaze":
        members.leave()


main()
