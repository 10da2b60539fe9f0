"""Shared arrays as ``numpy.ndarray``s over the shared pages."""

import numpy as np
import pytest


def test_plain_loads_and_stores_reach_all_nodes(run):
    done = run(
        3,
        """
        import numpy as np
        job = oikaze.join()
        old, new = (job.array(name, (300, 64), "f4") for name in ("p0", "p1"))
        assert isinstance(old, np.ndarray) and old.dtype == "f4" and old.shape == (300, 64)
        assert not old.any()
        job.barrier()
        lo, hi = new.home()
        assert (lo, hi) == (100 * job.rank, 100 * job.rank + 100)
        assert [new.home(rank) for rank in range(3)] == [(0, 100), (100, 200), (200, 300)]
        def relax(field, lo, hi):
            padded = np.pad(np.asarray(field), 1, mode="edge")
            return (padded[lo:hi, 1:-1] + padded[lo + 2:hi + 2, 1:-1]
                    + padded[lo + 1:hi + 1, :-2] + padded[lo + 1:hi + 1, 2:]) / 4
        start = np.random.default_rng(7).random((300, 64), "f4")
        old[lo:hi] = start[lo:hi]
        job.barrier()
        expected = start
        for step in range(4):
            new[lo:hi] = relax(old, lo, hi)
            expected = relax(expected, 0, 300)
            job.barrier()
            old, new = new, old
        assert (old == expected).all()
        job.barrier()
        print("done")
        """,
    )
    assert done.lines() == ["done"] * 3


def test_array_is_an_ndarray_in_all_respects(alone):
    alone(
        """
        import numpy as np, pickle, copy
        job = oikaze.join()
        counts = job.array("counts", 1000, "i8")
        counts += 3
        counts[10:20] *= 2
        assert counts.sum() == 3030 and type(counts + 1) is np.ndarray
        assert type(np.sqrt(counts)) is np.ndarray and isinstance(counts.sum(), np.int64)
        part = counts[10:20]
        assert part.base is not None and np.shares_memory(part, counts)
        part.fill(7)
        assert counts[15] == 7 and counts.shared.name == "counts"
        assert type(pickle.loads(pickle.dumps(counts))) is np.ndarray
        assert (pickle.loads(pickle.dumps(counts)) == counts).all()
        for call in (part.home, lambda: part.fill_all(1), lambda: copy.copy(part).free()):
            try:
                call()
            except oikaze.InvalidError as error:
                assert "view" in error.cause
            else:
                raise AssertionError("a view has no life of its own")
        """
    )


def test_array_that_one_rank_refuses_fails_on_all(run):
    run(
        2,
        """
        job = oikaze.join(time_limit=30)
        one = job.rank == 1
        calls = [
            lambda: job.array("a", 8, "O" if one else "f8"),
            lambda: job.array("a", 8, "no dtype" if one else "f8"),
            lambda: job.array(5 if one else "a", 8),
            lambda: job.array("a", "many" if one else 8),
            lambda: job.array("a", (-1, 8) if one else (1, 8)),
            lambda: job.array("a", 8, delivery="by mail" if one else None),
            lambda: job.guarded_array("a", 8, distribution="even" if one else None),
            lambda: job.array("", 8) if one else job.array("a", 8),
            lambda: job.array("a", [1] * (5 if one else 4)),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except Exception as error:
                told = isinstance(error, oikaze.MismatchError) and "1" in str(error)
                assert one or told, (number, error)
            else:
                raise AssertionError(f"call {number} was accepted")
            assert job.array(f"good {number}", 8).sum() == 0
        job.barrier()
        """,
    )


def test_views_outlive_job_and_array(alone):
    alone(
        """
        import gc
        job = oikaze.join()
        array = job.array("a", 4096, "u1")
        guarded = job.guarded_array("g", 4096, "u1")
        with guarded.writing[:] as mine:
            mine[:] = 5
        part = array[5:10]
        part[:] = 9
        del array, guarded
        gc.collect()
        assert part.tolist() == [9] * 5 and mine.tolist() == [5] * 4096
        job.leave()
        gc.collect()
        assert part.tolist() == [9] * 5 and mine.shape == (4096,)
        """
    )


