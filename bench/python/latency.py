"""Latency of 8 bytes from Python: half the time of a message or a put and its answer."""

import argparse
import json
import statistics
import time

import numpy as np
import oikaze

WARM_UP = 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=["put", "message"])
    parser.add_argument("--iterations", type=int, default=10_000)
    options = parser.parse_args()
    job = oikaze.join()
    rank, peer = job.rank, job.peer(1 - job.rank)
    if options.case == "message":
        exchange = messages(job, peer)
    else:
        exchange = puts(job, peer)
    job.barrier()
    times = []
    for _ in range(WARM_UP + options.iterations):
        begun = time.perf_counter_ns()
        exchange()
        times.append(time.perf_counter_ns() - begun)
    if rank == 0:
        print(json.dumps({"us": statistics.median(times[WARM_UP:]) / 2000}), flush=True)
    job.barrier()
    job.leave()


def messages(job, peer):
    """Returns one exchange of messages."""
    payload = bytes(8)
    other = peer.rank
    if job.rank == 0:

        def exchange():
            peer.send(payload)
            job.receive(other)

    else:

        def exchange():
            job.receive(other)
            peer.send(payload)

    return exchange


def puts(job, peer):
    """Returns one exchange of puts. Each node polls its own memory for what is put there."""
    region = job.publish("inbox", 4096, oikaze.Rights.WRITE)
    job.barrier()
    there = peer.region("inbox")
    payload = np.zeros(1, np.uint64)
    count = 0

    def send():
        payload[0] = count
        there.put(0, payload)

    def wait():
        region.wait_until(0, at_least=count)

    def exchange():
        nonlocal count
        count += 1
        if job.rank == 0:
            send()
            wait()
        else:
            wait()
            send()

    return exchange


main()
