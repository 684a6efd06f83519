"""Publishers and consumers of a run: each prepares, waits at the barrier, works and measures."""

from __future__ import annotations

import selectors
import time
from array import array
from collections.abc import Iterable, Sequence
from multiprocessing.synchronize import Barrier

from benchmarks.load.client import LoadError
from benchmarks.load.options import Load
from benchmarks.load.processes import Clock, Figures, Role
from benchmarks.load.traffic import CHUNK, Confirms, Deliveries

TICK = 0.001
LONGEST_WAIT = 60.0
SMALL_ROOM = 4096
"""Size in octets of the receive buffer of a connection with little input."""


def publisher(load: Load, index: int) -> Role:
    """Publish one share of the messages."""

    def run(gate: Barrier) -> Figures:
        connection = load.connect()
        confirms = Confirms(connection)
        per_chunk = min(CHUNK, load.window) if load.confirm else CHUNK
        chunks = load.messages.chunks(index * load.share, load.share, connection.frame_max, per_chunk)
        if load.confirm:
            connection.select_confirms()
        gate.wait()
        clock = Clock()
        for count, parts in chunks:
            while load.confirm and confirms.missing + count > load.window:
                confirms.read()
            connection.send_parts(parts)
            confirms.sent += count
        while load.confirm and confirms.missing:
            confirms.read()
        connection.count(load.names[0])  # the answer follows the processing of all earlier frames
        figures = clock.stop()
        connection.close()
        return figures

    return run


def consumer(load: Load, total: int) -> Role:
    """Consume `total` messages from all queues, over a connection per queue, with multiple acknowledgements."""

    def run(gate: Barrier) -> Figures:
        consumers = [Deliveries(load.connect(), load.publishers == 1, load.ack_singly) for _ in load.names]
        for each in consumers:
            each.connection.prefetch(load.prefetch)
        gate.wait()
        clock = Clock()
        for each, name in zip(consumers, load.names, strict=True):
            each.connection.consume(name, load.auto_ack)
        return drained(consumers, total, 0 if load.auto_ack else load.ack_every, clock)

    return run


def drained(consumers: Sequence[Deliveries], total: int, ack_every: int, clock: Clock) -> Figures:
    """Figures of consuming `total` messages, acknowledging every given number of deliveries (0: never)."""
    for each in arriving(consumers, total):
        each.done(each.take(), ack_every)
    figures = clock.stop()
    for each in consumers:
        if ack_every:
            each.acknowledge()
        each.connection.close()
    return figures


def crowd(load: Load, index: int) -> Role:
    """Many connections, each of which publishes a message after the previous confirm."""

    def run(gate: Barrier) -> Figures:
        members = [Confirms(load.connect(SMALL_ROOM)) for _ in range(load.connections // load.publishers)]
        share = load.share // len(members)
        ((_, parts),) = load.messages.chunks(index, 1, members[0].connection.frame_max, 1)
        publish = b"".join(parts)
        for member in members:
            member.connection.select_confirms()
        gate.wait()
        clock = Clock()
        with selectors.EpollSelector() as selector:
            for member in members:
                selector.register(member.connection.socket, selectors.EVENT_READ, member)
                member.connection.send(publish)
                member.sent = 1
            waiting = len(members)
            while waiting:
                ready = selector.select(LONGEST_WAIT)
                if not ready:
                    raise LoadError(f"{waiting} connections got no confirm for {LONGEST_WAIT:.0f} s")
                for key, _ in ready:
                    member = key.data
                    member.read()
                    if member.sent < share:
                        member.connection.send(publish)
                        member.sent += 1
                    else:
                        waiting -= 1
        figures = clock.stop()
        for member in members:
            member.connection.close()
        return figures

    return run


def punctual_publisher(load: Load, count: int) -> Role:
    """Publish at the fixed rate, in ticks of a millisecond."""

    def run(gate: Barrier) -> Figures:
        connection = load.connect()
        chunks = load.messages.chunks(0, count, connection.frame_max, per_tick(load))
        gate.wait()
        clock = Clock()
        began = time.monotonic() + 0.1
        sent = 0
        for size, parts in chunks:
            wait_for = began + sent / load.rate - time.monotonic()
            if wait_for > 0:
                time.sleep(wait_for)
            connection.send_parts(parts)
            sent += size
        figures = clock.stop()
        connection.close()
        return figures | {"began": began}

    return run


def timing_consumer(load: Load, total: int) -> Role:
    """Consume without acknowledgements, and note the arrival time of each message."""

    def run(gate: Barrier) -> Figures:
        consumers = [Deliveries(load.connect(), ordered=True) for _ in load.names]
        for each, name in zip(consumers, load.names, strict=True):
            each.connection.consume(name, auto_ack=True)
        arrivals = array("d", [0.0]) * total
        gate.wait()
        clock = Clock()
        for each in arriving(consumers, total):
            deliveries = each.take()
            now = time.monotonic()
            for number in each.numbers(deliveries):
                arrivals[number] = now
            each.done(deliveries, 0)
        figures = clock.stop()
        for each in consumers:
            each.connection.close()
        return figures | {"arrivals": arrivals}

    return run


def per_tick(load: Load) -> int:
    """Number of messages due per tick."""
    return max(1, int(load.rate * TICK))


def arriving(consumers: Sequence[Deliveries], total: int) -> Iterable[Deliveries]:
    """Yield every consumer with received octets, until all consumers together have `total` deliveries."""
    yield from consumers  # deliveries received with the answer to consume are in the buffers
    with selectors.DefaultSelector() as selector:
        for each in consumers:
            selector.register(each.connection.socket, selectors.EVENT_READ, each)
        while (count := sum(each.count for each in consumers)) < total:
            ready = selector.select(LONGEST_WAIT)
            if not ready:
                raise LoadError(f"{count} of {total} messages came, then none for {LONGEST_WAIT:.0f} s")
            for key, _ in ready:
                key.data.connection.fill()
                yield key.data
    if count > total:
        raise LoadError(f"{count} messages came of {total} that were published")