def test_guards_read_and_write_blocks(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        for array in (job.guarded_array("guarded", (64, 32, 8)), job.array("plain", (64, 32, 8))):
            lo, hi = array.home()
            with array.writing[lo:hi] as mine:
                assert mine.shape == (32, 32, 8) and not mine.any()
                mine[:] = job.rank + 1
            job.barrier()
            with array.reading[lo - 1 if lo else 0:hi + 1, 3, ...] as halo:
                assert not halo.flags.writeable and halo.shape == (33, 1, 8)
                assert sorted(set(halo.ravel())) == [1, 2]
            job.barrier()
            with array.writing[lo:lo + 1, 5:7, 2:4] as block:
                assert block.shape == (1, 2, 2)
                block[0, 0, 0] = 50
            assert not block.flags.writeable
            job.barrier()
            everything = array.reading[:]
            assert (everything.part[[0, 32], 5, 2] == 50).all()
            assert everything.part.sum() == 64 * 32 * 8 * 1.5 + 100 - 3
            everything.release()
            everything.release()
            job.barrier()
        shared = array.shared
        for index, cause in [
            (np.s_[::2], "step"), (np.s_[0, 0, 0, 0], "4 indices"), (np.s_[64], "outside"),
        ]:
            try:
                shared.reading[index]
            except oikaze.InvalidError as error:
                assert cause in error.cause and error.remedy
            else:
                raise AssertionError(index)
        guard = shared.reading[0:1]
        try:
            job.barrier()
        except oikaze.InvalidError as error:
            assert "guard" in str(error)
        else:
            raise AssertionError("a guard is alive at the barrier")
        guard.release()
        job.barrier()
        """,
    )


def test_merging_and_pushing(run):
    run(
        2,
        """
        job = oikaze.join()
        array = job.guarded_array("shared page", 512, "f8")
        with array.merging[job.rank * 100:job.rank * 100 + 100] as mine:
            mine[:] = job.rank + 1
        job.barrier()
        with array.reading[0:200] as part:
            assert part.tolist() == [1] * 100 + [2] * 100
        job.barrier()
        if job.rank == 0:
            guard = array.writing[0:10]
            guard.part[:] = 9
            guard.push_to([1])
            guard.release()
        job.barrier()
        with array.reading[0:10] as part:
            assert (part == 9).all()
        job.barrier()
        """,
    )


def test_atomic_elements_and_bulk_transfers(run):
    run(
        3,
        """
        import numpy as np
        job = oikaze.join()
        counts = job.array("counts", (8, 8), "i4")
        tickets = [int(counts.fetch_add((3, 4), 1)) for _ in range(10)]
        assert len(set(tickets)) == 10
        job.barrier()
        shared = counts.shared
        assert shared.fetch_combine((3, 4), "max", 7) == 30
        job.barrier()
        if job.rank == 0:
            assert shared.compare_exchange((3, 4), 30, -5) == 30
            assert shared.compare_exchange((3, 4), 30, -6) == -5
            shared.put_elements(8, np.arange(8, dtype="i4"))
        job.barrier()
        shared.accumulate(8, np.ones(8, "i4"))
        job.barrier()
        assert shared.get_elements(8, 16).tolist() == [n + 3 for n in range(8)]
        assert counts[1].tolist() == [n + 3 for n in range(8)]
        try:
            counts.fetch_add((8, 0), 1)
        except oikaze.Error as error:
            assert error.cause
        job.barrier()
        """,
    )


def test_distributions_and_homes(run):
    run(
        3,
        """
        import numpy as np
        job = oikaze.join()
        D = oikaze.Distribution
        cyclic = job.array("cyclic", (90, 512), distribution=D.cyclic(10))
        assert len(cyclic.shared.home_blocks()) == 3
        for block in cyclic.shared.home_blocks():
            cyclic[block] = job.rank
        columns = job.array("columns", (4, 3 * 512), distribution=D.block(axis=1))
        assert columns.home_block(1) == (slice(0, 4), slice(512, 1024))
        owners = job.array("owners", (3, 512), distribution=D.explicit([2, 2, 0]))
        assert owners.shared.home_of((1, 5)) == 2 and owners.shared.home_of((2, 0)) == 0
        assert owners.shared.home_of((3, 0)) is None
        by_pages = job.array("pages", 10 * 512, distribution=D.by_pages(2))
        assert by_pages.shared.home_of(0) == 0 and by_pages.shared.home_of(1024) == 1
        job.barrier()
        assert (cyclic[:, 0].reshape(9, 10)[:, 0] == [0, 1, 2] * 3).all()
        moved = cyclic.redistributed(D.block())
        assert moved.home(2) == (60, 90) and (moved[::10, 7] == [0, 1, 2] * 3).all()
        job.barrier()
        grown = moved.resized((120, 512))
        assert grown.shape == (120, 512) and (grown[:90:10, 7] == [0, 1, 2] * 3).all()
        assert not grown[90:].any()
        job.barrier()
        """,
    )


def test_fill_subscriptions_and_files(run, tmp_path):
    run(
        2,
        f"""
        import numpy as np
        job = oikaze.join()
        array = job.array("a", (64, 512))
        array.fill_all(2.5)
        assert (array == 2.5).all()
        job.barrier()
        lo, hi = array.home()
        array.shared.subscribe_halo(np.s_[lo:hi], 1)
        array.shared.subscribe(np.s_[0:1])
        array.shared.prefetch(np.s_[0:1])
        array.shared.unsubscribe(np.s_[0:1])
        assert "fetches" in array.shared.statistics()
        array[lo:hi] = np.arange(lo, hi)[:, None]
        job.barrier()
        array.save({str(tmp_path / "a.npy")!r})
        array.fill_all(0)
        array.load({str(tmp_path / "a.npy")!r})
        assert (array == np.arange(64)[:, None]).all()
        try:
            array.load({str(tmp_path / "none.npy")!r})
        except oikaze.Error as error:
            assert "none.npy" in str(error)
        else:
            raise AssertionError("there is no such file")
        array.free()
        again = job.array("a", 8)
        assert again.shape == (8,)
        job.barrier()
        """,
    )
    assert (np.load(tmp_path / "a.npy") == np.arange(64)[:, None]).all()


def test_save_to_link_replaces_file_behind_it(run, tmp_path):
    real, link = tmp_path / "real.npy", tmp_path / "link.npy"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    run(
        2,
        f"""
        job = oikaze.join()
        array = job.array("a", 512)
        array.save({str(link)!r})
        for path in ("/dev/full", "/dev/stdout", {str(tmp_path)!r}):
            try:
                array.save(path)
            except oikaze.Error as error:
                assert path in str(error), error
            else:
                raise AssertionError(path)
        job.barrier()
        """,
    )
    assert link.is_symlink()
    assert np.load(real).shape == (512,)
    assert real.stat().st_mode & 0o777 == 0o600
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_structures_are_elements(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        body = np.dtype([("position", "f8", 3), ("mass", "f8"), ("id", "u4"), ("flags", "u2", 2)])
        bodies = job.array("bodies", 1000, body)
        lo, hi = bodies.home()
        bodies["mass"][lo:hi] = 2.0
        bodies[lo]["position"] = [1, 2, 3]
        job.barrier()
        assert bodies["mass"].sum() == 2000 and bodies[bodies.home(0)[0]]["position"][2] == 3
        job.barrier()
        """,
    )


