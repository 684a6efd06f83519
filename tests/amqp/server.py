"""A server's side without a broker: gives a broker's answers, and records received events."""

from collections.abc import Iterator
from typing import Any

from tests.amqp.streams import method_frame
from tests.wire import PROTOCOL_HEADER, frame

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.events import Ack, Publish
from jumpmq.amqp.protocol import BadHeader, Begun, Failed, Received, ServerEvent, ServerProtocol, TooLargeContent

NOW = 1_700_000_000.25


class Server:
    """A connection.

    Attributes:
        seen: received events, in order; messages and acks singly, independent of their runs.
        ends: the ``Failed`` and ``BadHeader`` among the events.
    """

    def __init__(self) -> None:
        self.protocol = ServerProtocol()
        self.seen: list[tuple[Any, ...]] = []
        self.ends: list[ServerEvent] = []

    def receive(self, octets: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Pass the octets of a read. Return the received events."""
        return self._take(self.protocol.receive(octets, NOW))

    def receive_scattered(self, octets: bytes, behind: int) -> int:
        """Pass the octets of a scatter read, with ``behind`` octets of room after a body. Return the octets taken."""
        scatter = self.protocol.scatter(memoryview(bytearray(behind)))
        assert scatter is not None
        taken = octets[: scatter.size]
        rest = taken
        for buffer in scatter.buffers:
            buffer[: len(rest)] = rest[: len(buffer)]
            rest = rest[len(buffer) :]
        self._take(self.protocol.receive_scattered(scatter, len(taken), NOW))
        return len(taken)

    def _take(self, events: Iterator[ServerEvent]) -> list[tuple[Any, ...]]:
        before = len(self.seen)
        for event in events:
            self.seen += list(shown(event))
            self._answer(event)
        return self.seen[before:]

    def sent(self) -> list[tuple[int, m.Method]]:
        """Methods sent since the last call, with their channels."""
        octets, found = b"".join(self.protocol.data_to_send()), []
        while octets:
            end = 7 + int.from_bytes(octets[3:7])
            found.append((int.from_bytes(octets[1:3]), m.decode(octets[7:end])))
            octets = octets[end + 1 :]
        return found

    def _answer(self, event: ServerEvent) -> None:
        protocol = self.protocol
        match event:
            case Begun():
                protocol.send(0, m.ConnectionStart())
            case Received(0, m.ConnectionStartOk()):
                protocol.propose(60)
            case Received(0, m.ConnectionOpen()):
                protocol.send(0, m.ConnectionOpenOk())
            case Received(channel, m.ChannelOpen()):
                protocol.send(channel, m.ChannelOpenOk())
            case TooLargeContent(channel, _):
                protocol.close_channel(channel, PreconditionFailed("too large"), m.BasicPublish)
            case Failed():
                self.ends.append(event)
                protocol.send_close(event)
            case BadHeader():
                self.ends.append(event)


def shown(event: ServerEvent) -> list[tuple[Any, ...]]:
    """An event as plain values, a run as its parts."""
    match event:
        case Publish():
            return [
                (
                    "publish",
                    event.channel,
                    event.exchange,
                    one.routing_key,
                    one.properties,
                    one.body,
                    one.persistent,
                    event.mandatory,
                    event.immediate,
                )
                for one in event.messages
            ]
        case Ack():
            return [("ack", event.channel, tag, event.multiple) for tag in event.tags]
        case Received():
            return [("received", event.channel, event.method)]
        case Failed():
            return [("failed", event.error.code, event.error.text, event.channel, event.class_id, event.method_id)]
        case TooLargeContent():
            return [("too large", event.channel, event.size)]
    return [(type(event).__name__,)]


def handshake(frame_max: int = 131072, channel_max: int = 2047) -> bytes:
    """All octets of a client until the connection is open."""
    return b"".join(
        (
            PROTOCOL_HEADER,
            method_frame(0, m.ConnectionStartOk([], "PLAIN", b"\0guest\0guest", "en_US")),
            method_frame(0, m.ConnectionTuneOk(channel_max, frame_max, 60)),
            method_frame(0, m.ConnectionOpen("/")),
        )
    )


def opened(frame_max: int = 131072, channel_max: int = 2047, channels: int = 1) -> Server:
    """A server with an open connection and open channels 1 to ``channels``."""
    server = Server()
    server.receive(handshake(frame_max, channel_max))
    for number in range(1, channels + 1):
        server.receive(method_frame(number, m.ChannelOpen()))
    assert not server.ends
    server.sent()
    server.seen.clear()
    return server


HEARTBEAT = frame(8, 0, b"")
