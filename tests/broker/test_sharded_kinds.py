"""Exchanges with streams or quorum queues as shards, across a restart."""

from pathlib import Path
from typing import Any

import pytest
import requests
from tests.wire import Basic, WireChannel, login

from jumpmq.testing import HOST, JumpMQ

KEYS = [str(number) for number in range(200)]


def shard(broker: JumpMQ, channel: WireChannel, exchange_type: str, queue_type: str) -> None:
    policy: dict[str, Any] = {"pattern": "^x$", "definition": {"shards-per-node": 3, "queue-type": queue_type}}
    address = f"http://{HOST}:{broker.http_port}/api/policies/%2F/shards"
    assert requests.put(address, json=policy, auth=("guest", "guest"), timeout=60).status_code == 201
    channel.exchange("x", exchange_type, durable=True)


def publish(channel: WireChannel, *bodies: bytes) -> None:
    channel.confirm_select()
    for body in bodies:
        for key in KEYS:
            channel.publish("x", key, body)
    channel.wait_for_confirms()


def consumed(broker: JumpMQ, **arguments: Any) -> list[list[tuple[str, bytes]]]:
    """Return the deliveries of three consumers of the pseudo-queue, once all messages have arrived."""
    with login(broker.port) as connection:
        channels = [connection.channel() for _ in range(3)]
        for channel in channels:
            channel.call(Basic.Qos(prefetch_count=1000))
            channel.consume("x", arguments={name.replace("_", "-"): value for name, value in arguments.items()})
        found: list[list[tuple[str, bytes]]] = [[] for _ in channels]
        for channel, mine in zip(channels, found, strict=True):
            while not channel.is_silent():
                message = channel.next()
                mine.append((message.method.routing_key, message.body))
                channel.send(Basic.Ack(message.method.delivery_tag))
        connection.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("exchange_type", ["x-modulus-hash", "x-consistent-hash"])
def test_streams_keep_every_key_in_one_shard_to_be_read_again(tmp_path: Path, exchange_type: str) -> None:
    with JumpMQ(tmp_path) as broker:
        with login(broker.port) as connection:
            shard(broker, connection.channel(), exchange_type, "stream")
            publish(connection.channel(), b"1", b"2")
        first = consumed(broker, x_stream_offset="first")
        require_spread(first)
        broker.stop()
        broker.start()
        assert consumed(broker, x_stream_offset="first") == first
        with login(broker.port) as connection:
            publish(connection.channel(), b"3")
        again = consumed(broker, x_stream_offset="first")
        assert [[one for one in mine if one[1] != b"3"] for mine in again] == first
        assert [{key for key, _ in mine} for mine in again] == [{key for key, _ in mine} for mine in first]


def test_quorum_queues_share_the_messages_and_lose_none(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        with login(broker.port) as connection:
            shard(broker, connection.channel(), "x-consistent-hash", "quorum")
            publish(connection.channel(), b"1", b"2")
        broker.kill()
        broker.start()
        require_spread(consumed(broker))
        assert consumed(broker) == [[], [], []]


def require_spread(found: list[list[tuple[str, bytes]]]) -> None:
    """Assert that all keys have arrived in order, every key at a single consumer."""
    assert all(found)
    for mine in found:
        for key in {key for key, _ in mine}:
            assert [body for one, body in mine if one == key] == [b"1", b"2"]
    assert sorted(key for mine in found for key in {key for key, _ in mine}) == sorted(KEYS)