@pytest.mark.parametrize(
    ("dtype", "cause"),
    [
        ("'O'", "not known"),
        ("'>f8'", "not known"),
        ("'f2'", "not known"),
        ("'U4'", "not known"),
        ("'M8[s]'", "not known"),
        ("np.dtype([('a', 'u1'), ('b', 'f8')], align=True)", "padding"),
        ("np.dtype([('a', [('b', 'u1')], 2)])", "array of structures"),
    ],
)
def test_bad_dtypes_are_refused(alone, dtype, cause):
    alone(
        f"""
        import numpy as np
        job = oikaze.join()
        try:
            job.array("bad", 8, {dtype})
        except oikaze.InvalidError as error:
            assert {cause!r} in error.cause and error.remedy and "bad" in error.operation, error
        else:
            raise AssertionError("it was accepted")
        """
    )


def test_nodes_that_disagree_are_told(run):
    run(
        2,
        """
        job = oikaze.join()
        try:
            job.array("a", 100 + job.rank)
        except oikaze.MismatchError as error:
            assert '"a"' in str(error) or "a" in error.operation
        else:
            raise AssertionError("the nodes disagree")
        """,
    )


def test_locks_carry_writes(run):
    run(
        3,
        """
        import numpy as np
        job = oikaze.join()
        counts = job.array("histogram", 16, "i8")
        for _ in range(10):
            with job.lock("histogram"):
                counts += np.arange(16)
        job.barrier()
        assert (counts == 30 * np.arange(16)).all()
        job.barrier()
        """,
    )


