"""RabbitMQ's streams with native stream clients: stored consumer offsets leave gaps between messages."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.spark.streams.published import Query, bodies, fill, rows

from jumpmq.spark import JumpMQError
from jumpmq.spark.rabbitmq import client as amqp_client
from jumpmq.testing import RabbitMQ, free_ports

pytestmark = pytest.mark.skipif(not RabbitMQ.available(), reason=RabbitMQ.available().reason)

PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE, TUNE, OPEN, STORE_OFFSET = 0x11, 0x12, 0x13, 0x14, 0x15, 0x0A


class WithStreams(RabbitMQ):
    """A RabbitMQ with the stream protocol.

    Attributes:
        stream_port: port of the stream protocol.
    """

    plugins = (*RabbitMQ.plugins, "rabbitmq_stream")

    def __init__(self) -> None:
        (self.stream_port,) = free_ports(1)
        super().__init__(settings=[f"stream.listeners.tcp.1 = 127.0.0.1:{self.stream_port}"])


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[WithStreams]:
    with WithStreams() as running:
        yield running


@pytest.fixture
def channel(rabbitmq: WithStreams) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", rabbitmq.port)) as connection:
        channel = connection.channel()
        channel.queue_delete("shared")
        channel.queue_declare("shared", durable=True, arguments={"x-queue-type": "stream"})
        yield channel


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def store_offset(port: int, stream: str, offset: int) -> None:
    """Store a consumer's offset in a stream by RabbitMQ's stream protocol. It is stored on return."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:

        def send(key: int, content: bytes) -> None:
            connection.sendall(struct.pack(">IHH", len(content) + 4, key, 1) + content)

        def answer(key: int) -> bytes:
            while True:
                content = answers.read(struct.unpack(">I", answers.read(4))[0])
                if struct.unpack(">H", content[:2])[0] & 0x7FFF == key:
                    return content

        send(PEER_PROPERTIES, struct.pack(">II", 1, 0))
        answer(PEER_PROPERTIES)
        send(SASL_HANDSHAKE, struct.pack(">I", 2))
        answer(SASL_HANDSHAKE)
        login = b"\0guest\0guest"
        send(SASL_AUTHENTICATE, struct.pack(">I", 3) + text("PLAIN") + struct.pack(">I", len(login)) + login)
        send(TUNE, answer(TUNE)[4:])
        send(OPEN, struct.pack(">I", 4) + text("/"))
        answer(OPEN)
        send(STORE_OFFSET, text("reader") + text(stream) + struct.pack(">Q", offset))
        send(SASL_HANDSHAKE, struct.pack(">I", 5))  # any answer follows the processing of earlier commands
        answers.read(1)


def shared(rabbitmq: WithStreams, channel: BlockingChannel) -> list[bytes]:
    """Three runs of ten messages, with a stored offset after all but the last."""
    published = fill(channel, "shared", 10)
    for run in (1, 2):
        store_offset(rabbitmq.stream_port, "shared", 3 * run)
        published += fill(channel, "shared", 10, start=10 * run)
    return published


def test_offsets_that_no_message_has_are_no_loss(rabbitmq: WithStreams, channel: BlockingChannel) -> None:
    published = shared(rabbitmq, channel)
    options = {
        "url": f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/%2F", "queue": "shared", "startingOffsets": "earliest",
    }  # fmt: skip
    found = rows(None, **options, minPartitions=3)
    assert bodies(found) == published
    assert found[-1]["seq"] > len(published) - 1, "there are gaps"
    query = Query(None, **options)
    batches = [query.batch(10) for _ in range(4)]
    assert [body for batch in batches for body in bodies(batch)] == published
    assert query.batch() == []


def test_what_retention_takes_while_it_is_read_is_a_loss(
    rabbitmq: WithStreams, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(rabbitmq, channel)
    monkeypatch.setattr(amqp_client.AMQPClient, "_lowest", lambda *_: 15)
    url = f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/%2F"
    with pytest.raises(JumpMQError, match="begins with offset 15 now: messages from 10 on did not come"):
        rows(None, url=url, queue="shared")
