"""Arguments that make no sense are errors that name the call, and all nodes get them."""

import pytest

#: Calls by name, each of which takes one argument. The others of the call make sense.
CALLS = """
import asyncio, ctypes, math
import numpy as np

job = oikaze.join()
A = oikaze.Rights.ALL
region = job.publish("memory", 4096, A)
me = job.peer(0)
there = me.region("memory")
fifo = job.fifo("queue", 4, 8)
pushed = me.fifo("queue")
signal = there.signal(0)
words = job.array("words", 64, "u8")
shared = words.shared
team = job.split(0)
done = me.send(b"x")
done.wait()
job.receive()
queue = job.completion_queue()
guard = shared.writing[:4]
buffer = np.zeros(8)

NUMBERS = {
    "peer": job.peer,
    "abort": lambda x: job.abort("why", x),
    "lock": job.lock,
    "notify": job.notify,
    "wait_notify": lambda x: job.wait_notify(x, timeout=0),
    "receive": lambda x: job.receive(x, timeout=0),
    "try_receive": job.try_receive,
    "probe": lambda x: job.probe(x, timeout=0),
    "try_probe": job.try_probe,
    "receive_batch": lambda x: job.receive_batch(x, timeout=0),
    "post_receive source": lambda x: job.post_receive(buffer, x).cancel(),
    "post_receive tag": lambda x: job.post_receive(buffer, 0, x).cancel(),
    "post_receive mask": lambda x: job.post_receive(buffer, 0, 0, x).cancel(),
    "publish": lambda x: job.publish("other", 64, x),
    "publish length": lambda x: job.publish("other", x, A),
    "register": job.register,
    "expose": lambda x: job.expose(64, x),
    "fifo slots": lambda x: job.fifo("another", x, 8),
    "fifo longest": lambda x: job.fifo("another", 4, x),
    "array shape": lambda x: job.array("another", x),
    "array shapes": lambda x: job.array("another", (4, x)),
    "guarded_array": lambda x: job.guarded_array("another", x),
    "split": job.split,
    "split key": lambda x: job.split(0, x),
    "broadcast root": lambda x: job.broadcast(1, x),
    "gather root": lambda x: job.gather(1, x),
    "scatter root": lambda x: job.scatter([1], x),
    "reduce root": lambda x: job.reduce(1, "sum", x),
    "team root": lambda x: team.reduce(1, "sum", x),
    "algorithm": lambda x: team.algorithm("all_reduce", x),
    "send tag": lambda x: me.send(b"", x).wait(),
    "region.load": region.load,
    "region.store": lambda x: region.store(x, 1),
    "region.store value": lambda x: region.store(8, x),
    "region.fetch_add": lambda x: region.fetch_add(8, x),
    "region.read": lambda x: region.read(x, 8),
    "region.read length": lambda x: region.read(0, x),
    "region.write": lambda x: region.write(x, b"x"),
    "region.set_rights": region.set_rights,
    "region.protect": lambda x: region.protect(x, 4096, A),
    "wait_until": lambda x: region.wait_until(x, at_least=0, timeout=0),
    "wait_until equal": lambda x: region.wait_until(8, equal=x, timeout=0),
    "put": lambda x: there.put(x, b"x").wait(),
    "put notify": lambda x: there.put(0, b"x", notify=x).wait(),
    "get": lambda x: there.get(x, 8).wait(),
    "get length": lambda x: there.get(0, x).wait(),
    "get_into": lambda x: there.get_into(x, buffer).wait(),
    "put_block": lambda x: there.put_block(x, buffer, (8,)).wait(),
    "put_block strides": lambda x: there.put_block(0, buffer, (x,)).wait(),
    "put_list": lambda x: there.put_list([(x, b"x")]).wait(),
    "signal": there.signal,
    "signal add": lambda x: there.signal(0, x),
    "fetch_add offset": lambda x: there.fetch_add(x, 1).wait(),
    "fetch_add": lambda x: there.fetch_add(8, x).wait(),
    "swap": lambda x: there.swap(8, x).wait(),
    "add": lambda x: there.add(8, x).wait(),
    "accumulate": lambda x: there.accumulate(x, buffer).wait(),
    "elements": lambda x: shared.get_elements(x, 4),
    "put_elements": lambda x: shared.put_elements(x, [1]),
    "array.fetch_add": lambda x: words.fetch_add(1, x),
    "array.fetch_add index": lambda x: words.fetch_add(x, 1),
    "compare_exchange": lambda x: shared.compare_exchange(0, x, 1),
    "array.accumulate": lambda x: shared.accumulate(x, [1]),
    "array.accumulate numbers": lambda x: shared.accumulate(0, [x]),
    "home": words.home,
    "home_blocks": shared.home_blocks,
    "home_of": shared.home_of,
    "subscribe_halo": lambda x: shared.subscribe_halo(slice(0, 4), x),
    "push_to": lambda x: guard.push_to([x]),
    "reading": lambda x: shared.reading[x].release(),
    "fill_all": shared.fill_all,
    "Distribution.block": oikaze.Distribution.block,
    "Distribution.cyclic": oikaze.Distribution.cyclic,
    "Distribution.explicit": lambda x: oikaze.Distribution.explicit([x]),
    "Distribution.by_pages": oikaze.Distribution.by_pages,
    "report_to": lambda x: done.report_to(queue, x),
    "queue.wait": lambda x: queue.wait(x, timeout=0),
    "join": lambda x: oikaze.join(engine_core=x),
    "join ports": lambda x: oikaze.join(ports=(x, x)),
}
TIMES = {
    "barrier": lambda x: job.barrier(x),
    "receive": lambda x: job.receive(timeout=x),
    "receive_batch": lambda x: job.receive_batch(1, timeout=x),
    "probe": lambda x: job.probe(timeout=x),
    "flush": job.flush,
    "peer.flush": me.flush,
    "wait_notify": lambda x: job.wait_notify(0, x),
    "region": lambda x: me.region("memory", x),
    "fifo": lambda x: me.fifo("queue", x),
    "push": lambda x: pushed.push(b"x", x),
    "pop": lambda x: fifo.pop(x),
    "wait": lambda x: me.send(b"").wait(x),
    "wait_until": lambda x: region.wait_until(8, at_least=0, timeout=x),
    "arrivals": lambda x: job.arrivals().next(x),
    "lock": lambda x: job.lock(77).acquire(x),
    "all_reduce": lambda x: job.all_reduce(1, timeout=x),
    "broadcast": lambda x: job.broadcast(1, timeout=x),
    "queue.wait": lambda x: queue.wait(0, x),
    "join": lambda x: oikaze.join(time_limit=x),
}
OTHERS = {
    "publish name": lambda x: job.publish(x, 64, A),
    "fifo name": lambda x: job.fifo(x, 4, 4),
    "array name": lambda x: job.array(x, 4),
    "dtype": lambda x: job.array("another", 4, x),
    "distribution": lambda x: job.array("another", 4, distribution=x),
    "delivery": lambda x: job.array("another", 4, delivery=x),
    "redistribute": shared.redistribute,
    "save": words.save,
    "load": words.load,
    "region name": lambda x: me.region(x, 0),
    "fifo of peer": lambda x: me.fifo(x, 0),
    "message_class": lambda x: me.send(b"", 0, x),
    "dtype of a word": lambda x: there.load(0, x).wait(),
    "combine": lambda x: there.fetch_combine(0, x, 1).wait(),
    "combine of arrays": lambda x: shared.fetch_combine(0, x, 1),
    "accumulate": lambda x: there.accumulate(0, buffer, x).wait(),
    "operator": lambda x: job.all_reduce(1, x),
    "operator of floats": lambda x: job.all_reduce(1.5, x),
    "reduce": lambda x: job.reduce(buffer, x),
    "scan": lambda x: job.scan(buffer, x),
    "out": lambda x: job.all_reduce(buffer, "sum", x),
    "send": me.send,
    "put": lambda x: there.put(0, x).wait(),
    "put_signal": lambda x: there.put_signal(0, b"x", x),
    "put signal": lambda x: there.put(0, b"x", signal=x),
    "put_list": there.put_list,
    "put_list entry": lambda x: there.put_list([x]),
    "get_list_into": there.get_list_into,
    "get_into": lambda x: there.get_into(0, x),
    "strides": lambda x: there.put_block(0, buffer, x),
    "write": lambda x: region.write(0, x),
    "push": lambda x: pushed.push(x),
    "post": lambda x: pushed.post(x),
    "post_receive": job.post_receive,
    "remote": job.remote,
    "sum_exact": job.sum_exact,
    "scatter": job.scatter,
    "all_to_all": job.all_to_all,
    "reduce_scatter": job.reduce_scatter,
    "broadcast_into": job.broadcast_into,
    "put_elements": lambda x: shared.put_elements(0, x),
    "fill_all": shared.fill_all,
    "push_to": guard.push_to,
    "report_to": lambda x: done.report_to(x, 1),
    "abort reason": lambda x: job.abort(x, 0),
    "join seal": lambda x: oikaze.join(seal=x),
    "join waiting": lambda x: oikaze.join(waiting=x),
    "join engine": lambda x: oikaze.join(engine=x),
}

class Object:
    def __repr__(self):
        return "an object"

bad = []

def check(name, call, value):
    try:
        call(value)
    except oikaze.Error as error:
        # Errors of the library itself have their parts in the text.
        if not (error.operation and error.cause and str(error)):
            bad.append((name, value, error, "lacks a part"))
        if isinstance(error, oikaze.InvalidError) and not error.remedy:
            bad.append((name, value, error, "lacks a remedy"))
    except BaseException as error:
        bad.append((name, value, repr(error), "bare"))
"""


