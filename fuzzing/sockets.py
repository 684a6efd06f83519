"""Fuzzes a live broker through its socket, and verifies that other clients are unaffected.

    python -m fuzzing.sockets --seconds 60
    python -m fuzzing.sockets --seconds 60 --seed 7     the same conversations again

A broker runs in this process, on a free port of the loopback, with a temporary data directory. A conversation is that
of a plausible client (handshake, declares, publishes, consumes, acknowledgements, transactions), damaged: octets
changed, frames left out, repeated, exchanged, cut, given another channel or a wrong length, the socket shut or reset at
any point. After every few conversations a second connection must publish, get and declare, and the broker must not have
logged an exception. The exit status is 1 after a failure; seed and number of the conversation are printed, to reproduce
it.
"""

from __future__ import annotations

import argparse
import logging
import random
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pika

import jumpmq
from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
EVERY = 25
"""Number of conversations between two checks of the broker."""


@dataclass(slots=True)
class Frame:
    """A frame, possibly with a false size or end octet."""

    type: int
    channel: int
    payload: bytes
    excess: int = 0
    end: int = 0xCE

    def encode(self) -> bytes:
        size = (len(self.payload) + self.excess) & 0xFFFFFFFF
        return struct.pack(">BHI", self.type, self.channel, size) + self.payload + bytes((self.end,))


