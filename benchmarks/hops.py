"""Cost of a hop between two processes of one machine, part by part, in microseconds of processor time.

The processes do no further work; the broker's codecs are used where they exist.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle, islice
from multiprocessing.synchronize import Barrier
from typing import Any, cast

import uvloop

from benchmarks.load.client import METHOD, method
from benchmarks.load.processes import Clock, Figures, Role, together
from benchmarks.load.traffic import Messages
from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message, encode_deliveries, relay_deliveries, scan
from jumpmq.amqp.protocol import FRAME_MAX
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.queues.runs import packed_seqs

SMALL = 100
"""Octets of a small body."""
READ = 1 << 20
OCTETS = 400 << 20
COLD = 32 << 20
"""Octets beyond the size of processor caches. A queue's contents are not in the cache either."""
RUN = 400
"""Number of small messages in one read of a busy connection."""
ACK = method(1, 60, 80, struct.pack(">QB", 1, 0))
ENTRY = json.dumps({"change": "DeclareQueue", "of": "x" * 250}).encode()
"""A definition change of typical size."""

Use = Callable[[bytearray, int], int]
"""Takes a buffer and its filled length, processes the complete frames, and returns their length."""


class Hops:
    """Measurements of the parts of a hop.

    Args:
        rounds: number of repetitions; the minimum counts, as other load only adds to it.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def enqueue(self, size: int) -> float:
        """One message of a batch: encoded for a Unix socket, written, read and scanned; cost of both processes."""
        messages, octets = published(size)
        batches = max(1, OCTETS // 4 // len(octets))

        copies = in_memory(octets)

        def send(near: socket.socket) -> None:
            for copy in islice(cycle(copies), batches):
                encode_deliveries(messages, 1, b"", 1, FRAME_MAX)  # stands for an encoder of publishes
                near.sendall(copy)

        def receive(far: socket.socket) -> None:
            found = 0
            held: deque[list[Any]] = deque(maxlen=COLD // len(octets))  # as in a queue: later messages get new memory

            def take(buffer: bytearray, filled: int) -> int:
                nonlocal found
                begin, used = 0, -1
                while used:
                    events, used = scan(memoryview(buffer)[begin:filled], FRAME_MAX, 0.0)
                    held.append(events)
                    for event in events:  # a frame cut by the end of a read is a separate event
                        found += len(event.messages) if isinstance(event, Publish) else event.type == METHOD
                    begin += used
                return begin

            pass_on(far, len(octets) * batches, take)
            assert found == batches * len(messages), found

        return sum(self._cost(lambda: pair(send, receive), batches * len(messages)))

    def relay(self, size: int) -> float:
        """One delivery of a batch and its acknowledgement, through a further process.

        The process assigns a delivery tag of its own, and keeps the tag until the acknowledgement.
        """
        messages, _ = published(size)
        octets = b"".join(bytes(part) for part in encode_deliveries(messages, 1, b"consumer", 1, FRAME_MAX))
        batches = max(1, OCTETS // 4 // len(octets))
        total, copies = len(octets) * batches, in_memory(octets)

        def through() -> Sequence[Role]:
            home, near = socket.socketpair()
            far, client = tcp()

            def send(gate: socket.socket) -> None:
                for copy in islice(cycle(copies), batches):
                    gate.sendall(copy)
                    with suppress(BlockingIOError):
                        gate.recv(READ, socket.MSG_DONTWAIT)  # acknowledgements

            def between(gate: socket.socket) -> None:
                tag, held = 1, Deliveries()

                def take(buffer: bytearray, filled: int) -> int:
                    nonlocal tag
                    with memoryview(buffer)[:filled] as view:
                        found, count, _, end = relay_deliveries(view, 0, tag, FRAME_MAX, None, None, True)
                        held.add(tag, found)
                        tag += count
                        far.sendall(view[:end])
                    gate.sendall(packed_seqs(held.take_upto(tag - 1).messages()))
                    return end

                pass_on(gate, total, take)

            return [role(home, send), role(near, between), role(client, lambda gate: pass_on(gate, total))]

        return self._more(copies, batches, through) / (batches * len(messages))

    def octets(self) -> float:
        """An octet through a further process, without parsing."""
        batches, copies = OCTETS // READ, in_memory(bytes(READ))

        def through() -> Sequence[Role]:
            home, near = socket.socketpair()
            far, client = tcp()

            def send(gate: socket.socket) -> None:
                for copy in islice(cycle(copies), batches):
                    gate.sendall(copy)

            def between(gate: socket.socket) -> None:
                pass_on(gate, OCTETS, target=far)

            return [role(home, send), role(near, between), role(client, lambda gate: pass_on(gate, OCTETS))]

        return self._more(copies, batches, through) / OCTETS

    def wake(self) -> float:
        """A few octets written and read by event loops, such as a receipt."""
        rounds = 10_000

        def call(near: socket.socket) -> None:
            uvloop.run(_ping(near, rounds, begin=True))

        def answer(far: socket.socket) -> None:
            uvloop.run(_ping(far, rounds, begin=False))

        return sum(self._cost(lambda: pair(call, answer), 2 * rounds))

    def hand_over(self) -> float:
        """A connected socket passed to another process."""
        count = 5_000

        def give(near: socket.socket) -> None:
            for _ in range(count):
                socket.send_fds(near, [b"x"], [near.fileno()])

        def take(far: socket.socket) -> None:
            left = count
            while left:
                octets, descriptors, _, _ = socket.recv_fds(far, 1, 1)
                left -= len(octets)
                for descriptor in descriptors:
                    os.close(descriptor)

        return sum(self._cost(lambda: pair(give, take), count))

    def barrier(self, workers: int) -> float:
        """Milliseconds from a worker's proposal of a change, synced by the first worker, until all have applied
        the change.
        """
        return min(_barrier(workers) for _ in range(self._rounds)) * 1e3

    def _more(self, copies: list[bytes], batches: int, through: Callable[[], Sequence[Role]]) -> float:
        """Additional cost of the first two processes, relative to sending the octets to TCP directly."""

        def send(far: socket.socket) -> None:
            for copy in islice(cycle(copies), batches):
                far.sendall(copy)

        def direct() -> Sequence[Role]:
            far, client = tcp()
            return [role(far, send), role(client, lambda gate: pass_on(gate, len(copies[0]) * batches))]

        home, between, _ = self._cost(through, 1)
        return home + between - self._cost(direct, 1)[0]

    def _cost(self, roles: Callable[[], Sequence[Role]], units: int) -> list[float]:
        """Cost per unit, by process."""
        runs = [[each["cpu"] / units * 1e6 for each in together(roles())] for _ in range(self._rounds)]
        return [min(column) for column in zip(*runs, strict=True)]


def published(size: int) -> tuple[list[Message], bytes]:
    """Messages of one batch, and their octets as published by a client."""
    octets = Messages("load", size, 1_000_000, persistent=False).encode(0, RUN if size == SMALL else 4, FRAME_MAX)
    return [message for event in scan(octets, FRAME_MAX, 0.0)[0] for message in event.messages], octets


def in_memory(octets: bytes) -> list[bytes]:
    """Return enough copies that no processor cache holds the next copy in turn."""
    return [bytes(bytearray(octets)) for _ in range(COLD // len(octets) + 1)]


def pair(near: Callable[[socket.socket], None], far: Callable[[socket.socket], None]) -> Sequence[Role]:
    """Two processes, joined by a Unix socket."""
    first, second = socket.socketpair()
    return [role(first, near), role(second, far)]


def tcp() -> tuple[socket.socket, socket.socket]:
    """Both ends of a loopback connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return listener.accept()[0], client


