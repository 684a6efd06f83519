"""Strategies of hypothesis for a client's octets: frames of all kinds, whole, cut and damaged."""

import struct

from hypothesis import strategies as st
from tests.wire import BODY, HEADER, HEARTBEAT, METHOD, content_header, frame

from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field

HEADERS = b"\x20\x00\x00\x00\x00\x0b\x01aI\x00\x00\x00\x07\x01bt\x01"
PROPERTIES = (b"\x00\x00", b"\x10\x00\x02", b"\x10\x00\x01", b"\x98\x00\x04text\x02\x05", HEADERS)
MALFORMED_PROPERTIES = (b"", b"\x10", b"\x10\x00", b"\x00\x01", b"\x00\x00x", b"\x80\x00\x09text", HEADERS[:-1])


def publication(
    channel: int,
    exchange: bytes,
    key: bytes,
    body: bytes,
    properties: bytes = b"\0\0",
    *,
    bits: int = 0,
    announced: int | None = None,
    piece: int = 65536,
) -> bytes:
    """Frames of a ``basic.publish``; ``announced`` falsifies the size of the body."""
    method = struct.pack(">HHHB", 60, 40, 0, len(exchange)) + exchange + bytes((len(key),)) + key + bytes((bits,))
    size = len(body) if announced is None else announced
    bodies = (frame(BODY, channel, body[at : at + piece]) for at in range(0, len(body), piece))
    return b"".join((frame(METHOD, channel, method), frame(HEADER, channel, content_header(size, properties)), *bodies))


def method_frame(channel: int, method: m.Method) -> bytes:
    """The frame of any method."""
    return frame(METHOD, channel, method.encode())


CHANNELS = st.sampled_from([0, 1, 1, 1, 1, 2, 2, 3, 65535])

PUBLICATIONS = st.builds(
    publication,
    CHANNELS,
    st.sampled_from([b"", b"flights", b"flights", b"fl\xc3\xbcge", b"\xff"]),
    st.sampled_from([b"", b"N14228", b"\xff\x00", b"k" * 255]),
    st.binary(max_size=40),
    st.sampled_from(PROPERTIES * 3 + MALFORMED_PROPERTIES),
    bits=st.sampled_from([0, 0, 0, 1, 2, 255]),
    announced=st.sampled_from([None, None, None, None, None, None, 0, 3, 1 << 40, (1 << 64) - 1, (1 << 64) - 8]),
    piece=st.sampled_from([65536, 65536, 5]),
)

LARGE = st.builds(
    publication,
    st.sampled_from([1, 1, 2]),
    st.just(b"e"),
    st.just(b"k"),
    st.integers(4000, 30_000).map(lambda size: bytes(range(250)) * (size // 250)),
    piece=st.sampled_from([131064, 8000, 4096, 4088]),
)
"""Bodies received in several reads."""

ACKS = st.builds(
    method_frame,
    CHANNELS,
    st.builds(m.BasicAck, st.sampled_from([0, 1, 2, 3, (1 << 64) - 1]), st.booleans() | st.just(False)),
)

METHODS = st.builds(
    method_frame,
    CHANNELS,
    st.sampled_from(
        [
            m.ChannelOpen(),
            m.ChannelClose(200, "bye"),
            m.ChannelCloseOk(),
            m.QueueDeclare(queue="orders", arguments=[Field("x-max-length", "I", 7)]),
            m.BasicConsume(queue="orders"),
            m.BasicDeliver("tag", 1),
            m.ConnectionClose(),
            m.ConnectionCloseOk(),
            m.ConnectionTuneOk(10, 4096, 0),
            m.ConnectionUpdateSecret(b"secret"),
        ]
    ),
)

FRAMES = st.builds(
    frame, st.sampled_from([METHOD, HEADER, BODY, HEARTBEAT, 0, 65]), CHANNELS, st.binary(max_size=24)
) | st.sampled_from([frame(HEARTBEAT, 0, b""), frame(METHOD, 1, b"", size=1 << 20), frame(BODY, 1, b"x", end=b"x")])

PIECES = st.one_of(PUBLICATIONS, PUBLICATIONS, PUBLICATIONS, ACKS, ACKS, METHODS, FRAMES)

WHOLE = st.lists(PIECES, max_size=12).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn, streams: st.SearchStrategy[bytes] = WHOLE) -> bytes:
    """A stream of frames that may be cut short, or have some octets changed."""
    octets = bytearray(draw(streams))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 3]))):
        if octets:
            octets[draw(st.integers(0, len(octets) - 1))] = draw(st.integers(0, 255))
    return bytes(octets[: draw(st.integers(0, len(octets)))] if draw(st.booleans()) else octets)


@st.composite
def reads(draw: st.DrawFn, octets: bytes) -> list[bytes]:
    """The octets in pieces, as from a socket."""
    cuts = sorted(draw(st.lists(st.integers(0, len(octets)), max_size=10)))
    return [octets[start:end] for start, end in zip([0, *cuts], [*cuts, len(octets)], strict=True)]


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["", "flights", "Flüge"]),
        st.binary(max_size=255),
        st.sampled_from(PROPERTIES),
        st.binary(max_size=100),
        st.booleans(),
    ),
    max_size=8,
)
"""The contents of messages: exchange, routing key, properties, body, persistent."""