@pytest.mark.parametrize(
    ("calls", "values"),
    [
        ("NUMBERS", '[Object(), "x", -1, 10**30, -(10**30), math.nan, 2.5, True, b"", [], np.float64(1)]'),
        ("TIMES", '[-1, math.nan, "x", Object(), [], -math.inf]'),
        ("OTHERS", '[Object(), 5, -1, math.nan, "no such", b"\\0", [], (), {}, 1j, True, None]'),
    ],
)
def test_argument_that_makes_no_sense_is_an_error_that_names_the_call(alone, calls, values):
    alone(
        CALLS
        + f"""
for name, call in {calls}.items():
    # Without an argument, some wait for ever or end the process.
    for value in {values}:
        if value is None and name in ("redistribute", "post_receive", "out"):
            continue
        check(name, call, value)
guard.release()
assert not bad, "\\n".join(map(str, bad))
"""
    )


def test_argument_of_another_type_is_a_type_error(alone):
    alone(
        CALLS
        + """
for call, operation in [
    (lambda: job.peer("x"), "peer"),
    (lambda: job.barrier("x"), "barrier"),
    (lambda: there.put("x", b""), "put"),
    (lambda: there.put(0, object()), "put"),
    (lambda: job.split("x"), "split"),
    (lambda: words.save(5), "save"),
    (lambda: job.abort("x", "y"), "abort"),
    (lambda: job.array("another", "x"), "making array 'another'"),
]:
    try:
        call()
    except TypeError as error:
        assert isinstance(error, oikaze.ArgumentTypeError), repr(error)
        assert operation in error.operation and error.cause and error.remedy, error
    else:
        raise AssertionError(operation)
guard.release()
"""
    )


