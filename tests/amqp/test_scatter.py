"""Large bodies read directly into their memory: the expected octets arrive, or others."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.server import Server, opened
from tests.amqp.streams import LARGE, PIECES, damaged, publication, reads
from tests.wire import BODY, HEADER, METHOD, content_header, frame

from jumpmq.amqp import methods as m
from jumpmq.amqp import protocol
from jumpmq.amqp.errors import NotFound
from jumpmq.amqp.scatter import MOST_FRAMES

FROM = 2000


@pytest.fixture(autouse=True, scope="module")
def _short_bodies_are_large() -> Iterator[None]:
    before, protocol.SCATTERED_FROM = protocol.SCATTERED_FROM, FROM
    yield
    protocol.SCATTERED_FROM = before


def receive(server: Server, read: bytes, behind: int = 16) -> None:
    """Pass the octets of a socket, as a connection."""
    while read:
        if server.protocol.scatters:
            read = read[server.receive_scattered(read, behind) :]
        else:
            server.receive(read[:500])
            read = read[500:]


def outcome(server: Server) -> tuple[object, ...]:
    """Received events up to the first failure; later frame boundaries are unknown."""
    failures = [place for place, (what, *_) in enumerate(server.seen) if what == "failed"]
    return (server.seen[: failures[0] + 1],) if failures else (server.seen, server.protocol.unfinished)


@given(damaged(st.lists(LARGE | PIECES, max_size=6).map(b"".join)), st.data())
def test_how_a_body_is_read_changes_nothing(octets: bytes, data: st.DataObject) -> None:
    whole, scattered = opened(channels=2), opened(channels=2)
    whole.receive(octets)
    for read in data.draw(reads(octets)):
        receive(scattered, read, data.draw(st.integers(8, 40)))
    assert outcome(scattered) == outcome(whole)


def begun(size: int, piece: int) -> tuple[Server, bytes]:
    """A server in the middle of a body with frames of ``piece`` octets, and the remaining octets."""
    server = opened()
    octets = publication(1, b"", b"q", bytes(range(200)) * (size // 200), piece=piece)
    server.receive(octets[:500])
    assert server.protocol.scatters
    return server, octets[500:]


def test_a_body_comes_in_one_read_with_what_follows_it() -> None:
    server, rest = begun(40_000, 8000)
    following = publication(1, b"", b"q", b"next")
    assert server.receive_scattered(rest + following, len(following) + 1) == len(rest + following)
    assert [seen[5] for seen in server.seen] == [bytes(range(200)) * 200, b"next"]
    assert server.protocol.unfinished == 0


def test_a_body_of_many_frames_comes_in_several_reads() -> None:
    server, rest = begun(4096 * (MOST_FRAMES + 4), 4096)
    count = 0
    while server.protocol.scatters:
        rest = rest[server.receive_scattered(rest, 16) :]
        count += 1
    server.receive(rest)
    assert count == 2
    assert len(server.seen) == 1


def test_frames_of_other_sizes_than_foreseen_are_read_as_well() -> None:
    server = opened()
    body = bytes(range(200)) * 100
    server.receive(method_and_header(len(body)))
    frames = b"".join(
        frame(BODY, 1, body[start:end]) for start, end in ((0, 5000), (5000, 9500), (9500, 9600), (9600, len(body)))
    )
    receive(server, frames)
    assert [seen[5] for seen in server.seen] == [body]


def test_a_channel_that_closed_takes_no_more_of_its_body() -> None:
    server, rest = begun(40_000, 8000)
    server.protocol.close_channel(1, NotFound("no exchange"), m.BasicPublish)
    assert not server.protocol.scatters
    assert server.protocol.scatter(memoryview(bytearray(8))) is None
    receive(server, rest)
    assert (server.seen, server.protocol.unfinished) == ([], 0)


def method_and_header(size: int) -> bytes:
    """The frames of a publish before its body."""
    method = m.BasicPublish(exchange="", routing_key=b"q")
    return frame(METHOD, 1, method.encode()) + frame(HEADER, 1, content_header(size))
