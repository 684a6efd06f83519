"""Octets that no client should send.

The reply code is RabbitMQ's. Its text quotes Erlang terms, so that only the words of the reason are compared. Where
RabbitMQ 3.10.8 gives no code, because it crashes on the input, falls silent or answers 541 INTERNAL_ERROR, the test
requires only the end of the connection and JumpMQ's code.
"""

import re
import struct

import pytest
from tests.conformance.typed_fields import headers
from tests.wire import BODY, HEADER, HEARTBEAT, METHOD, ConnectionClosed, Hangup, content_header, frame, login

from jumpmq.testing import BrokerProcess

pytestmark = pytest.mark.usefixtures("bystander")


def method(class_id: int, method_id: int, arguments: bytes, channel: int = 1) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def announce(body_size: int) -> bytes:
    return frame(HEADER, 1, content_header(body_size))


PUBLISH = method(60, 40, b"\0\0\0\x06orders\0")
DECLARE = b"\0\0\x06orders\0"

MALFORMED: dict[str, tuple[bytes, int, str]] = {
    "an unknown frame type": (frame(5, 1, b"abc"), 501, "FRAME_ERROR - type 5, .*unknown.frame"),
    "a wrong frame end": (
        frame(METHOD, 1, b"\0\x32\0\x0a", end=b"\0"), 501, "FRAME_ERROR - type 1, .*invalid.frame.end.marker",
    ),
    "a frame above the maximum": (
        frame(BODY, 1, bytes(9), size=131_073), 501, "FRAME_ERROR - type 3, .*frame_too_large",
    ),
    "a method frame without a method": (frame(METHOD, 1, b""), 501, "FRAME_ERROR - "),
    "a short string past the end": (method(50, 10, b"\0\0\x05ab"), 501, "FRAME_ERROR - "),
    "octets behind the arguments": (method(50, 10, DECLARE + b"\0\0\0\0abc"), 501, "FRAME_ERROR - "),
    "a table past the end": (method(50, 10, DECLARE + b"\0\0\0\xff\x01aZ"), 501, "FRAME_ERROR - "),
    "a name that is not UTF-8": (method(50, 10, b"\0\0\x02\xff\xfe\0\0\0\0\0"), 501, "FRAME_ERROR - .*UTF-8"),
    "a heartbeat on a channel": (frame(HEARTBEAT, 1, b""), 505, "UNEXPECTED_FRAME - "),
    "a heartbeat with a payload": (frame(HEARTBEAT, 0, b"x"), 501, "FRAME_ERROR - "),
    "content on channel 0": (frame(HEADER, 0, content_header(3)), 505, "UNEXPECTED_FRAME - "),
    "a content header cut short": (PUBLISH + frame(HEADER, 1, b"\0\x3c\0"), 501, "FRAME_ERROR - "),
    "a content header of another class": (
        PUBLISH + frame(HEADER, 1, content_header(3, class_id=50)),
        505, "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead$",
    ),
    "a header that nobody announced": (
        announce(3), 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead$",
    ),
    "a body that nobody announced": (
        frame(BODY, 1, b"abc"), 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead$",
    ),
    "a body for an empty message": (
        PUBLISH + announce(0) + frame(BODY, 1, b"abc"),
        505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead$",
    ),
    "a binding key that is not UTF-8": (
        method(50, 20, b"\0\0\x01q\x01e\x01\xff\0\0\0\0\0"),
        501, "FRAME_ERROR - Malformed UTF-8 in shortstr$",
    ),
    "a body instead of the header": (
        PUBLISH + frame(BODY, 1, b"abc"),
        505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead$",
    ),
    "a method instead of the header": (
        PUBLISH + PUBLISH,
        505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead$",
    ),
    "a method instead of the body": (
        PUBLISH + announce(3) + PUBLISH,
        505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead$",
    ),
    "a channel.open instead of the header": (
        PUBLISH + method(20, 10, b"\0"),
        505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead$",
    ),
    "a header instead of the body": (
        PUBLISH + announce(3) + announce(3),
        505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead$",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("octets", "code", "pattern"), MALFORMED.values(), ids=MALFORMED.keys())
def test_is_refused(broker: BrokerProcess, octets: bytes, code: int, pattern: str) -> None:
    with login(broker.port) as connection:
        connection.channel(1)
        connection.send(octets)
        refusal_code, text = connection.refusal()
        assert refusal_code == code
        assert re.match(pattern, text), text
        assert connection.closed_by_broker


@pytest.mark.parametrize("octets", [PUBLISH + method(20, 20, b"\1"), PUBLISH + announce(3) + announce(3)])
def test_a_content_that_is_cut_short_is_told_of_its_publish(broker: BrokerProcess, octets: bytes) -> None:
    with login(broker.port) as connection:
        connection.channel(1)
        connection.send(octets)
        with pytest.raises(ConnectionClosed) as closed:
            connection.next_event(1)
    assert (closed.value.code, closed.value.method) == (505, (60, 40))


NO_CODE_TO_FOLLOW: dict[str, tuple[bytes, int]] = {
    "an unknown class": (method(99, 10, b""), 503),
    "an unknown method": (method(50, 99, b""), 503),
    "an unknown field type in a table": (method(50, 10, DECLARE + b"\0\0\0\x05\x01a\x01zz"), 502),
    "a property past the end": (PUBLISH + frame(HEADER, 1, content_header(0, b"\x80\0\x50ab")), 502),
    "headers with an unknown field type": (PUBLISH + frame(HEADER, 1, content_header(0, headers(b"\x01a\x01"))), 502),
}


@pytest.mark.parametrize(("octets", "code"), NO_CODE_TO_FOLLOW.values(), ids=NO_CODE_TO_FOLLOW.keys())
def test_ends_the_connection(broker: BrokerProcess, octets: bytes, code: int) -> None:
    with login(broker.port) as connection:
        connection.channel(1)
        connection.send(octets)
        if broker.name == "JumpMQ":
            assert connection.refusal()[0] == code
        else:
            with pytest.raises((Hangup, ConnectionClosed)):
                connection.next_event(1)


@pytest.mark.parametrize("excess", [[b"abcd"], [b"ab", b"cd"]], ids=["in one frame", "in two frames"])
def test_a_body_larger_than_announced_is_refused(broker: BrokerProcess, excess: list[bytes]) -> None:
    """RabbitMQ 3.10.8 reads further bodies, and reports the error at the next method; JumpMQ at once."""
    with login(broker.port) as connection:
        connection.channel(1)
        connection.send(PUBLISH + announce(3) + b"".join(frame(BODY, 1, octets) for octets in excess))
        if broker.name == "RabbitMQ":
            connection.send(PUBLISH)
        assert connection.refusal()[0] in (501, 505)
