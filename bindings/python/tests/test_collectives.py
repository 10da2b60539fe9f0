"""Collectives on numbers, arrays and other values, and teams."""

import pytest


def test_values_of_all_kinds(run):
    run(
        3,
        """
        import numpy as np
        job = oikaze.join()
        me, n = job.rank, job.size
        assert job.all_reduce(me + 1) == 6 and type(job.all_reduce(1)) is int
        assert job.all_reduce(0.5, "sum") == 1.5 and type(job.all_reduce(0.5)) is float
        assert job.all_reduce(np.float32(2), "product") == 8
        assert job.all_reduce(1 + 2j) == 3 + 6j
        assert job.all_reduce(me, "max") == 2 and job.all_reduce(me, "min") == 0
        assert job.all_reduce(1 << me, "or") == 7 and job.all_reduce(me < 2, "and") is False
        assert job.all_reduce([1, 2]).tolist() == [3, 6]
        x = np.arange(5000.0) + me
        assert (job.all_reduce(x) == 3 * np.arange(5000.0) + 3).all()
        out = np.empty_like(x)
        assert job.all_reduce(x, "max", out=out) is out and (out == x - me + 2).all()
        grid = np.full((3, 4), me, "i4")
        assert job.all_reduce(grid).shape == (3, 4) and job.all_reduce(grid).dtype == "i4"
        assert (job.all_reduce(grid.T[::-1]) == 3).all()
        assert job.reduce(me, root=2) == (3 if me == 2 else None)
        assert job.all_gather(me) == [0, 1, 2]
        assert job.all_gather({"rank": me, "x": x[:me]})[2]["x"].tolist() == [2.0, 3.0]
        assert job.all_gather(grid).shape == (3, 3, 4)
        gathered = job.gather(grid, root=1)
        assert (gathered[:, 0, 0].tolist() == [0, 1, 2]) if me == 1 else gathered is None
        assert job.gather("word", root=0) == (["word"] * 3 if me == 0 else None)
        value = {"table": np.arange(10), "name": "n"} if me == 1 else None
        value = job.broadcast(value, root=1)
        assert value["name"] == "n" and value["table"].tolist() == list(range(10))
        value["table"][0] = 5  # writable
        same = np.full(1000, float(me))
        assert job.broadcast_into(same, root=2) is same and (same == 2).all()
        assert job.scatter([10, 11, 12] if me == 0 else None) == 10 + me
        rows = np.arange(12.0).reshape(3, 4)
        assert (job.scatter(rows if me == 0 else None) == rows[me]).all()
        assert job.all_to_all([f"{me}->{to}" for to in range(n)])[2] == f"2->{me}"
        assert (job.all_to_all(np.arange(3) + 10 * me) == [me, 10 + me, 20 + me]).all()
        assert job.scan(me + 1) == [1, 3, 6][me]
        assert job.exclusive_scan(me + 1) == [None, 1, 3][me]
        assert job.reduce_scatter([1, 2, 3]) == 3 * (me + 1)
        assert (job.reduce_scatter(rows) == 3 * rows[me]).all()
        assert (job.reduce_scatter(rows.tolist()) == 3 * rows[me]).all()
        assert job.all_reduce(np.array([[5 - me, me]]), "min_location").tolist() == [[3, 2]]
        assert job.sum_exact([1e16, 1.0, -1e16]) == 3.0
        job.barrier()
        """,
    )


