"""Bodies of a megabyte and more arrive unchanged, for any frame sizes; other clients are served meanwhile."""

import random
import threading
from collections.abc import Callable

import pytest
from tests.wire import BODY, HEADER, HEARTBEAT, METHOD, WireChannel, content_header, frame, login

from jumpmq import RunningBroker

Name = Callable[[str], str]


def frames(channel: WireChannel, queue: str, body: bytes, sizes: list[int]) -> list[bytes]:
    """Return the frames of a publish, with body frames of the given sizes in turn."""
    number, place, found = channel.number, 0, []
    method = b"\0\x3c\0\x28\0\0\0" + bytes((len(queue),)) + queue.encode() + b"\0"
    found += [frame(METHOD, number, method), frame(HEADER, number, content_header(len(body)))]
    while place < len(body):
        size = sizes[len(found) % len(sizes)]
        found.append(frame(BODY, number, body[place : place + size]))
        place += size
    return found


@pytest.mark.parametrize("sizes", [[131_064], [10_000], [131_064, 131_064, 131_064, 131_000], [4096, 100_000]])
@pytest.mark.parametrize("read", [1 << 30, 777_777])
def test_however_a_body_is_cut(channel: WireChannel, unique: Name, sizes: list[int], read: int) -> None:
    queue = channel.queue(unique("large"))
    bodies = [random.Random(size).randbytes(size) for size in (3_000_000, 1_000_000, 262_144, 5, 1_000_000)]
    octets = b"".join(b"".join(frames(channel, queue, body, sizes)) for body in bodies)
    for start in range(0, len(octets), read):
        channel.connection.send(octets[start : start + read])
    assert channel.ready(queue) == len(bodies)
    assert channel.bodies(queue) == bodies


def test_between_its_frames_others_may_come(channel: WireChannel, unique: Name) -> None:
    queue, other = channel.queue(unique("large")), channel.connection.channel()
    body = random.Random(1).randbytes(2_000_000)
    publication = frames(channel, queue, body, [131_064])
    between = [b"".join(frames(other, queue, b"small", [131_064])), frame(HEARTBEAT, 0, b"")]
    parts = publication[:8] + between + publication[8:12] + between + publication[12:]
    channel.connection.send(b"".join(parts))
    assert channel.ready(queue) == 3
    assert channel.bodies(queue) == [b"small", b"small", body]


def test_a_frame_that_does_not_end_closes_the_connection(broker: RunningBroker, unique: Name) -> None:
    with login(broker.port) as connection:
        channel = connection.channel()
        publication = frames(channel, channel.queue(unique("large")), bytes(2_000_000), [131_064])
        publication[9] = publication[9][:-1] + b"\0"
        connection.send(b"".join(publication))
        assert connection.refusal() == (501, "FRAME_ERROR - type 3, invalid frame end marker 0")


def test_a_bystander_is_served_while_large_bodies_come(
    broker: RunningBroker, channel: WireChannel, unique: Name
) -> None:
    queue, count = channel.queue(unique("large"), exclusive=False, auto_delete=True), 100
    octets = b"".join(frames(channel, queue, bytes(1_000_000), [131_064])) * count
    publisher = threading.Thread(target=channel.connection.send, args=(octets,))
    with login(broker.port) as connection:
        bystander = connection.channel()
        counts = [bystander.ready(queue)]
        publisher.start()
        while counts[-1] < count:
            counts.append(bystander.ready(queue))
        publisher.join()
    assert len(set(counts) - {0, count}) >= 2
    assert channel.purge(queue) == count
