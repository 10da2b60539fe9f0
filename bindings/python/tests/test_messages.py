"""Messages, FIFOs, locks, and coroutines."""

import pytest


def test_messages_of_all_classes(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        other = job.peer(1 - job.rank)
        for message_class in ("ordered", "unordered", "sync"):
            sent = other.send(np.arange(4.0), tag=5, message_class=message_class)
            message = job.receive()
            assert message.message_class == message_class and message.tag == 5
            assert (np.frombuffer(message, "f8") == np.arange(4.0)).all()
            assert bytes(message) == message.data and len(message) == 32
            assert memoryview(message).readonly
            sent.wait()
        big = np.arange(1_000_000.0)
        sent = other.send(big)
        assert (np.frombuffer(job.receive(), "f8") == big).all()
        sent.wait()
        assert job.try_receive() is None
        job.barrier()
        [other.send(bytes([n])) for n in range(10)]
        assert [message.data[0] for message in job.receive_batch(10)] == list(range(10))
        try:
            other.send(b"", message_class="express")
        except ValueError as error:
            assert "unordered" in str(error)
        job.barrier()
        """,
    )


def test_fifo_keeps_order_and_is_full(run):
    run(
        2,
        """
        job = oikaze.join()
        fifo = job.fifo("work", 4, 16)
        assert (fifo.slots, fifo.longest) == (4, 16)
        there = job.peer(1 - job.rank).fifo("work")
        for n in range(4):
            there.push(f"element {n}".encode())
        for kinds, push in [
            (oikaze.FullError, lambda: there.post(b"too many").wait()),
            # Full, unless the answer to an attempt takes longer.
            ((oikaze.FullError, oikaze.TimeoutError), lambda: there.push(b"more", timeout=0.05)),
        ]:
            try:
                push()
            except kinds:
                pass
            else:
                raise AssertionError("there was room")
        job.flush()
        job.barrier()
        assert [fifo.pop().decode() for _ in range(4)] == [f"element {n}" for n in range(4)]
        assert fifo.try_pop() is None
        job.barrier()
        there.post(b"last").wait()
        assert fifo.pop(timeout=10) == b"last"
        try:
            there.push(b"x" * 17)
        except oikaze.RefusedError:
            pass
        job.barrier()
        """,
    )


def test_locks_exclude(run):
    run(
        3,
        """
        import concurrent.futures
        job = oikaze.join()
        words = job.publish("words", 64, oikaze.Rights.ALL)
        there = job.peer(0).region("words")
        for _ in range(20):
            with job.lock("counter"):
                value = int.from_bytes(there.get(0, 8).wait(), "little")
                there.put(0, (value + 1).to_bytes(8, "little")).wait()
        job.barrier()
        assert int.from_bytes(there.get(0, 8).wait(), "little") == 60
        lock = job.lock(7)
        if job.rank == 0:
            lock.acquire()
            assert lock.held
            try:
                lock.acquire()
            except oikaze.InvalidError:
                pass
            job.barrier()
            job.barrier()
            lock.release()
        else:
            job.barrier()
            assert lock.try_acquire() is False and lock.try_acquire(timeout=0.01) is False
            assert not lock.held
            try:
                lock.acquire(timeout=0.05)
            except oikaze.TimeoutError:
                pass
            else:
                raise AssertionError("two nodes have the lock")
            assert not lock.held
            job.barrier()
        try:
            lock.release()
        except oikaze.InvalidError as error:
            assert "does not hold" in error.cause
        with job.read_lock("prices") as reading:
            job.all_reduce(0)  # all nodes have it
            assert reading.held and "for reading" in repr(reading)
            # A thread that has a lock gets an error if it asks for the lock again.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                assert pool.submit(job.lock("prices").try_acquire).result() is False
            job.all_reduce(0)
        again = job.read_lock("prices")
        assert again.try_acquire(timeout=30) is True
        again.release()
        again.acquire(timeout=30)
        again.release()
        job.barrier()
        """,
    )


def test_operations_are_awaitable(run):
    source = """
        import asyncio
        job = oikaze.join()
        words = job.publish("words", 1 << 20, oikaze.Rights.ALL)
        other = job.peer(1 - job.rank)
        there = other.region("words")

        async def add(n):
            total = 0
            for _ in range(n):
                total += await there.fetch_add(0, 1)
            return total

        async def talk():
            sums = await asyncio.gather(*(add(20) for _ in range(5)))
            assert sum(sums) == sum(range(100))
            operation = there.get(8, 100_000)
            assert await operation == await operation == bytes(100_000)
            sent = other.send(b"question")
            first = await job.receive_async()
            second, third = await both()
            await sent
            assert first.data == b"question"
            assert {second.data, third.data} == {b"answer"}
            await job.barrier_async()
            try:
                await there.fetch_add(3, 1)
            except oikaze.RefusedError:
                print("refused")
            try:
                await asyncio.wait_for(job.receive_async(), 0.05)
            except asyncio.TimeoutError:
                print("late")

        async def both():
            for _ in range(2):
                other.send(b"answer")
            return await asyncio.gather(
                job.receive_async(source=1 - job.rank), job.receive_async()
            )

        asyncio.run(talk())
        asyncio.run(asyncio.wait_for(job.barrier_async(), 30))
        job.barrier()
    """
    assert run(2, source).lines() == ["late", "late", "refused", "refused"]
    assert run(2, source, OIKAZE_WITHOUT="shm").lines() == ["late", "late", "refused", "refused"]


def test_operation_is_awaited_again_and_by_several_tasks(run):
    run(
        2,
        """
        import asyncio
        job = oikaze.join()
        words = job.publish("words", 64, oikaze.Rights.ALL)
        other = job.peer(1 - job.rank)
        there = other.region("words")
        into = bytearray(8)

        async def talk():
            receive = job.post_receive(into, tag=5)
            for _ in range(2):
                try:
                    await asyncio.wait_for(receive, 0.01)
                    raise AssertionError("nothing was sent")
                except asyncio.TimeoutError:
                    pass
            await job.barrier_async()
            sent = other.send(b"question", tag=5)
            received = await asyncio.gather(*(awaited(receive) for _ in range(3)))
            assert [one.length for one in received] == [8] * 3 and into == b"question"
            await sent
            # An operation that reports to a queue of the program can be awaited, too.
            queue = job.completion_queue()
            added = there.fetch_add(0, 1)
            added.report_to(queue, 7)
            assert await added == 0
            assert [context for context, _, _ in queue.wait(1)] == [7]

        async def awaited(operation):
            return await operation

        asyncio.run(talk())
        job.barrier()
        """
    )


def test_awaited_message_of_a_lost_node_never_comes(run):
    done = run(
        2,
        """
        import asyncio, os
        job = oikaze.join(keep_going=True)
        job.barrier()
        if job.rank == 1:
            os._exit(3)

        async def talk():
            for receive in (job.receive_async(source=1), job.receive_async(source=1)):
                try:
                    await receive
                except oikaze.PeerLostError as error:
                    print("lost", error.peer)

        asyncio.run(talk())
        """,
        "--keep-going",
        succeeds=False,
    )
    assert done.lines() == ["lost 1"] * 2, done.out + done.err


def test_loops_of_two_threads_share_a_job(alone):
    alone(
        """
        import asyncio, threading
        job = oikaze.join()
        words = job.publish("words", 64, oikaze.Rights.ALL)
        there = job.peer(0).region("words")
        async def add():
            for _ in range(200):
                await there.fetch_add(0, 1)
                await job.peer(0).send(b"x")
                await job.receive_async()
        threads = [threading.Thread(target=lambda: asyncio.run(add())) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert words.load(0) == 400
        """
    )


def test_notifications(run):
    run(
        2,
        """
        job = oikaze.join()
        if job.rank == 0:
            job.notify(1)
        else:
            job.wait_notify(0, timeout=30)
            try:
                job.wait_notify(0, timeout=0.01)
            except oikaze.TimeoutError:
                pass
        try:
            job.notify(job.rank)
        except oikaze.InvalidError as error:
            assert error.remedy
        job.barrier()
        """,
    )


def test_cancelled_receives_lose_no_message(alone):
    alone(
        """
        import asyncio
        job = oikaze.join()
        me = job.peer(0)

        async def talk():
            for number in range(40):
                waiting = asyncio.ensure_future(job.receive_async())
                await asyncio.sleep(0)
                me.send(bytes([number])).wait()
                # The task is cancelled at any step between the arrival and its end.
                for _ in range(number % 8):
                    await asyncio.sleep(0)
                waiting.cancel()
                try:
                    message = await waiting
                except asyncio.CancelledError:
                    message = await asyncio.wait_for(job.receive_async(), 20)
                assert message.data == bytes([number])
            assert job.try_receive() is None

        asyncio.run(talk())
        """
    )


@pytest.mark.parametrize("waiting", ["spin", "block", "adaptive"])
def test_tasks_talk_in_each_way_to_wait(run, waiting):
    """Eight tasks a node, each with a message to and fro in turn."""
    run(
        2,
        f"""
        import asyncio
        job = oikaze.join(waiting={waiting!r})
        other = job.peer(1 - job.rank)
        page = job.publish("counter", 4096, oikaze.Rights.ALL)
        there = other.region("counter")

        async def add():
            return [await there.fetch_add(0, 1) for _ in range(20)]

        async def talk():
            found = await asyncio.gather(*[add() for _ in range(8)])
            assert sorted(sum(found, [])) == list(range(160)), found
            for turn in range(50):
                if turn % 2 == job.rank:
                    await other.send(b"your turn", tag=turn)
                else:
                    assert (await job.receive_async()).tag == turn

        asyncio.run(talk())
        job.barrier()
        """,
    )


def test_loop_of_the_program_gets_a_message(alone):
    alone(
        """
        import select
        job = oikaze.join()
        job.peer(0).send(b"x", tag=4)
        while (message := job.try_receive()) is None:
            if not job.progress():
                select.select([job.descriptor], [], [], 60)
                job.clear_descriptor()
        assert message.tag == 4
        """
    )


def test_leave_takes_no_other_descriptor_out_of_the_loop(alone):
    alone(
        """
        import asyncio, os
        job = oikaze.join()

        async def talk():
            loop = asyncio.get_running_loop()
            job.peer(0).send(b"x")
            await job.receive_async()
            waiting = asyncio.ensure_future(job.receive_async())
            await asyncio.sleep(0)
            job.leave()
            # They get the numbers of descriptors that were closed.
            pipes = [os.pipe() for _ in range(64)]
            seen = set()
            for reader, _ in pipes:
                loop.add_reader(reader, seen.add, reader)
            try:
                await waiting
            except oikaze.LeftError as error:
                assert error.remedy
            await asyncio.sleep(0)
            for _, writer in pipes:
                os.write(writer, b"x")
            async def all_seen():
                while len(seen) < len(pipes):
                    await asyncio.sleep(0)
            await asyncio.wait_for(all_seen(), 20)

        asyncio.run(talk())
        """
    )


def test_probe_describes_the_next_message_and_takes_nothing(run):
    run(
        2,
        """
        import builtins
        job = oikaze.join()
        other = 1 - job.rank
        assert job.try_probe() is None
        job.barrier()
        job.peer(other).send(b"first", tag=2**64 - 1)
        job.peer(other).send(bytes(100_000), tag=4)
        for tag, length in [(2**64 - 1, 5), (4, 100_000)]:
            seen = job.probe(timeout=30)
            assert (seen.source, seen.tag, seen.length) == (other, tag, length), seen
            assert job.probe(other).tag == job.try_probe(other).tag == tag
            message = job.receive(seen.source)
            assert (message.tag, len(message)) == (tag, length)
        try:
            job.probe(other, timeout=0.01)
        except builtins.TimeoutError:
            pass
        else:
            raise AssertionError("nothing was sent")
        job.barrier()
        """,
    )


def test_posted_receives_get_what_matches(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        other = job.peer(1 - job.rank)
        row, short = np.zeros(1000), bytearray(4)
        page = job.register(64)
        placed = job.statistics()["placed_messages"]
        exact = job.post_receive(row, source=other.rank, tag=5)
        kinds = job.post_receive(page, tag=0x700, mask=0xFF00)
        tight = job.post_receive(short, tag=6)
        assert not exact.done
        job.barrier()
        other.send(np.arange(1000.0), tag=5)
        other.send(b"too long", tag=6)
        other.send(b"kind seven", tag=0x7AB)
        got = kinds.wait(timeout=30)
        assert (got.source, got.tag, got.length) == (other.rank, 0x7AB, 10), got
        assert page.read(0, 10) == b"kind seven"
        assert exact.wait(timeout=30).length == 8000 and (row == np.arange(1000.0)).all()
        try:
            tight.wait(timeout=30)
        except oikaze.InvalidError as error:
            assert "8 bytes" in str(error) and "has 4" in str(error), error
        else:
            raise AssertionError("it was too long")
        assert job.receive(timeout=30).data == b"too long" and short == bytes(4)
        never = job.post_receive(bytearray(9), tag=77)
        never.cancel()
        try:
            never.wait()
        except oikaze.CancelledError:
            pass
        else:
            raise AssertionError("it was cancelled")
        other.send(b"after", tag=1)
        assert job.receive(timeout=30).data == b"after"
        for memory in (b"bytes", np.zeros((4, 4))[:, 1]):
            try:
                job.post_receive(memory)
            except oikaze.InvalidError:
                pass
            else:
                raise AssertionError("it cannot be filled")
        job.barrier()
        """,
    )


def test_puts_with_notice_are_told(run):
    run(
        2,
        """
        import numpy as np
        job = oikaze.join()
        other = 1 - job.rank
        inbox = job.publish("inbox", 65536, oikaze.Rights.WRITE | oikaze.Rights.ATOMIC)
        spare = job.publish("spare", 64, oikaze.Rights.WRITE)
        there, second = (job.peer(other).region(name) for name in ("inbox", "spare"))
        there.put(8, np.arange(8000.0), notify=2**64 - 1).wait()
        second.put(3, b"note", notify=1).wait()
        arrival = spare.arrivals().next(timeout=30)
        assert (arrival.source, arrival.tag, arrival.offset, arrival.length) == (other, 1, 3, 4)
        assert arrival.key == spare.key != inbox.key and spare.read(3, 4) == b"note"
        arrival = job.arrivals().next(timeout=30)
        assert (arrival.tag, arrival.length) == (2**64 - 1, 64000), arrival
        assert (np.frombuffer(inbox, "f8")[1:8001] == np.arange(8000.0)).all()
        assert len(job.arrivals()) == 0 and job.arrivals().try_next() is None
        try:
            job.arrivals().next(timeout=0.01)
        except oikaze.TimeoutError:
            pass
        try:
            there.put(0, b"", signal=there.signal(0), notify=1)
        except oikaze.InvalidError as error:
            assert "notice" in str(error), error
        else:
            raise AssertionError("both were given")
        job.barrier()
        """,
    )


def test_arrivals_and_receives_are_awaitable(run):
    run(
        2,
        """
        import asyncio
        job = oikaze.join()
        other = job.peer(1 - job.rank)
        inbox = job.publish("inbox", 64, oikaze.Rights.WRITE)
        there = other.region("inbox")
        async def talk():
            into = bytearray(5)
            receive = job.post_receive(into, source=other.rank)
            waits = asyncio.ensure_future(inbox.arrivals().next_async())
            await job.barrier_async()
            await other.send(b"hello", tag=9)
            await there.put(0, b"put", notify=4)
            assert (await receive).tag == 9 and into == b"hello"
            assert (await waits).tag == 4 and inbox.read(0, 3) == b"put"
            try:
                await asyncio.wait_for(job.arrivals().next_async(), 0.05)
            except asyncio.TimeoutError:
                pass
            else:
                raise AssertionError("nothing was put")
        asyncio.run(talk())
        job.barrier()
        """,
    )