def test_short_values_meet_those_of_a_rank_that_takes_the_long_way(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        me = job.rank

        def called(call, *given):
            # A call with a time limit takes the long way.
            return call(*given) if me == 0 else call(*given, timeout=60)

        for name, expected in [("sum", 2.0), ("product", 0.75), ("min", 0.5), ("max", 1.5)]:
            value = called(job.all_reduce, 0.5 + me, name)
            assert value == expected and type(value) is float
        for name, expected in [("sum", 13), ("product", 42), ("min", 6), ("or", 7), ("xor", 1)]:
            value = called(job.all_reduce, 6 + me, name)
            assert value == expected and type(value) is int
        # Numbers and results of more than 64 and 128 bits.
        assert called(job.all_reduce, [5, 2**100][me]) == 5 + 2**100
        assert called(job.all_reduce, [5, 2**127 - 1][me]) == 2**127 + 4
        assert called(job.all_reduce, [-(2**62), 2**120][me], "product") == -(2**182)
        for dtype in ["f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1"]:
            mine = np.arange(5).astype(dtype) + np.ones(1, dtype)
            for given in [mine, np.repeat(mine, 2)[::2]]:
                total = called(job.all_reduce, given)
                assert total.dtype == dtype and (total == 2 * mine).all()
                out = np.zeros(5, dtype)
                assert called(job.all_reduce, given, "max", out) is out and (out == mine).all()
                rows = called(job.all_gather, given)
                assert rows.shape == (2, 5) and rows.dtype == dtype and (rows[1] == mine).all()
                rows[0] = 0  # writable
            same = np.full(5, me, dtype)
            assert called(job.broadcast_into, same, 1) is same and (same == 1).all()
        mine = np.ones(3)
        assert called(job.all_reduce, mine, "sum", mine) is mine and (mine == 2).all()
        for wrong in [
            lambda: job.all_reduce(0.5, "xor"),
            lambda: job.all_reduce(1.5) if me == 0 else job.all_reduce(np.ones(1)),
            lambda: job.all_reduce(1.5) if me == 0 else job.all_reduce(1),
            lambda: job.broadcast_into(np.ones(3), 7),
            lambda: job.all_gather(np.ones(3 + me)),
        ]:
            try:
                wrong()
            except oikaze.Error:
                pass
            else:
                raise AssertionError("no error")
        fixed = np.ones(3)
        fixed.flags.writeable = False
        try:
            job.all_reduce(np.ones(3), "sum", fixed)
        except oikaze.InvalidError as error:
            assert "read-only" in str(error)
        assert job.all_reduce(1) == 2
        """,
    )


def test_broadcast_of_another_length_is_a_mismatch_in_every_way(run):
    """COLL-3.1: a call with a time limit takes the long way, and a small array the short one.

    The root, which does not wait, learns of it in one of the next calls.
    """
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        for ways in [(0, 0), (0, 1), (1, 0), (1, 1)]:
            given = {"timeout": 60} if ways[job.rank] else {}
            try:
                job.broadcast_into(np.ones(3 + job.rank), **given)
            except oikaze.MismatchError as error:
                assert "of 3 f64" in str(error) and "of 4 f64" in str(error), error
            else:
                assert job.rank == 0, f"no error: {ways}"
            for _ in range(5):
                try:
                    job.all_reduce(1)
                except oikaze.MismatchError:
                    pass
            assert job.all_reduce(1) == 2
        """,
    )


def test_functions_are_operators(run):
    run(
        3,
        """
        import numpy as np, threading
        job = oikaze.join()
        me = job.rank
        here = threading.get_ident()
        def join(first, second):
            assert threading.get_ident() == here
            return first + second
        assert job.all_reduce(str(me), join) == "012"
        assert job.reduce([me], join, root=1) == ([0, 1, 2] if me == 1 else None)
        assert job.scan(str(me), join) == "012"[:me + 1]
        assert job.exclusive_scan(str(me), join) == [None, "0", "01"][me]
        assert job.reduce_scatter([f"{me}{to}" for to in range(3)], join) == f"0{me}1{me}2{me}"
        matrix = np.array([[1.0, me], [0, 1]])
        assert (job.all_reduce(matrix, np.matmul) == [[1, 3], [0, 1]]).all()
        try:
            job.all_reduce(1, lambda first, second: first / 0)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("the exception of the operator is lost")
        job.barrier()
        """,
    )


def test_started_collectives_overlap_and_are_awaitable(run):
    run(
        2,
        """
        import asyncio, numpy as np
        job = oikaze.join()
        sums = [job.start_all_reduce(n) for n in range(20)]
        words = job.start_all_gather("word")
        assert [one.wait() for one in sums] == [2 * n for n in range(20)]
        assert words.wait(timeout=30) == words.wait() == ["word", "word"]
        async def many():
            all = await asyncio.gather(*(job.start_all_reduce(np.arange(4) + n) for n in range(5)))
            assert [one[0] for one in all] == [0, 2, 4, 6, 8]
            assert await job.start_broadcast("b" if job.rank == 1 else None, 1) == "b"
            doubled = job.start_all_reduce(1).then(lambda sum: sum * 10)
            assert await doubled == 20
        asyncio.run(many())
        queue = job.completion_queue()
        last = job.start_all_gather(1)
        last.report_to(queue, 3)
        assert queue.wait() == [(3, 0, None)] and last.wait() == [1, 1]
        try:
            job.start_all_gather(1).cancel()
        except oikaze.InvalidError as error:
            assert "collective" in error.cause
        job.barrier()
        """,
    )


