"""Himeno benchmark in slices of NumPy: the kernel, which all programs share."""

import argparse
import json
import time

import numpy as np

SIZES = {"XS": (32, 32, 64), "S": (64, 64, 128), "M": (128, 128, 256)}
OMEGA = np.float32(0.8)
#: Floating-point operations for each inner point, as the benchmark counts them.
FLOPS = 34


def arguments():
    """Reads the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--iterations", type=int, default=100)
    return parser.parse_args()


def blocks(planes, nodes):
    """First plane and end of each node, as equal as possible."""
    cuts = [planes * node // nodes for node in range(nodes + 1)]
    return list(zip(cuts, cuts[1:]))


def start_values(planes, first, end):
    """Pressure of planes first to end: the square of the relative depth."""
    depth = np.arange(first, end, dtype=np.float32) / np.float32(planes - 1)
    return depth * depth


class Coefficients:
    """Coefficients of some planes. They are arrays, as in the benchmark."""

    def __init__(self, shape):
        ones, zeros = np.ones(shape, np.float32), np.zeros(shape, np.float32)
        self.a = [ones, ones.copy(), ones.copy(), np.full(shape, 1 / 6, np.float32)]
        self.b = [zeros, zeros.copy(), zeros.copy()]
        self.c = [ones.copy(), ones.copy(), ones.copy()]
        self.bnd, self.wrk1 = ones.copy(), zeros.copy()
        self._room = [np.empty(shape, np.float32) for _ in range(2)]

    def relax(self, p, new):
        """Computes the inner points of `new`, and returns the sum of the squares of the changes.

        `p` has one more plane than `new` on both sides, and both have the borders of the other axes.
        """
        here = slice(1, -1)
        less, more = slice(None, -2), slice(2, None)
        a, b, c = self.a, self.b, self.c
        s0, term = self._room

        def add(coefficient, *points):
            value = points[0] if len(points) == 1 else points[0] - points[1] - points[2] + points[3]
            np.multiply(coefficient, value, out=term)
            np.add(s0, term, out=s0)

        np.multiply(a[0], p[more, here, here], out=s0)
        add(a[1], p[here, more, here])
        add(a[2], p[here, here, more])
        add(b[0], p[more, more, here], p[more, less, here], p[less, more, here], p[less, less, here])
        add(b[1], p[here, more, more], p[here, less, more], p[here, more, less], p[here, less, less])
        add(b[2], p[more, here, more], p[less, here, more], p[more, here, less], p[less, here, less])
        add(c[0], p[less, here, here])
        add(c[1], p[here, less, here])
        add(c[2], p[here, here, less])
        np.add(s0, self.wrk1, out=s0)
        np.multiply(s0, a[3], out=s0)
        old = p[here, here, here]
        np.subtract(s0, old, out=s0)
        np.multiply(s0, self.bnd, out=s0)
        residual = float(np.einsum("ijk,ijk->", s0, s0, dtype=np.float64))
        np.multiply(s0, OMEGA, out=s0)
        np.add(old, s0, out=new[:, here, here])
        return residual


def report(size, iterations, seconds, residual):
    """Prints the figure as a line of JSON."""
    planes, rows, columns = SIZES[size]
    flops = FLOPS * (planes - 2) * (rows - 2) * (columns - 2) * iterations
    print(json.dumps({"mflops": flops / seconds / 1e6, "residual": residual}), flush=True)


def timed(run, iterations):
    """Runs a few iterations to warm up, then all. Returns the seconds and the last residual."""
    run(3)
    begun = time.perf_counter()
    residual = run(iterations)
    return time.perf_counter() - begun, residual
