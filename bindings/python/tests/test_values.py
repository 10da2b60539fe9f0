"""What values mean beyond their bytes: whole numbers, shapes, classes, pickles, tensors, views."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy
import oikaze
import pytest
from conftest import COMMAND, environment

#: Functions of the programs below: a call fails on all ranks, and the job goes on.
HELPERS = """
import numpy as np, warnings
job = oikaze.join(time_limit=60)
me, n = job.rank, job.size
def refused(call, kind=None):
    try:
        result = call()
    except oikaze.Error as error:
        assert not isinstance(error, (oikaze.TimeoutError, oikaze.PeerLostError)), error
        assert kind is None or isinstance(error, kind), error
        text = str(error)
    else:
        raise AssertionError(f"accepted: {result!r}")
    assert job.all_gather(me) == list(range(n))
    return text
def same(one, other):
    assert type(one) is type(other), (type(one), type(other))
    assert one.dtype == other.dtype and one.shape == other.shape, (one.dtype, other.dtype)
    assert (np.asarray(one) == np.asarray(other)).all(), (one, other)
"""


def program(body: str) -> str:
    """Returns a program with the helpers before its body."""
    return HELPERS + textwrap.dedent(body)


def test_whole_numbers_of_python_are_combined_exactly(run):
    run(
        3,
        program(
            """
            big = 2**62 + me
            assert job.all_reduce(big) == 3 * 2**62 + 3 and type(job.all_reduce(big)) is int
            assert job.all_reduce(2**70) == 3 * 2**70 and job.all_reduce(-(2**63)) == -3 * 2**63
            assert job.all_reduce(big, "product") == 2**62 * (2**62 + 1) * (2**62 + 2)
            assert job.all_reduce(2**70 + me, "max") == 2**70 + 2
            assert job.all_reduce(2**70 + me, "min") == 2**70
            assert job.all_reduce(1 << (70 + me), "or") == 7 << 70
            assert job.all_reduce(3 << (70 + me), "and") == 0
            assert job.all_reduce(-1 - me, "xor") == (-1 ^ -2 ^ -3)
            assert job.reduce(big, root=1) == (3 * 2**62 + 3 if me == 1 else None)
            assert job.scan(2**62) == (me + 1) * 2**62
            assert job.exclusive_scan(2**62) == (me * 2**62 if me else None)
            assert job.reduce_scatter([2**62 + r for r in range(n)]) == 3 * (2**62 + me)
            sums = job.all_reduce([2**62, -1])
            assert sums.tolist() == [3 * 2**62, -3] and sums.dtype == object
            assert job.all_reduce([[1, 2], [3, 4]]).tolist() == [[3, 6], [9, 12]]
            assert job.all_reduce([1, 2]).dtype == "i8"
            assert job.reduce_scatter([[2**62, 1]] * n).tolist() == [3 * 2**62, 3]
            assert job.scan([2**62, 0]).tolist() == [(me + 1) * 2**62, 0]
            assert job.all_reduce((5 - me, me), "min_location").tolist() == [3, 2]
            assert job.start_all_reduce(2**62).wait() == 3 * 2**62
            # Those of NumPy wrap, as NumPy says.
            half = np.int64(2**62)
            assert job.all_reduce(np.array([half])).tolist() == [3 * 2**62 - 2**64]
            assert job.all_reduce(half) == 3 * 2**62 - 2**64
            refused(lambda: job.all_reduce(2**127))
            refused(lambda: job.all_reduce(2**200 if me == 1 else 1))
            refused(lambda: job.all_reduce(1 if me == 0 else 1.5), oikaze.MismatchError)
            refused(lambda: job.all_reduce(1 if me == 0 else np.int64(1)), oikaze.MismatchError)
            refused(lambda: job.all_reduce([1, 2] if me == 0 else [1, 2, 3]))
            refused(lambda: job.all_reduce([1, 2] if me == 0 else [[1], [2]]))
            refused(lambda: job.all_reduce([[1, 2], [3]]))
            refused(lambda: job.all_reduce(1, "sum" if me else "max"), oikaze.MismatchError)
            refused(lambda: job.all_reduce(1) if me else job.scan(1), oikaze.MismatchError)
            refused(lambda: job.all_reduce(1, "average"), oikaze.InvalidError)
            import operator
            assert job.all_reduce(2**200, operator.add) == 3 * 2**200
            job.barrier()
            """
        ),
    )


def test_arrays_of_other_shapes_or_dtypes_are_refused_on_all(run):
    run(
        2,
        program(
            """
            def late(call):
                failures = 0
                for step in (call, lambda: job.all_gather(me)):
                    try:
                        step()
                    except oikaze.MismatchError:
                        failures += 1
                assert failures and job.all_gather(me) == list(range(n))
            def other(shape, one, dtype="f8", second="f8"):
                return np.zeros(one if me else shape, second if me else dtype)
            for shape, one in (((2, 3), (3, 2)), ((6,), (2, 3)), ((1,), ()), ((2, 2), (4, 1))):
                mine = other(shape, one)
                for call in (
                    lambda: job.all_gather(mine), lambda: job.all_reduce(mine),
                    lambda: job.all_reduce(mine, np.add), lambda: job.all_gather(mine.astype("f2")),
                    lambda: job.all_gather(mine.astype(object)),
                ):
                    text = refused(call, oikaze.MismatchError)
                # A rank whose part is done gets the error from its next collective (COLL-3.5).
                for call in (
                    lambda: job.gather(mine, root=1), lambda: job.reduce(mine, root=1),
                    lambda: job.scan(mine), lambda: job.exclusive_scan(mine),
                    lambda: job.broadcast_into(mine),
                ):
                    late(call)
            wide = other((2, 3, 2), (2, 2, 3))
            refused(lambda: job.all_to_all(wide), oikaze.MismatchError)
            refused(lambda: job.reduce_scatter(wide), oikaze.MismatchError)
            for one, two in (("<f4", ">f4"), ("M8[s]", "M8[ms]"), ("f2", "i2"), ("S4", "i4"),
                             ([("a", "f4")], [("b", "f4")])):
                mine = other(6, 6, one, two)
                refused(lambda: job.all_gather(mine), oikaze.MismatchError)
            text = refused(lambda: job.all_gather(other((2, 3), (3, 2))))
            assert f"shape {(3, 2) if me else (2, 3)}" in text, text
            job.barrier()
            """
        ),
    )


def test_moves_take_arrays_of_any_dtype_and_length(run):
    run(
        3,
        program(
            """
            struct = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8],
                               "itemsize": 24})
            packed = np.dtype([("a", "i4"), ("b", "f8", (3,)), ("c", "S3")])
            for dtype in ("?", "i1", "f2", "f8", "c16", "longdouble", "clongdouble", "S5", "U3",
                          "M8[s]", "m8[ns]", ">f8", ">i2", "V7", struct, packed, "O"):
                for shape in ((4,), (2, 3), (), (0, 2)):
                    x = np.zeros(shape, dtype)
                    x[...] = np.ones(shape, "i1").astype(dtype) if x.dtype.kind not in "VO" else x
                    every = np.empty((n, *shape), x.dtype)
                    every[...] = x
                    same(job.all_gather(x), every)
                    got = job.gather(x, root=1)
                    same(got, every) if me == 1 else None
                    same(job.all_to_all(every), every)
                    same(job.broadcast(x if me == 2 else None, root=2), x)
                    part = job.scatter(every if me == 0 else None)
                    # Texts and objects alone are of Python.
                    assert shape == () or np.asarray(part).dtype == x.dtype, dtype
                    assert np.shape(part) == shape, (dtype, shape, part)
                    if x.dtype != object:
                        same(job.broadcast_into(x.copy()), x)
            refused(lambda: job.broadcast_into(np.zeros(2, "O")), oikaze.InvalidError)
            # Lengths may differ in the uneven forms, and in lists.
            mine = np.arange(me + 1, dtype="f2")
            lengths = [len(one) for one in job.all_gather_uneven(mine)]
            assert lengths == [1, 2, 3]
            got = job.gather_uneven(np.zeros((me, 2), "S3"), root=2)
            assert got is None if me != 2 else [one.shape for one in got] == [(0, 2), (1, 2), (2, 2)]
            rows = np.array_split(np.arange(7), n)
            assert (job.scatter(rows if me == 0 else None) == rows[me]).all()
            got = job.all_to_all([np.full(to, me, "f2") for to in range(n)])
            assert [one.tolist() for one in got] == [[r] * me for r in range(n)]
            refused(lambda: job.all_gather(mine), oikaze.MismatchError)
            refused(lambda: job.scatter(np.arange(7) if me == 0 else None))
            for bad in ({1: 1, 2: 2, 3: 3}, {1, 2, 3}, 5, np.array(3.0)):
                refused(lambda: job.scatter(bad if me == 0 else None))
                refused(lambda: job.all_to_all(bad))
                refused(lambda: job.reduce_scatter(bad))
            refused(lambda: job.all_gather(mine) if me else job.all_gather("word"))
            # All ranks learn of a value that cannot be pickled.
            for call in (job.all_gather, job.gather, job.broadcast, job.all_gather_uneven):
                assert "pickle" in refused(lambda: call((lambda: 1) if me == 0 else 1))
            refused(lambda: job.scatter([lambda: 1] * n if me == 0 else None))
            refused(lambda: job.all_to_all([lambda: 1] * n if me == 0 else [1] * n))
            job.barrier()
            """
        ),
    )


def test_functions_are_compared_by_their_collective(run):
    run(
        2,
        program(
            """
            join = lambda one, two: one + two
            refused(lambda: job.all_reduce("a", join) if me else job.scan("a", join))
            refused(lambda: job.all_reduce("a", join) if me else job.all_gather("a"))
            x = np.zeros(3)
            refused(lambda: job.all_reduce(x, join) if me else job.all_gather(x))
            job.barrier()
            """
        ),
    )


def test_arrays_that_mean_more_are_kept_or_refused(run):
    run(
        2,
        program(
            """
            masked = np.ma.masked_array([1.0, 2.0, 999.0], mask=[False, False, True])
            class Metres(np.ndarray):
                "As arrays with units are."
            class Table:
                "As a table of pandas is."
                def __array__(self, dtype=None, copy=None):
                    return np.arange(3.0)
            for more in (masked, np.arange(3.0).view(Metres), np.matrix([[1.0, 2.0]]),
                         np.ma.masked, np.zeros(2, [("a", "f8")]).view(np.recarray)):
                for call in (
                    lambda: job.all_reduce(more), lambda: job.reduce(more), lambda: job.scan(more),
                    lambda: job.exclusive_scan(more), lambda: job.sum_exact(more),
                    lambda: job.all_reduce([more, more]), lambda: job.reduce_scatter([more] * n),
                    lambda: job.broadcast_into(more),
                    lambda: job.all_reduce(more if me else np.zeros(3)),
                    lambda: job.all_reduce(np.zeros(3), out=more),
                ):
                    refused(call)
            for call in (job.all_reduce, job.sum_exact, job.broadcast_into):
                refused(lambda: call(Table()), oikaze.InvalidError)
            # Moved as other values, and combined by functions, with the mask.
            for got in job.all_gather(masked) + [job.broadcast(masked if me == 0 else None)]:
                assert got.mask.tolist() == [False, False, True]
            total = job.all_reduce(masked, lambda one, two: one + two)
            assert total.mask.tolist() == [False, False, True] and total[0] == 2
            assert type(job.all_gather(np.matrix([[1.0]]))[0]) is np.matrix
            refused(lambda: job.all_gather(masked if me else np.zeros(3)))
            job.barrier()
            """
        ),
    )


def test_memory_of_masked_arrays_is_refused_everywhere(alone):
    alone(
        program(
            """
            masked = np.ma.masked_array([1.0, 2.0, 999.0], mask=[False, False, True])
            inbox = job.publish("inbox", 4096, oikaze.Rights.ALL)
            there = job.peer(0).region("inbox")
            array = job.array("a", 3)
            for call in (
                lambda: there.put(0, masked), lambda: there.get_into(0, masked),
                lambda: there.put_block(0, masked, strides=(8,)),
                lambda: there.accumulate(0, masked, "sum"), lambda: inbox.write(0, masked),
                lambda: job.peer(0).send(masked), lambda: job.post_receive(masked),
                lambda: job.publish("more", masked, oikaze.Rights.ALL),
                lambda: array.__setitem__(slice(None), masked), lambda: array.fill_all(masked[2]),
                lambda: array.shared.put_elements(0, masked),
                lambda: array.shared.accumulate(0, masked), lambda: array.fetch_add(0, masked[2]),
                lambda: array.shared.compare_exchange(0, 0.0, np.ma.masked),
            ):
                assert "mask" in refused(call, oikaze.InvalidError)
            # The bytes of these are all that they have.
            there.put(0, np.matrix([[1.0, 2.0]])).wait()
            there.put(0, np.zeros(2, [("a", "f8")]).view(np.recarray)).wait()
            there.put(0, array).wait()
            array[:] = [1, 2, 3]
            array[0], array[1:] = 7, array[:2]
            assert array.tolist() == [7, 1, 2] or array.tolist() == [7, 7, 2]
            """
        )
    )


def test_arrays_within_values_are_aligned(run):
    run(
        2,
        program(
            """
            for text in range(70):
                value = {"text": "x" * text, "a": np.arange(5.0), "b": np.arange(3, dtype="u1"),
                         "c": np.arange(7, dtype="c16"), "d": np.zeros(0), "e": np.arange(3.0)}
                for got in (job.broadcast(value if me == 0 else None), job.all_gather(value)[1],
                            job.scatter([value] * n if me == 0 else None)):
                    for name in "abcde":
                        assert got[name].flags.aligned and got[name].ctypes.data % 16 == 0, name
                        assert (got[name] == value[name]).all() and got[name].flags.writeable
            job.barrier()
            """
        ),
    )


def test_names_of_fields_come_back_from_files(run, tmp_path):
    run(
        2,
        program(
            f"""
            folder = {str(tmp_path)!r}
            names = ["a b", "größe", "数", "it's", 'say "x"', "back\\\\slash", "a.b", "v[3]", "tab\\t",
                     "new\\nline", "x]", "[0]", "'shape': (9,)", "☃"]
            for number, name in enumerate(names):
                kind = np.dtype([(name, "f8"), ("c", "i4", (2,)), ("in", [("x", "f4"), (name, "u1")])])
                array = job.array(f"a{{number}}", 7, kind)
                rows = np.zeros(7, kind)
                rows[name], rows["c"], rows["in"]["x"] = np.arange(7), 3, 0.5
                if me == 0:
                    array[:] = rows
                    np.save(f"{{folder}}/numpy{{number}}.npy", rows)
                    with open(f"{{folder}}/third{{number}}.npy", "wb") as file:
                        np.lib.format.write_array(file, rows, version=(3, 0))
                job.barrier()
                array.save(f"{{folder}}/own{{number}}.npy")
                read = np.load(f"{{folder}}/own{{number}}.npy")
                assert read.dtype == kind and (read == rows).all(), (name, read.dtype)
                for source in ("numpy", "third", "own"):
                    array.fill_all(np.zeros((), kind)[()])
                    array.load(f"{{folder}}/{{source}}{{number}}.npy")
                    assert (np.asarray(array) == rows).all(), (name, source)
                    job.barrier()
            job.barrier()
            """
        ),
    )


def test_tensors_of_older_dlpack_are_destinations(alone):
    alone(
        program(
            """
            class Tensor:
                "Memory that another library shows by a capsule without a version."
                def __init__(self, array):
                    self.array = array
                def __dlpack__(self, stream=None):
                    return self.array.__dlpack__()
                def __dlpack_device__(self):
                    return self.array.__dlpack_device__()
            class Versioned(Tensor):
                def __dlpack__(self, **options):
                    return self.array.__dlpack__(**options)
            inbox = job.publish("inbox", 4096, oikaze.Rights.ALL)
            there = job.peer(0).region("inbox")
            for kind in (Tensor, Versioned):
                there.put(0, kind(np.arange(8.0))).wait()
                into = np.zeros(8)
                there.get_into(0, kind(into)).wait()
                assert (into == np.arange(8.0)).all()
                grid = np.zeros((4, 2))
                there.get_block_into(0, kind(grid), strides=(16, 8)).wait()
                assert (grid.ravel() == into).all()
                job.peer(0).send(np.full(8, 3.0))
                job.post_receive(kind(into)).wait()
                assert (into == 3).all()
                tensor = kind(into)
                assert job.broadcast_into(tensor) is tensor
                assert job.all_reduce(np.full(8, 5.0), out=tensor) is tensor and (into == 5).all()
                assert job.all_reduce(np.full(8, 6.0), max, out=tensor) is tensor
                assert (into == 6).all() and (job.all_reduce(kind(into)) == 6).all()
                memory = job.publish(kind.__name__, kind(np.zeros(512)), oikaze.Rights.ALL)
            fixed = np.arange(8.0)
            fixed.flags.writeable = False
            for kind in (Tensor, Versioned):
                refused(lambda: there.get_into(0, kind(fixed)), oikaze.Error)
                refused(lambda: job.broadcast_into(kind(fixed)), oikaze.Error)
            """
        )
    )


def test_views_that_outlive_a_guard_are_told(alone):
    alone(
        program(
            """
            import gc
            array = job.guarded_array("g", (64, 512), "f8")
            def told(body, leaves=True):
                with warnings.catch_warnings(record=True) as found:
                    warnings.simplefilter("always")
                    kept = body()
                kinds = [one.category for one in found]
                assert kinds == ([oikaze.ViewWarning] if leaves else []), (body, found)
                assert not found or found[0].filename == "<string>"
                return kept
            def kept(make):
                def body():
                    with array.writing[0:4] as part:
                        return make(part)
                return body
            for make in (
                lambda part: part[0], lambda part: part[:, 1:3], lambda part: part.T,
                lambda part: part.reshape(-1), lambda part: part.view("u8"),
                lambda part: part[1:][0][2:], lambda part: np.split(part, 2),
                lambda part: part[0].view(np.matrix), lambda part: memoryview(part[0]),
                lambda part: np.asarray(part)[1], lambda part: part[0].data,
            ):
                told(kept(make))
            for make in (
                lambda part: part, lambda part: part.copy(), lambda part: part + 1,
                lambda part: part[0].sum(), lambda part: part.tolist(), lambda part: [part, part],
                lambda part: part.__setitem__(0, 1),
            ):
                held = told(kept(make), leaves=False)
            part = told(kept(lambda part: part), leaves=False)
            try:
                part[0] = 1
            except ValueError:
                pass
            else:
                raise AssertionError("the array of an ended guard takes stores")
            def cycle(part):
                loop = [part[0]]
                loop.append(loop)
            told(kept(cycle), leaves=False)
            def fails(part):
                row = part[0]
                raise KeyError
            def caught(part):
                try:
                    fails(part)
                except KeyError:
                    pass
            told(kept(caught), leaves=False)
            def through():
                try:
                    with array.writing[0:4] as part:
                        fails(part)
                except KeyError:
                    pass
            told(through, leaves=False)
            def read():
                with array.reading[0:4] as part:
                    return part[0]
            told(read, leaves=False)
            def released():
                guard = array.merging[0:4]
                row = guard.part[0]
                guard.release()
                guard.release()
                return row
            told(released)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    kept(lambda part: part[0])()
                except oikaze.ViewWarning as warning:
                    assert "copy" in str(warning)
                else:
                    raise AssertionError("no error")
            job.barrier()
            """
        )
    )


def test_views_that_outlive_an_array_are_told(alone):
    alone(
        program(
            """
            def told(body, leaves=True):
                with warnings.catch_warnings(record=True) as found:
                    warnings.simplefilter("always")
                    result = body()
                kinds = [one.category for one in found]
                assert kinds == ([oikaze.ViewWarning] if leaves else []), found
                return result
            def is_fixed(array):
                try:
                    array[0] = 1
                except ValueError:
                    return True
                return False
            first = job.array("a", (8, 512))
            row = first[0]
            second = told(lambda: first.resized((16, 512)))
            assert is_fixed(first) and not is_fixed(second)
            third = told(lambda: second.redistributed(oikaze.Distribution.cyclic(1)), leaves=False)
            assert is_fixed(second) and not is_fixed(third)
            rows = third[1:3][0]
            told(lambda: third.free())
            fourth = job.array("b", 512)
            view = fourth.shared
            del fourth
            told(lambda: view.resize(1024), leaves=False)
            """
        )
    )


def test_shapes_and_counts_are_whole_numbers(alone):
    alone(
        program(
            """
            for shape in (1.5, (2, 1.5), "3", None, True, (2, True), -1, (2, -1), np.float64(2),
                          (np.True_,), 2**70):
                refused(lambda: job.array("a", shape))
                refused(lambda: job.guarded_array("a", shape))
            array = job.array("a", (np.int64(2), np.uint8(3)))
            assert array.shape == (2, 3)
            for shape in (1.5, True, -1):
                refused(lambda: array.shared.resize(shape))
            inbox = job.publish("inbox", 4096, oikaze.Rights.ALL)
            there = job.peer(0).region("inbox")
            for call in (
                lambda: job.broadcast(1, root=True), lambda: job.peer(True),
                lambda: there.put(True, b"x"), lambda: there.get(0, True),
                lambda: array.fetch_add((True, 0), 1), lambda: job.publish("b", True, oikaze.Rights.ALL),
                lambda: oikaze.Distribution.block(True), lambda: array.home(True),
                lambda: job.broadcast(1, root=-1), lambda: there.put(-1, b"x"),
            ):
                refused(call)
            for call in (
                lambda: job.peer(0.0), lambda: there.put(1.5, b"x"), lambda: there.get(0, 1.5),
                lambda: array.shared.get_elements(0, 1.5), lambda: job.broadcast(1, root=1.5),
            ):
                try:
                    call()
                except (TypeError, oikaze.InvalidError):
                    pass
                else:
                    raise AssertionError("a fraction was accepted")
            # Values are no counts.
            there.store(0, True).wait()
            assert there.load(0).wait() == 1
            """
        )
    )


@pytest.mark.parametrize("operator", ["sum", "max"])
def test_bytes_of_numbers_stay_of_their_kind(run, operator):
    run(
        2,
        program(
            f"""
            assert type(job.all_reduce(0.5, {operator!r})) is float
            assert type(job.all_reduce(np.float32(0.5), {operator!r})) is np.float32
            assert job.all_reduce(np.zeros((), "f4"), {operator!r}).shape == ()
            assert job.all_reduce([0.5, 1], {operator!r}).dtype == "f8"
            assert job.all_reduce(bytearray(b"ab"), {operator!r}).dtype == "u1"
            assert job.all_reduce(range(3), {operator!r}).dtype == "i8"
            job.barrier()
            """
        ),
    )


def test_results_over_shared_arrays_have_the_types_of_numpy(alone):
    alone(
        program(
            """
            shared = job.array("a", (4, 5))
            shared[:] = plain = np.arange(20.0).reshape(4, 5) + 1
            zero = shared[1, 2, ...]
            out = job.array("out", (4, 5))
            for call in (
                lambda a: a.sum(), lambda a: a.sum(axis=0), lambda a: a.sum(keepdims=True),
                lambda a: a.sum(axis=(0, 1)), lambda a: a.prod(), lambda a: a.mean(),
                lambda a: a.mean(axis=1), lambda a: a.std(), lambda a: a.var(ddof=1),
                lambda a: a.min(), lambda a: a.max(axis=0), lambda a: a.argmax(), lambda a: a.argmin(0),
                lambda a: a.all(), lambda a: a.any(), lambda a: a.cumsum(), lambda a: a.trace(),
                lambda a: a.ptp() if hasattr(a, "ptp") else np.ptp(a), lambda a: a.round(1),
                lambda a: np.sum(a), lambda a: np.median(a), lambda a: np.percentile(a, 50),
                lambda a: np.linalg.norm(a), lambda a: np.dot(a.ravel(), a.ravel()),
                lambda a: np.average(a), lambda a: np.nansum(a), lambda a: np.count_nonzero(a),
                lambda a: np.add.reduce(a, axis=None), lambda a: np.maximum.reduce(a),
                lambda a: np.add.accumulate(a), lambda a: np.add.outer(a[0], a[1]),
                lambda a: np.sqrt(a), lambda a: a + 1, lambda a: 1 - a, lambda a: a @ a.T,
                lambda a: a[0] @ a[1], lambda a: np.sqrt(a[1, 2, ...]), lambda a: a > 3,
                lambda a: np.divmod(a, 3)[1], lambda a: np.modf(a)[0], lambda a: a.item(3),
                lambda a: a[1, 2], lambda a: f"{a.sum():.1f} {a.mean():.2f}", lambda a: float(a.max()),
                lambda a: np.where(a > 3, a, 0), lambda a: np.clip(a, 1, 3), lambda a: np.einsum("ij->", a),
            ):
                of_shared, of_plain = call(shared), call(plain)
                assert np.array_equal(of_shared, of_plain), (of_shared, of_plain)
                if not isinstance(of_plain, np.ndarray):
                    assert type(of_shared) is type(of_plain), (type(of_shared), type(of_plain))
            for call in (
                lambda a: a + 1, lambda a: np.sqrt(a), lambda a: a.sum(axis=0), lambda a: a > 3,
                lambda a: np.add.accumulate(a), lambda a: a.sum(keepdims=True), lambda a: a @ a.T,
                lambda a: np.divmod(a, 3)[0], lambda a: a.mean(axis=1),
            ):
                assert type(call(shared)) is np.ndarray
            into = np.zeros(5)
            assert shared.sum(axis=0, out=into) is into and (into == plain.sum(axis=0)).all()
            assert np.add(shared, 1, out=out) is out and type(out) is oikaze.Array
            assert (np.asarray(out) == plain + 1).all()
            place = np.zeros(())
            assert shared.sum(out=place) is place and place == plain.sum()
            inside = out[0, 0, ...]
            assert np.add(zero, 1, out=inside) is inside and out[0, 0] == plain[1, 2] + 1
            shared += 1
            assert type(shared) is oikaze.Array and shared[0, 0] == 2
            """
        )
    )


@pytest.mark.long
def test_values_are_those_of_numpy_1_as_well(tmp_path):
    if sys.version_info >= (3, 13):
        pytest.skip("NumPy 1.26 is not made for this Python")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(tmp_path), "numpy==1.26.*"], check=True)
    here = Path(__file__).parent
    files = [here / name for name in ("test_values.py", "test_arrays.py", "test_collectives.py")]
    pytest_of = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-c"]
    version = "import numpy; assert numpy.__version__.startswith('1.26')"
    found = environment(PYTHONPATH=str(tmp_path), OIKAZE_COMMAND=COMMAND)
    subprocess.run([sys.executable, "-c", version], env=found, check=True)
    subprocess.run([*pytest_of, here.parent / "pyproject.toml", *files], env=found, check=True)


@pytest.mark.parametrize("layout", ["target", "prefix", "broken"])
def test_command_of_an_installation_elsewhere_is_found(tmp_path, layout):
    # As pip lays it out. `--target` moves the files after it has written the list of them.
    site = tmp_path / "site" if layout == "target" else tmp_path / "lib/python3/site-packages"
    shutil.copytree(Path(oikaze.__file__).parent, site / "oikaze")
    record = site / "oikaze-0.1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: oikaze\nVersion: 0.1.0\n")
    above = "../../bin" if layout == "target" else "../../../bin"
    (record / "RECORD").write_text(f"oikaze/__init__.py,,\n{above}/oikaze,,\n")
    command = (site if layout == "target" else tmp_path) / "bin/oikaze"
    if layout != "broken":
        command.parent.mkdir()
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
    packages = Path(numpy.__file__).parent.parent
    find = "from oikaze._command import find; print(find())"
    paths = environment(PYTHONPATH=f"{site}:{packages}", PATH="/usr/bin:/bin")
    # Python itself, not that of a virtual environment, which has a command of its own.
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    done = subprocess.run(
        [python, "-c", find], capture_output=True, text=True, env=paths, check=False
    )
    if layout == "broken":
        assert done.returncode != 0 and "OIKAZE_COMMAND" in done.stderr, done.stdout + done.stderr
    else:
        assert done.stdout.strip() == str(command), done.stdout + done.stderr