def test_mistakes_are_told_to_all(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join(time_limit=30)
        other = job.rank
        for call in [
            lambda: job.all_reduce(np.zeros(3 + other)),
            lambda: job.all_reduce(1.0) if other else job.all_gather(np.zeros(1)),
            lambda: job.all_reduce(1.5, "xor"),
            lambda: job.broadcast(1, root=7),
        ]:
            try:
                call()
            except oikaze.Error as error:
                assert not isinstance(error, oikaze.TimeoutError), error
            else:
                raise AssertionError("no rank was told")
            job.barrier()
        for call in [
            lambda: job.all_reduce("text"), lambda: job.all_reduce(1, "average"),
            lambda: job.all_reduce(np.zeros(2, "O")), lambda: job.scatter([1], root=other),
            lambda: job.all_to_all([1, 2, 3]), lambda: job.all_to_all(5),
            lambda: job.all_reduce(np.zeros(3), "min_location"),
            lambda: job.all_reduce(1 << 127),
        ]:
            try:
                call()
            except ValueError as error:
                assert str(error)
            else:
                raise AssertionError("a bad call was accepted")
        job.barrier()
        """,
    )


def test_teams_have_collectives_of_their_own(run):
    run(
        4,
        """
        import numpy as np
        job = oikaze.join()
        team = job.split(job.rank % 2, key=-job.rank)
        assert team.size == 2 and team.ranks == [2 + job.rank % 2, job.rank % 2]
        assert team.rank == (0 if job.rank >= 2 else 1) and "rank" in repr(team)
        assert team.all_reduce(job.rank) == 2 + 2 * (job.rank % 2)
        assert team.broadcast(job.rank, root=0) == 2 + job.rank % 2
        assert team.all_gather(np.array([job.rank])).ravel().tolist() == team.ranks
        array = job.array("a", (4, 512))
        array[job.rank] = job.rank + 1
        team.barrier()
        assert {array[rank, 0] for rank in team.ranks} == {rank + 1 for rank in team.ranks}
        pair = team.split(0)
        assert pair.size == 2 and pair.all_reduce(1) == 2
        assert job.split(None if job.rank else 5) is None or job.rank == 0
        assert isinstance(team.algorithm("all-reduce", 8), str)
        job.barrier()
        """,
    )


def test_survivors_shrink(run):
    done = run(
        3,
        """
        import os
        job = oikaze.join(keep_going=True)
        job.barrier()
        if job.rank == 1:
            os._exit(3)
        try:
            job.all_reduce(1)
        except oikaze.PeerLostError:
            pass
        team = job.shrink()
        assert team.ranks == [0, 2] and team.all_reduce(job.rank) == 2
        print("survived", flush=True)
        """,
        "--keep-going",
        succeeds=False,
    )
    assert done.lines() == ["survived"] * 2, done.out + done.err


def test_results_go_to_arrays_of_their_type_only(alone):
    alone(
        """
        import numpy as np
        job = oikaze.join()
        values = np.arange(4.0)
        out = np.zeros(4)
        assert job.all_reduce(values, out=out) is out and (out == values).all()
        assert job.all_reduce(values, max, out=out) is out
        for wrong in (np.zeros(4, "i8"), np.zeros(8, "f4"), np.zeros((2, 2))):
            try:
                job.all_reduce(values, out=wrong)
            except oikaze.InvalidError as error:
                assert "empty_like" in error.remedy, error
            else:
                raise AssertionError(wrong.dtype)
        try:
            job.peer(0).send(np.array([{}, []], dtype=object))
        except oikaze.InvalidError as error:
            assert "pickle" in error.remedy, error
        else:
            raise AssertionError("objects were sent")
        """
    )


def test_calls_that_one_rank_refuses_fail_on_all(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join(time_limit=30)
        one = job.rank == 1
        class Unsendable:
            def __reduce__(self):
                raise TypeError("no pickle of this")
        bad = Unsendable()
        team = job.split(0)
        join = lambda first, second: first + second
        calls = [
            lambda: job.all_reduce("text" if one else 1.0),
            lambda: job.all_reduce(np.zeros(2, "O") if one else np.zeros(2)),
            lambda: job.all_reduce(1, "average" if one else "sum"),
            lambda: job.all_reduce(np.zeros(2), out=np.zeros(3 if one else 2)),
            lambda: job.all_reduce(bad if one else "a", join),
            lambda: job.all_gather(bad if one else "word"),
            lambda: job.broadcast(bad if one else None, root=1),
            lambda: job.broadcast_into(np.zeros(2, "O" if one else "f8"), root=1),
            lambda: job.gather(bad if one else 2, root=0),
            lambda: job.gather(1, root=-1 if one else 0),
            lambda: job.scatter([1] if one else None, root=1),
            lambda: job.all_to_all([1, 2, 3] if one else [1, 2]),
            lambda: job.all_to_all(5 if one else [1, 2]),
            lambda: job.reduce("text" if one else 2, root=0),
            lambda: job.reduce_scatter([1] if one else [1, 2]),
            lambda: job.sum_exact(["text"] if one else [1.0]),
            lambda: job.split(-1 if one else 0),
            lambda: team.all_gather(bad if one else "word"),
            lambda: team.all_reduce(1, "average" if one else "sum"),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except Exception as error:
                told = isinstance(error, oikaze.MismatchError) and "rank 1" in str(error)
                assert one or told, (number, error)
            else:
                raise AssertionError(f"call {number} was accepted")
            # Later collectives are not shifted.
            assert job.all_gather((job.rank, number)) == [(0, number), (1, number)]
            assert team.all_reduce(number) == 2 * number
        job.barrier()
        """,
    )


