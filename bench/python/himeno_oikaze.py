"""Himeno benchmark over shared arrays of Oikaze."""

import himeno_kernel as himeno
import oikaze


def main():
    options = himeno.arguments()
    planes, rows, columns = shape = himeno.SIZES[options.size]
    job = oikaze.join()
    old, new = (job.guarded_array(name, shape, "f4") for name in ("p0", "p1"))
    first, end = old.home()
    for array in (old, new):
        with array.writing[first:end] as mine:
            mine[:] = himeno.start_values(planes, first, end)[:, None, None]
    # The outermost planes stay as they are.
    low, high = max(first, 1), min(end, planes - 1)
    coefficients = himeno.Coefficients((high - low, rows - 2, columns - 2))
    old.subscribe_halo(slice(first, end), 1)
    new.subscribe_halo(slice(first, end), 1)
    job.barrier()

    def run(iterations):
        nonlocal old, new
        for _ in range(iterations):
            with old.reading[low - 1 : high + 1] as p, new.writing[low:high] as mine:
                change = coefficients.relax(p, mine)
            job.barrier()
            old, new = new, old
        return job.all_reduce(change, "sum")

    seconds, residual = himeno.timed(run, options.iterations)
    if job.rank == 0:
        himeno.report(options.size, options.iterations, seconds, residual)
    job.leave()


main()
