"""Remote memory with buffers of all kinds."""


def test_operations_reach_the_peer(run):
    # By shared memory, and by messages.
    source = """
        import numpy as np
        job = oikaze.join()
        me, other = job.rank, 1 - job.rank
        inbox = job.publish("inbox", 1 << 20, oikaze.Rights.ALL)
        there = job.peer(other).region("inbox")
        assert len(there) == len(inbox) == 1 << 20 and there.rank == other
        assert oikaze.Rights(there.rights) == oikaze.Rights.ALL
        assert (there.why_not_mapped is None) == there.is_mapped
        small, big = np.arange(8.0) + me, np.arange(50_000.0) + me
        there.put(64, small).wait()
        there.put(4096, big).wait()
        job.barrier()
        view = np.frombuffer(inbox, "f8")
        assert (view[8:16] == np.arange(8.0) + other).all()
        assert (view[512:50_512] == np.arange(50_000.0) + other).all()
        assert bytes(there.get(64, 64).wait()) == small.tobytes()
        assert bytes(there.get(4096, big.nbytes).wait()) == big.tobytes()
        into = np.empty_like(big)
        assert there.get_into(4096, into).wait() is into and (into == big).all()
        tiny = bytearray(8)
        there.get_into(64, tiny).wait()
        assert tiny == small.tobytes()[:8]
        job.barrier()
        # A view of a registered region needs no copy and no registration of its own.
        view[:] = 7.0 + me
        job.barrier()
        if me == 0:
            there.put(8, inbox[8:8008]).wait()
        job.barrier()
        assert view[1] == 7.0 and view[1001] == 7.0 + me
        job.barrier()
        print("done")
    """
    assert run(2, source).lines() == ["done"] * 2
    assert run(2, source, OIKAZE_WITHOUT="shm").lines() == ["done"] * 2


def test_atomics_of_all_types(run):
    run(
        2,
        """
        job = oikaze.join()
        words = job.publish("words", 4096, oikaze.Rights.ATOMIC)
        there = job.peer(0).region("words")
        there.fetch_add(0, 1).wait()
        there.add(8, -1, "i8").wait()
        there.fetch_add(16, 1, dtype="u4").wait()
        job.barrier()
        assert there.load(0).wait() == 2
        assert there.load(8, "i8").wait() == -2
        assert there.load(16, "u4").wait() == 2
        job.barrier()
        if job.rank == 0:
            assert there.compare_exchange(0, 2, 9).wait() == 2
            assert there.compare_exchange(0, 2, 8).wait() == 9
            assert there.swap(8, -5, "i8").wait() == -2
            assert there.fetch_combine(8, "max", -4, "i8").wait() == -5
            assert there.fetch_combine(0, "or", 6).wait() == 9
            there.store(16, 3, "i4").wait()
            assert words.load(0) == 15 and words.fetch_add(0, 1) == 15
            words.store(0, 1)
            for call in [
                lambda: there.fetch_add(0, -1), lambda: there.fetch_add(0, 1 << 64),
                lambda: there.fetch_add(0, 1 << 31, "i4"), lambda: there.fetch_add(0, 1, "f8"),
                lambda: there.fetch_combine(0, "times", 2),
            ]:
                try:
                    call()
                except ValueError:
                    pass
                else:
                    raise AssertionError(call)
            try:
                there.fetch_add(4, 1).wait()
            except oikaze.RefusedError as error:
                assert "multiple of 8" in error.remedy and error.reason
        job.barrier()
        """,
    )