def test_views_of_replaced_arrays_show_old_values(run):
    run(
        2,
        """
        import gc
        job = oikaze.join()
        array = job.array("a", (64, 512))
        array.fill_all(3)
        lo, _ = array.home()
        view = array[lo:lo + 2]
        grown = array.resized((128, 512))
        for _ in range(3):
            job.barrier()
        gc.collect()
        # The last bytes that this node had; pages that never came are zero.
        assert (view == 3).all() and array[63 - lo, 511] in (0, 3)
        assert (grown[:64] == 3).all() and not grown[64:].any()
        job.barrier()
        """,
    )


@pytest.mark.parametrize(
    "dtype",
    [
        "{'names': ['a', 'b'], 'formats': ['u4', 'u8'], 'offsets': [8, 0], 'itemsize': 12}",
        "{'names': ['a', 'b'], 'formats': ['u8', 'u4'], 'offsets': [0, 0], 'itemsize': 12}",
    ],
)
def test_fields_out_of_order_are_refused(alone, dtype):
    alone(
        f"""
        import numpy as np
        job = oikaze.join()
        try:
            job.array("a", 10, np.dtype({dtype}))
        except oikaze.InvalidError as error:
            assert "align=False" in error.remedy, error.remedy
        else:
            raise AssertionError("fields that are not in their order")
        """
    )


def test_indices_are_integers(alone):
    alone(
        """
        import numpy as np
        job = oikaze.join()
        array = job.guarded_array("a", (10, 10))
        with array.writing[np.int64(3)] as row:
            row[:] = 1
        try:
            array.reading[1.9]
        except TypeError:
            pass
        else:
            raise AssertionError("a fraction is no index")
        """
    )


def test_nodes_without_rows_have_empty_homes_at_the_end(run):
    done = run(
        4,
        """
        import numpy as np
        job = oikaze.join()
        rows = 3
        old, new = (job.array(name, (rows, 2048), "f4") for name in ("p0", "p1"))
        assert sum(stop - start for start, stop in map(new.home, range(job.size))) == rows
        lo, hi = new.home()
        if lo == hi:
            assert (lo, hi) == (rows, rows) and new[new.home_block()].size == 0
        inner = slice(max(lo, 1), min(hi, rows - 1))
        if lo == 0:
            old[0], new[0] = 1, 1
        job.barrier()
        for step in range(5):
            above, below = (slice(inner.start + d, inner.stop + d) for d in (-1, 1))
            new[inner, 1:-1] = (
                old[above, 1:-1] + old[below, 1:-1] + old[inner, :-2] + old[inner, 2:]
            ) / 4
            job.barrier()
            old, new = new, old
        print(f"{float(np.abs(old[1]).max()):.4f}", hi - lo)
        job.barrier()
        with new.writing[lo:hi] as mine:
            mine[:] = 7
        job.barrier()
        assert (new == 7).all()
        job.barrier()
        """,
    )
    values = {line.split()[0] for line in done.lines()}
    assert len(values) == 1 and values != {"0.0000"}, done.lines()
    assert "0" in {line.split()[1] for line in done.lines()}