def test_threads_share_an_operation(alone):
    alone(
        """
        import threading
        job = oikaze.join()
        begun, go = threading.Event(), threading.Event()
        calls, results = [], []
        def first(values):
            calls.append(len(values))
            begun.set()
            go.wait()
            return values[0]
        operation = job.start_all_gather("abc").then(first).then(len)
        wait = lambda: results.append(operation.wait(timeout=60))
        threads = [threading.Thread(target=wait) for _ in range(4)]
        threads[0].start()
        begun.wait()
        [thread.start() for thread in threads[1:]]
        go.set()
        [thread.join() for thread in threads]
        assert results == [3] * 4 and calls == [1], (results, calls)
        assert operation.then(lambda length: -length).wait() == -3
        """
    )


def test_a_failed_conversion_loses_no_result(alone):
    alone(
        """
        job = oikaze.join()
        tries = []
        def second_time(values):
            tries.append(values)
            if len(tries) == 1:
                raise KeyboardInterrupt
            return values[0]
        operation = job.start_all_gather([1, 2]).then(second_time)
        try:
            operation.wait()
        except KeyboardInterrupt:
            pass
        assert operation.wait() == operation.wait() == [1, 2]
        assert tries == [[[1, 2]]] * 2, tries
        # A failure stays what it is, too.
        failed = job.start_all_reduce(1.5, "xor")
        causes = set()
        for _ in range(2):
            try:
                failed.wait()
            except oikaze.MismatchError as error:
                causes.add(error.cause)
        assert len(causes) == 1 and "Xor" in causes.pop()
        # A function cannot wait for what it makes.
        circle = job.start_all_gather(1)
        circle.then(lambda _: circle.wait())
        try:
            circle.wait()
        except oikaze.InvalidError as error:
            assert "argument" in error.remedy, error
        else:
            raise AssertionError("a circle ended")
        """
    )


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("value", "shown"),
    # The ranks exchange whole numbers of any length, and each adds them.
    [
        ("numpy.ones(3)", "all_reduce of 3 f64"),
        ("1", "all_reduce of values with Sum"),
        ("'a', lambda a, b: a", "all_reduce of values with an ordered function"),
    ],
)
def test_barrier_against_all_reduce_is_a_mistake_on_all_nodes(run, first, value, shown):
    # COLL-3.9.
    done = run(
        3,
        f"""
        import numpy
        job = oikaze.join(time_limit=60)
        calls = [job.barrier, lambda: job.all_reduce({value})]
        for call in (calls if job.rank == {first} else reversed(calls)):
            try:
                call()
            except oikaze.MismatchError as error:
                text = str(error)
                assert "calls barrier" in text and "calls {shown}" in text, text
                print("mistake")
        job.barrier()
        assert job.all_reduce(1) == 3
        """,
    )
    assert done.lines() == ["mistake"] * 6