def test_signals_and_words(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        inbox = job.publish("inbox", 1 << 16, oikaze.Rights.WRITE | oikaze.Rights.ATOMIC)
        there = job.peer(1 - job.rank).region("inbox")
        there.put_signal(4096, np.full(1000, 3.5), there.signal(0)).wait()
        assert inbox.wait_until(0, at_least=1, source=1 - job.rank) == 1
        assert (np.frombuffer(inbox, "f8", 1000, 4096) == 3.5).all()
        there.put(32768, b"xy", there.signal(8, 5))
        assert inbox.wait_until(8, condition=lambda word: word % 5 == 0 and word > 0) == 5
        assert inbox.read(32768, 2) == b"xy"
        try:
            inbox.wait_until(8, condition=lambda word: word / 0)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("the exception of the condition is lost")
        job.barrier()
        """,
    )


def test_accumulate_adds_arrays(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        sums = job.publish("sums", 1 << 16, oikaze.Rights.ALL)
        there = job.peer(0).region("sums")
        numbers = np.arange(1000.0)
        there.accumulate(0, numbers).wait()
        there.accumulate(16384, np.arange(100, dtype="i4") * (-1) ** job.rank, "max").wait()
        job.barrier()
        if job.rank == 0:
            assert (np.frombuffer(sums, "f8", 1000) == 2 * np.arange(1000.0)).all()
            assert (np.frombuffer(sums, "i4", 100, 16384) == np.arange(100)).all()
        for bad in (np.zeros(4, "u1"), np.zeros(4, "c16"), np.zeros(4, ">f8")):
            try:
                there.accumulate(0, bad)
            except oikaze.InvalidError as error:
                assert "float64" in error.remedy
            else:
                raise AssertionError(bad.dtype)
        job.barrier()
        """,
    )