def test_why_not_shared_is_told_by_arrays(run):
    for without in ("", "segment"):
        done = run(
            2,
            """
            job = oikaze.join()
            plain, guarded = job.array("a", 512), job.guarded_array("b", 512)
            assert plain.why_not_shared == plain.shared.why_not_shared == guarded.why_not_shared
            print(plain.why_not_shared)
            job.barrier()
            """,
            OIKAZE_WITHOUT=without,
        )
        told = done.lines()
        if without:
            assert told == ["OIKAZE_WITHOUT=segment"] * 2, told
        else:
            assert told == ["None"] * 2, told


def test_guards_that_write_and_plain_arrays_of_all_nodes_go_together(run):
    # COH-16.8: a view of a guard that writes is a plain pointer, which refuses no other view.
    done = run(
        2,
        """
        job = oikaze.join()
        me = job.rank
        guarded, plain = job.guarded_array("guarded", 512), job.array("plain", 512)
        for array in (guarded, plain.shared):
            guard = array.writing[256 * me:256 * me + 256]
            guard.part[:] = me + 1
            # Both nodes have such a guard at the same time.
            job.peer(1 - me).send(b"").wait()
            job.receive(1 - me)
            guard.release()
            job.barrier()
            with array.merging[0:512] as mine:
                mine[me] = 10
            job.barrier()
            with array.reading[:] as everything:
                assert everything[:3].tolist() == [10, 10, 1] and everything[300] == 2
            job.barrier()
        assert plain[:3].tolist() == [10, 10, 1]
        print("done")
        """,
    )
    assert done.lines() == ["done"] * 2


@pytest.mark.parametrize(
    "change",
    [
        "faulthandler.enable()",
        "faulthandler.enable(); faulthandler.disable()",
        "signal.signal(signal.SIGSEGV, signal.SIG_DFL)",
        "signal.signal(signal.SIGBUS, signal.SIG_DFL)",
        "signal.signal(signalnum=signal.SIGSEGV, handler=lambda *_: None)",
    ],
)
def test_handlers_changed_before_a_touch_leave_pages_tracked(run, change):
    # COH-8.6: also where `faulthandler` was on before the job was joined.
    for before in ("", "faulthandler.enable()"):
        done = run(
            2,
            f"""
            import faulthandler, signal
            {before}
            job = oikaze.join(time_limit=60)
            a = job.array("a", (8 * 512, 4))
            for step in (1, 2):
                lo, hi = a.home()
                a[lo:hi] = step * (job.rank + 1)
                job.barrier()
                {change}
                assert float(a.sum()) == step * 4 * 512 * 8 * 1.5
                job.barrier()
            print("goes on")
            """,
            OIKAZE_WITHOUT="uffd,segment",
        )
        assert done.lines() == ["goes on"] * 2


@pytest.mark.parametrize("toggles", ["", "faulthandler.disable(); faulthandler.enable()"])
def test_crash_with_faulthandler_after_an_array_ends_with_one_traceback(alone, toggles):
    # COH-8.6: each handler is called at most once for a fault.
    crash = f"""
        import ctypes, faulthandler, resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        enable = faulthandler.enable
        job = oikaze.join()
        a = job.array("a", 4096)
        enable()  # unseen by the package
        a[:] = 1
        job.barrier()
        {toggles}
        ctypes.string_at(8)
        """
    done = alone(crash, succeeds=False, OIKAZE_WITHOUT="uffd")
    assert done.status == -11, (done.status, done.err)
    assert done.err.count("Fatal Python error: Segmentation fault") == 1, done.err


def test_crash_after_faulthandler_was_disabled_ends_the_process(alone):
    # COH-8.6.
    crash = """
        import ctypes, faulthandler, resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        job = oikaze.join()
        a = job.array("a", 4096)
        faulthandler.enable()
        faulthandler.disable()
        ctypes.string_at(8)
        """
    done = alone(crash, succeeds=False, OIKAZE_WITHOUT="uffd")
    assert (done.status, done.err) == (-11, "")