def test_memory_of_ctypes_and_numbers_of_numpy_is_taken(alone):
    alone(
        """
        import array, ctypes
        import numpy as np

        class Interface:
            def __init__(self, of):
                self.of, self.__array_interface__ = of, of.__array_interface__

        job = oikaze.join()
        region = job.publish("memory", 4096, oikaze.Rights.ALL)
        there, me = job.peer(0).region("memory"), job.peer(0)
        doubles = (ctypes.c_double * 4)(1, 2, 3, 4)
        for value in [
            doubles, ctypes.c_double(3), np.float64(3), np.int32(5), array.array("d", [1, 2]),
            np.array(7.0), np.array([1, 2], "M8[s]"), memoryview(b"xyz"), Interface(np.arange(3)),
        ]:
            raw = bytes(memoryview(value)) if not isinstance(value, (np.ndarray, Interface)) else None
            raw = raw if raw is not None else np.asarray(value).tobytes()
            there.put(64, value).wait()
            assert region.read(64, len(raw)) == raw, value
            me.send(value).wait()
            assert job.receive().data == raw, value
            region.write(64, value)
        into = (ctypes.c_double * 4)()
        there.put(0, doubles).wait()
        there.get_into(0, into).wait()
        assert list(into) == [1, 2, 3, 4]
        assert job.all_reduce(doubles).tolist() == [1, 2, 3, 4]
        assert job.all_reduce(np.float64(3)) == 3 and job.sum_exact(doubles) == 10
        assert job.all_gather(np.float64(3)) is not None
        try:
            there.get_into(0, np.float64(3))
        except oikaze.InvalidError as error:
            assert error.operation == "get_into" and error.remedy
        else:
            raise AssertionError
        """
    )