def test_memory_of_other_objects_can_be_published(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        mine = np.zeros((100, 100))
        inbox = job.publish("array", mine, oikaze.Rights.ALL)
        job.peer(1 - job.rank).region("array").put(800, np.ones(100)).wait()
        job.barrier()
        assert mine.sum() == 100 and (mine[1] == 1).all()
        try:
            memoryview(inbox)
        except oikaze.InvalidError as error:
            assert "use that object" in error.remedy
        job.barrier()
        inbox.close()
        assert inbox.closed
        try:
            inbox.read(0, 8)
        except oikaze.InvalidError as error:
            assert "closed" in error.cause
        job.barrier()
        """,
    )


def test_bad_buffers_are_refused(alone):
    alone(
        """
        import numpy as np
        job = oikaze.join()
        inbox = job.publish("inbox", 1 << 16, oikaze.Rights.ALL)
        there = job.peer(0).region("inbox")
        grid = np.zeros((64, 64))
        frozen = np.zeros(8)
        frozen.flags.writeable = False
        for call, cause in [
            (lambda: there.put(0, grid[:, 0]), "not contiguous"),
            (lambda: there.put(0, grid.T[1:]), "not contiguous"),
            (lambda: there.get_into(0, grid[:, 0]), "not contiguous"),
            (lambda: there.get_into(0, b"12345678"), "read-only"),
            (lambda: there.get_into(0, frozen), "read-only"),
            (lambda: job.publish("frozen", frozen, 0), "read-only"),
            (lambda: there.put(0, "text"), "no buffer"),
            (lambda: there.put(0, 12), "no buffer"),
            (lambda: job.peer(0).send(None), "no buffer"),
            (lambda: there.get(0, 1 << 40), "outside"),
            (lambda: inbox.read(1 << 16, 1), "outside"),
        ]:
            try:
                call()
            except oikaze.InvalidError as error:
                assert cause in error.cause and error.remedy and error.operation, error
            else:
                raise AssertionError(cause)
        for call in [lambda: inbox.set_rights(77), lambda: there.put(-1, b"x")]:
            try:
                call()
            except (ValueError, OverflowError):
                pass
            else:
                raise AssertionError(call)
        try:
            there.put(1 << 16, b"x").wait()
        except oikaze.RefusedError as error:
            assert isinstance(error, PermissionError)
        """
    )


def test_dlpack_is_a_buffer(alone):
    alone(
        """
        import numpy as np
        class Tensor:
            "Memory that another library shows by DLPack alone."
            def __init__(self, array):
                self.array = array
            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)
            def __dlpack_device__(self):
                return self.array.__dlpack_device__()
        job = oikaze.join()
        inbox = job.publish("inbox", 1 << 16, oikaze.Rights.ALL)
        there = job.peer(0).region("inbox")
        there.put(0, Tensor(np.arange(1000.0))).wait()
        into = np.zeros(1000)
        there.get_into(0, Tensor(into)).wait()
        assert (into == np.arange(1000.0)).all()
        """
    )


def test_objects_collected_while_running_stay(run):
    run(
        2,
        """
        import gc, numpy as np
        job = oikaze.join()
        inbox = job.publish("inbox", 1 << 22, oikaze.Rights.ALL)
        there = job.peer(1 - job.rank).region("inbox")
        for round in range(16):
            # Neither the operation nor its memory is kept by the program.
            there.put(round << 18, np.full(1 << 15, float(round)))
            there.get(0, 1 << 18)
            gc.collect()
            trash = [bytearray(1 << 18) for _ in range(8)]
        job.flush()
        job.barrier()
        got = np.frombuffer(inbox, "f8").reshape(16, 1 << 15)
        assert (got == np.arange(16)[:, None]).all()
        job.barrier()
        """,
        OIKAZE_WITHOUT="shm",
    )


def test_remote_ids_and_rights(run):
    run(
        2,
        """
        job = oikaze.join()
        other = job.peer(1 - job.rank)
        region = job.expose(4096, oikaze.Rights.READ | oikaze.Rights.WRITE)
        other.send(region.remote_id)
        there = job.remote(job.receive().data)
        there.put(0, b"by number").wait()
        job.barrier()
        assert region.read(0, 9) == b"by number"
        region.set_rights(oikaze.Rights.READ)
        job.barrier()
        try:
            there.put(0, b"x").wait()
        except oikaze.RefusedError as error:
            assert "right" in str(error)
        else:
            raise AssertionError("the put was not refused")
        job.barrier()
        assert len(job.refused_accesses()) == 1
        try:
            job.remote(b"short")
        except oikaze.InvalidError as error:
            assert "24" in error.cause
        with job.register(4096) as local:
            local.write(0, b"abc")
            assert bytes(local[0:3]) == b"abc" and len(local) == 4096
        job.barrier()
        """,
    )


def test_queue_reports_ends(alone):
    alone(
        """
        job = oikaze.join()
        inbox = job.publish("inbox", 64, oikaze.Rights.ATOMIC)
        there = job.peer(0).region("inbox")
        queue = job.completion_queue()
        for context in range(3):
            there.fetch_add(0, 1).report_to(queue, context)
        there.fetch_add(3, 1).report_to(queue, 99)
        ended = []
        while len(ended) < 4:
            ended += queue.wait(1)
        values = {context: value for context, value, error in ended if error is None}
        assert values == {0: 0, 1: 1, 2: 2}
        failed = [error for _, _, error in ended if error is not None]
        assert len(failed) == 1 and isinstance(failed[0], oikaze.RefusedError)
        assert len(queue) == 0 and queue.poll() == []
        """
    )


def test_results_stay(alone):
    alone(
        """
        job = oikaze.join()
        inbox = job.publish("inbox", 64, oikaze.Rights.ALL)
        there = job.peer(0).region("inbox")
        add = there.fetch_add(0, 1).then(lambda before: before + 100)
        assert add.wait() == add.wait() == 100 and add.done and "done" in repr(add)
        put = job.batch(lambda: [there.put(8 * n, b"12345678") for n in range(1, 8)])
        assert [one.wait() for one in put] == [None] * 7
        job.peer(0).fence()
        job.peer(0).flush()
        """
    )


def test_blocks_have_gaps_here_and_there(run):
    source = """
        import numpy as np
        job = oikaze.join()
        mine = np.zeros((6, 50, 40))
        published = job.publish("grid", mine, oikaze.Rights.ALL)
        there = job.peer(1 - job.rank).region("grid")
        strides = mine.strides
        job.barrier()
        if job.rank == 0:
            grid = np.arange(mine.size, dtype="f8").reshape(mine.shape)
            # A face of the grid, a column of a plane, and a box; planes of memory in one piece.
            there.put_block(8 * 3, grid[:, :, 7], strides[:2]).wait()
            there.put_block(8 * 40 * 50, grid[0, 10:20, 5], strides[1:2]).wait()
            there.put_block(8 * (40 * 50 * 2 + 20), grid[2:4, 5:9, 20:30], strides).wait()
            there.put_block(8 * 40 * 50 * 4, grid[4], strides[1:]).wait()
            there.put_block(8 * 40 * 50 * 5, np.arange(10.0), (-8 + 16,)).wait()
            there.put_block(0, grid[:0, :, 3], strides[:2]).wait()
            into = np.full((9, 50, 2), -1.0)
            got = there.get_block_into(8 * 3, into[1:7, :, 1], strides[:2]).wait()
            assert (got == grid[:, :, 7])[0].all() and (into[:, :, 0] == -1).all()
            assert (into[0] == -1).all() and (into[7:] == -1).all()
            for call, text in [
                (lambda: there.put_block(0, grid[::-1, :, 0], strides[:2]), "negative"),
                (lambda: there.put_block(0, grid[:, :, 0], (8,)), "strides"),
                (lambda: there.put_block(0, grid[:, :, 0], (8, 8)), "overlap"),
                (lambda: there.put_block(0, grid[::2, ::2, ::2], strides), "two axes"),
                (lambda: there.put_block(1 << 40, grid[:, :, 0], strides[:2]).wait(), ""),
                (lambda: there.get_block_into(0, bytes(8), (1,)), "read-only"),
            ]:
                try:
                    call()
                except oikaze.Error as error:
                    assert text in str(error) and error.remedy, error
                else:
                    raise AssertionError(text)
            word = np.arange(3.0)
            there.put_block(8 * 40 * 50 * 5, word, (8 * 40,), there.signal(0)).wait()
            there.put_block(0, word[:0], (8,), there.signal(0)).wait()
        job.barrier()
        if job.rank == 1:
            grid = np.arange(mine.size, dtype="f8").reshape(mine.shape)
            assert (mine[0, :, 3] == grid[0, :, 7]).all() and (mine[3, :, 3] == grid[3, :, 7]).all()
            assert (mine[1, :10, 0] == grid[0, 10:20, 5]).all()
            assert (mine[2:4, 0:4, 20:30] == grid[2:4, 5:9, 20:30]).all()
            assert (mine[4] == grid[4]).all() and (mine[5, 0:3, 0] == [0, 1, 2]).all()
            assert mine.view("u8")[0, 0, 0] == 2, mine.view("u8")[0, 0, 0]
            assert (mine[0, 1:, 4:] == 0).all()
        job.barrier()
    """
    run(2, source)
    run(2, source, OIKAZE_WITHOUT="shm")


def test_lists_tell_the_target_once(run):
    """MEM-27: lists of buffers and of views of a region, with a signal or a notice."""
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        other = (job.rank + 1) % job.size
        inbox = job.publish("inbox", 1 << 16, oikaze.Rights.ALL)
        there = job.peer(other).region("inbox")
        job.barrier()
        blocks = np.arange(4096.0).reshape(4, 1024)
        registered = job.register(blocks.nbytes)
        views = np.frombuffer(registered, "f8").reshape(4, 1024)
        views[:] = blocks
        for number, source in enumerate((blocks, views)):
            entries = [(8192 * (3 - row) + 16, source[row]) for row in range(4)]
            there.put_list(entries, signal=there.signal(0)).wait()
            inbox.wait_until(0, at_least=number + 1)
            there.put_list(iter(entries), notify=40 + number).wait()
            arrival = job.arrivals().next()
            assert (arrival.tag, arrival.offset, arrival.length) == (40 + number, 16, 8192)
            got = np.frombuffer(inbox, "f8", 4096, 16).reshape(4, 1024)
            assert (got[::-1] == blocks).all()
            job.barrier()
        back = [bytearray(8), np.empty(3), bytearray()]
        there.get_list_into([(16, back[0]), (8208, back[1]), (0, back[2])]).wait()
        assert back[0] == blocks[3, 0].tobytes() and (back[1] == blocks[2, :3]).all()
        before = bytes(inbox)
        job.barrier()
        refused = 0
        for bad in ([(0, b"1234"), (65533, b"1234")], [(0, b"1234")] * 16385):
            try:
                there.put_list(bad, notify=9).wait()
            except oikaze.Error:
                refused += 1
        for bad in ([(0,)], [7], [("0", b"1")]):
            try:
                there.put_list(bad)
            except (oikaze.Error, TypeError):
                refused += 1
        try:
            there.put_list([(0, b"1")], signal=there.signal(0), notify=1)
        except oikaze.Error:
            refused += 1
        job.barrier()
        assert refused == 6 and bytes(inbox) == before, refused
        assert job.arrivals().try_next() is None
        job.barrier()
        there.put_list([], notify=5).wait()
        assert job.arrivals().next().length == 0
        job.barrier()
        """,
    )
