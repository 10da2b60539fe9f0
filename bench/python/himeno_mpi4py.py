"""Himeno benchmark over MPI, with an exchange of the planes at the borders."""

import himeno_kernel as himeno
import numpy as np
from mpi4py import MPI


def main():
    options = himeno.arguments()
    planes, rows, columns = himeno.SIZES[options.size]
    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    first, end = himeno.blocks(planes, size)[rank]
    low, high = max(first, 1), min(end, planes - 1)
    # Planes low - 1 to high + 1: those of this rank's inner planes, and one more on both sides.
    start = himeno.start_values(planes, low - 1, high + 1)[:, None, None]
    old, new = (np.empty((high - low + 2, rows, columns), np.float32) for _ in range(2))
    old[:], new[:] = start, start
    coefficients = himeno.Coefficients((high - low, rows - 2, columns - 2))
    below = rank - 1 if rank > 0 else MPI.PROC_NULL
    above = rank + 1 if rank < size - 1 else MPI.PROC_NULL
    world.Barrier()

    def run(iterations):
        nonlocal old, new
        for _ in range(iterations):
            change = coefficients.relax(old, new[1:-1])
            world.Sendrecv(new[1], below, 0, new[-1], above, 0)
            world.Sendrecv(new[-2], above, 1, new[0], below, 1)
            old, new = new, old
        return world.allreduce(change)

    seconds, residual = himeno.timed(run, options.iterations)
    if rank == 0:
        himeno.report(options.size, options.iterations, seconds, residual)


main()