def test_path_of_any_kind_is_taken(alone):
    alone(
        """
        import os, pathlib
        import numpy as np
        job = oikaze.join()
        array = job.array("array", 10)
        array[:] = 5
        for path in ("a.npy", b"b.npy", pathlib.Path("c.npy")):
            array.save(path)
            array.load(path)
            assert np.load(os.fsdecode(path)).sum() == 50
        """
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("array.save(5 if job.rank else 'x.npy')", "save array"),
        ("array.load(5 if job.rank else 'x.npy')", "load array"),
        ("array.fill_all('x' if job.rank else 1)", "fill array"),
        ("array.shared.resize((-1, 8) if job.rank else (8, 8))", "resize array"),
        ("array.shared.redistribute(5 if job.rank else oikaze.Distribution.cyclic())", "redistribute"),
        ("job.barrier(-1 if job.rank else None)", "barrier"),
        ("job.array('other', 'x' if job.rank else 8)", "array"),
        ("job.split('x' if job.rank else 1)", "split of a team"),
        ("job.gather(1, 'x' if job.rank else 0)", "gather"),
        ("job.all_reduce(1.5, 'no' if job.rank else 'sum')", "all_reduce"),
        ("job.sum_exact('x' if job.rank else 1.5)", "sum_exact"),
    ],
)
def test_call_that_one_rank_refuses_fails_on_all(run, call, words):
    run(
        2,
        f"""
        job = oikaze.join()
        array = job.array("array", (8, 8))
        try:
            {call}
        except oikaze.Error as error:
            # The ranks have one error each: the reason is known on both.
            assert error.operation and error.cause and error.remedy, (error, error.remedy)
            if job.rank == 0:
                assert {words!r} in str(error), error
        else:
            raise AssertionError("nothing was raised")
        job.barrier()
        assert job.all_reduce(1) == 2
        """,
    )


def test_objects_show_their_state(alone):
    alone(
        """
        job = oikaze.join()
        region = job.publish("memory", 64, oikaze.Rights.ALL)
        fifo, peer = job.fifo("queue", 4, 8), job.peer(0)
        there, array = peer.region("memory"), job.guarded_array("array", 10)
        lock = job.lock("mine")
        guard = array.writing[:]
        assert "free" in repr(lock)
        for one in (
            job, region, fifo, peer, there, array, lock, guard, peer.fifo("queue"), there.signal(8),
            job.arrivals(), job.completion_queue(), job.split(0), oikaze.Distribution.cyclic(2),
            array.reading, oikaze.by_rank([1, 2]),
        ):
            assert repr(one).startswith("<oikaze.") and " at 0x" not in repr(one), repr(one)
            assert "{" not in repr(one), repr(one)
        guard.release()
        assert "released" in repr(guard)
        with lock:
            assert "held" in repr(lock)
        region.close()
        assert "closed" in repr(region)
        array.free()
        assert "freed" in repr(array)
        job.leave()
        assert "left" in repr(job)
        """
    )


def test_list_of_floats_and_a_number_that_none_of_them_is_is_refused(alone):
    alone(
        """
        job = oikaze.join()
        big = 2**53 + 1
        for values in ([big, 0.5], [[0.5], [big]], [0.5, 10**400]):
            for call in (job.all_reduce, job.sum_exact):
                try:
                    call(values)
                except oikaze.InvalidError as error:
                    assert "float64" in error.cause and error.remedy, error
                else:
                    raise AssertionError(values)
        assert job.all_reduce([2**60, 0.5]).tolist() == [2.0**60, 0.5]
        assert job.all_reduce([big, big]).tolist() == [big, big]
        """
    )