class Complaints(logging.Handler):
    """Keeps the broker's errors in the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


# --- what clients say ---


def method(channel: int, one: m.Method) -> Frame:
    return Frame(METHOD, channel, one.encode())


def publication(chance: random.Random, channel: int) -> list[Frame]:
    """A publish of random size, with random properties, to a random exchange."""
    body = chance.randbytes(chance.choice((0, 1, 20, 5000, 200_000)))
    properties = Properties(
        delivery_mode=chance.choice((None, 1, 2)),
        headers=chance.choice((None, [Field("CC", "A", [("S", "fuzzed")]), Field("device", "I", 7)])),
        expiration=chance.choice((None, None, "0", "60000", "-1", "soon")),
        reply_to=chance.choice((None, None, "amq.rabbitmq.reply-to")),
    )
    exchange = chance.choice(("", "", "fuzzed", "amq.topic", "amq.headers", "nowhere"))
    publish = m.BasicPublish(0, exchange, chance.choice((b"fuzzed", b"", b"\xff\x00")), chance.random() < 0.3)
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8) + properties.encode()
    pieces = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]
    return [
        method(channel, publish),
        Frame(HEADER, channel, header),
        *(Frame(BODY, channel, piece) for piece in pieces),
    ]


SAYINGS: list[Callable[[random.Random], m.Method]] = [
    lambda chance: m.ChannelOpen(),
    lambda chance: m.ChannelClose(),
    lambda chance: m.ChannelFlow(chance.random() < 0.7),
    lambda chance: m.ExchangeDeclare(0, "fuzzed", "x-consistent-hash", durable=chance.random() < 0.5),
    lambda chance: m.ExchangeDelete(0, "fuzzed"),
    lambda chance: m.QueueDeclare(0, "fuzzed", durable=True, arguments=[Field("x-max-length", "I", 50)]),
    lambda chance: m.QueueDeclare(0, "", exclusive=True),
    lambda chance: m.QueueBind(0, chance.choice(("fuzzed", "")), "fuzzed", chance.choice((b"1", b"20000", b"x"))),
    lambda chance: m.QueueUnbind(0, "fuzzed", "fuzzed", b"1"),
    lambda chance: m.QueuePurge(0, "fuzzed"),
    lambda chance: m.QueueDelete(0, "fuzzed", chance.random() < 0.5, chance.random() < 0.5),
    lambda chance: m.BasicQos(0, chance.choice((0, 1, 10)), chance.random() < 0.5),
    lambda chance: m.BasicConsume(0, "fuzzed", "tag", no_ack=chance.random() < 0.5),
    lambda chance: m.BasicConsume(0, "amq.rabbitmq.reply-to", "replies", no_ack=True),
    lambda chance: m.BasicCancel("tag"),
    lambda chance: m.BasicGet(0, "fuzzed", chance.random() < 0.5),
    lambda chance: m.BasicAck(chance.randrange(5), chance.random() < 0.5),
    lambda chance: m.BasicNack(chance.randrange(5), chance.random() < 0.5, chance.random() < 0.5),
    lambda chance: m.BasicReject(chance.randrange(5), chance.random() < 0.5),
    lambda chance: m.BasicRecover(chance.random() < 0.9),
    lambda chance: m.ConfirmSelect(),
    lambda chance: m.TxSelect(),
    lambda chance: m.TxCommit(),
    lambda chance: m.TxRollback(),
    lambda chance: chance.choice([*m.METHODS.values()])(),
]


def handshake(chance: random.Random) -> list[Frame]:
    tune = m.ConnectionTuneOk(2047, chance.choice((131072, 131072, 4096)), chance.choice((0, 1, 60)))
    return [
        method(0, m.ConnectionStartOk([], "PLAIN", b"\0guest\0guest", "en_US")),
        method(0, tune),
        method(0, m.ConnectionOpen()),
    ]


def talk(chance: random.Random) -> list[Frame]:
    """Random methods of a connected client."""
    frames = [
        method(1, m.ChannelOpen()),
        method(1, m.QueueDeclare(0, "fuzzed", arguments=[Field("x-max-length", "I", 50)])),
    ]
    for _ in range(chance.randrange(12)):
        channel = chance.choice((1, 1, 1, 1, 2))
        if chance.random() < 0.4:
            frames += publication(chance, channel)
        else:
            frames.append(method(channel, chance.choice(SAYINGS)(chance)))
    return frames


# --- damage ---


def damage(frames: list[Frame], chance: random.Random) -> None:
    """Change the frames in a single respect."""
    if not frames:
        return
    at = chance.randrange(len(frames))
    frame = frames[at]
    match chance.randrange(9):
        case 0:
            del frames[at]
        case 1:
            frames.insert(chance.randrange(len(frames)), frame)
        case 2:
            other = chance.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        case 3:
            frames[at] = Frame(chance.choice((METHOD, HEADER, BODY, HEARTBEAT, 0, 255)), frame.channel, frame.payload)
        case 4:
            frames[at] = Frame(frame.type, chance.choice((0, 1, 2, 65535)), frame.payload)
        case 5:
            frames[at] = Frame(frame.type, frame.channel, frame.payload[: chance.randrange(len(frame.payload) + 1)])
        case 6:
            excess, end = chance.choice(((1, 0xCE), (-1, 0xCE), (1 << 31, 0xCE), (0, 0)))
            frames[at] = Frame(frame.type, frame.channel, frame.payload, excess, end)
        case _:
            octets = bytearray(frame.payload)
            for _ in range(chance.choice((1, 1, 2, 8))):
                if octets:
                    octets[chance.randrange(len(octets))] = chance.choice((0, 1, 127, 255, chance.randrange(256)))
            frames[at] = Frame(frame.type, frame.channel, bytes(octets))


def conversation(chance: random.Random) -> tuple[list[bytes], bytes]:
    """Octets before the connection is open, each awaiting an answer, and octets afterwards."""
    first, then = handshake(chance), talk(chance)
    if chance.random() < 0.2:
        damage(first, chance)
    for _ in range(chance.choice((0, 1, 1, 1, 3))):
        damage(then, chance)
    header = b"AMQP\x00\x00\x09\x01" if chance.random() < 0.97 else chance.randbytes(chance.randrange(1, 20))
    octets = b"".join(frame.encode() for frame in then)
    if chance.random() < 0.1:
        octets = octets[: chance.randrange(len(octets) + 1)]
    steps = [frame.encode() for frame in first]
    return [header, *steps[:1], b"".join(steps[1:])], octets


def hold(port: int, chance: random.Random) -> None:
    """Hold a conversation until its end, with or without an error."""
    first, then = conversation(chance)
    pieces = chance.choice((1, 1, 2, 5))
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.25) as client:
        for octets in first:
            client.sendall(octets)
            client.recv(1 << 16)
        for at in range(pieces):
            client.sendall(then[len(then) * at // pieces : len(then) * (at + 1) // pieces])
        if chance.random() < 0.5:
            client.shutdown(socket.SHUT_WR)
        elif chance.random() < 0.3:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            return
        client.settimeout(0.02)
        while client.recv(1 << 16):
            pass


# --- the others ---


def check(port: int, complaints: Complaints) -> None:
    """Use the broker as a second client.

    Raises:
        AssertionError: a wrong result, or an error in the log.
    """
    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=5, blocked_connection_timeout=5)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, b"still here", mandatory=True)
        _, _, body = channel.basic_get(queue, auto_ack=True)
        assert body == b"still here", f"the bystander got {body!r}"
    assert not complaints.texts, "the broker logged an error"


def fuzz(seconds: float, seed: int) -> int:
    """Fuzz a broker for the given seconds. Return the number of conversations.

    Raises:
        AssertionError: a failure; the text has its description, seed and conversation.
    """
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    count = 0
    try:
        with tempfile.TemporaryDirectory() as directory, jumpmq.running(data_dir=Path(directory)) as broker:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for _ in range(EVERY):
                    hold(broker.port, random.Random(f"{seed}/{count}"))
                    count += 1
                try:
                    check(broker.port, complaints)
                except Exception as error:
                    where = f"seed {seed}, conversations {count - EVERY} to {count - 1}"
                    raise AssertionError("\n".join([f"{where}: {error}", *complaints.texts])) from error
    finally:
        logging.getLogger().removeHandler(complaints)
    return count


def run(fuzz: Callable[[float, int], int], description: str) -> int:
    """Fuzz with the options of the command line. Return the exit status.

    Args:
        fuzz: takes the seconds and the seed, and returns the number of conversations.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    try:
        count = fuzz(arguments.seconds, arguments.seed)
    except AssertionError as found:
        print(found, file=sys.stderr)
        return 1
    print(f"{count} conversations, nothing found (seed {arguments.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(run(fuzz, "Fuzz a broker through its socket."))