def role(connection: socket.socket, work: Callable[[socket.socket], None]) -> Role:
    """A role that runs a function with a socket."""

    def run(gate: Barrier) -> Figures:
        gate.wait()
        clock = Clock()
        work(connection)
        return clock.stop()

    return run


def pass_on(
    source: socket.socket,
    total: int,
    use: Use = lambda buffer, filled: filled,
    target: socket.socket | None = None,
) -> None:
    """Receive octets read by read, and send on the used part of each."""
    buffer, filled = bytearray(2 * READ), 0
    view = memoryview(buffer)
    while total:
        received = source.recv_into(view[filled : filled + READ])
        total, filled = total - received, filled + received
        used = use(buffer, filled)
        if target is not None:
            target.sendall(view[:used])
        view[: filled - used] = bytes(view[used:filled])
        filled -= used


async def _ping(connection: socket.socket, rounds: int, *, begin: bool) -> None:
    done = asyncio.Event()

    class Player(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.left = cast("asyncio.Transport", transport), rounds
            if begin:
                self.transport.write(ACK)

        def data_received(self, data: bytes) -> None:
            self.left -= 1
            if self.left or not begin:
                self.transport.write(data)
            if not self.left:
                done.set()

    await asyncio.get_running_loop().create_connection(Player, sock=connection)
    await done.wait()


def _barrier(workers: int) -> float:
    """Seconds per change of definitions, over many consecutive changes."""
    changes = 200
    links = [socket.socketpair() for _ in range(workers - 1)]

    def first(gate: Barrier) -> Figures:
        with tempfile.TemporaryFile(dir=".", buffering=0) as log:
            gate.wait()
            proposer, others = links[0][0], [near for near, _ in links]
            for _ in range(changes):
                proposer.recv(len(ENTRY))
                log.write(ENTRY)
                os.fdatasync(log.fileno())
                for one in others:
                    one.sendall(ENTRY)
                for one in others:
                    one.recv(1)
                proposer.sendall(b"!")
        return {}

    def other(index: int) -> Role:
        def run(gate: Barrier) -> Figures:
            connection = links[index][1]
            gate.wait()
            began = time.perf_counter()
            for _ in range(changes):
                if index == 0:
                    connection.sendall(ENTRY)
                connection.recv(len(ENTRY))
                connection.sendall(b"+")
                if index == 0:
                    connection.recv(1)
            return {"seconds": time.perf_counter() - began}

        return run

    seconds: float = together([first, *(other(index) for index in range(workers - 1))])[1]["seconds"]
    return seconds / changes
