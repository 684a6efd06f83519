"""At-least-once dead-lettering of quorum queues: every queue gets a message once, also through crashes."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.waiting import until
from tests.wire import Basic, Content, Queue, WireChannel, login

from jumpmq.testing import HOST, JumpMQ


@pytest.fixture(scope="module")
def jumpmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JumpMQ]:
    with JumpMQ(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


@pytest.fixture
def channel(jumpmq: JumpMQ) -> Iterator[WireChannel]:
    """A channel, and a fanout exchange ``dead`` without queues."""
    with login(jumpmq.port) as connection:
        channel = connection.channel()
        channel.exchange("dead", "fanout", durable=True)
        channel.confirm_select()
        yield channel
        for queue in ("source", "target", "other"):
            connection.channel().call(Queue.Delete(queue=queue))
        connection.close()


def quorum(channel: WireChannel, name: str, **arguments: Any) -> None:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    channel.queue(name, durable=True, exclusive=False, arguments={"x-queue-type": "quorum", **named})


def source(channel: WireChannel, overflow: str = "reject-publish") -> None:
    quorum(channel, "source", dead_letter_exchange="dead", dead_letter_strategy="at-least-once", overflow=overflow)


def reject(channel: WireChannel, *bodies: bytes) -> None:
    """Reject messages in the source queue."""
    for body in bodies:
        channel.publish("", "source", body)
        channel.wait_for_confirms()
        channel.send(Basic.Reject(arrival(channel, "source").method.delivery_tag, False))


def arrival(channel: WireChannel, queue: str) -> Content:
    return until(lambda: channel.get(queue, no_ack=False))


def waiting(broker: JumpMQ) -> int:
    """Return the number of dead letters in transit, from the management API."""
    address = f"http://{HOST}:{broker.http_port}/api/queues/%2F/source"
    return int(requests.get(address, auth=("guest", "guest"), timeout=60).json()["messages_dlx"])


def test_a_queue_that_is_full_gets_it_later_and_the_others_once(jumpmq: JumpMQ, channel: WireChannel) -> None:
    source(channel)
    quorum(channel, "target", max_length=1, overflow="reject-publish")
    quorum(channel, "other")
    channel.bind("target", "dead")
    channel.bind("other", "dead")
    reject(channel, b"1", b"2")
    until(lambda: waiting(jumpmq) == 1)
    time.sleep(1.2)  # the dead letter was sent again, and refused
    assert [arrival(channel, "other").body for _ in range(2)] == [b"1", b"2"]
    channel.call(Queue.Purge(queue="target"))
    assert arrival(channel, "target").body == b"2"
    until(lambda: waiting(jumpmq) == 0)
    assert channel.get("other") is None


def test_a_crash_loses_no_letter_that_waits(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        with login(broker.port) as connection:
            channel = connection.channel()
            channel.exchange("dead", "fanout", durable=True)
            channel.confirm_select()
            source(channel)
            reject(channel, b"1")
            until(lambda: waiting(broker) == 1)
        broker.kill()
        broker.start()
        with login(broker.port) as connection:
            channel = connection.channel()
            again = arrival(channel, "source")
            assert (again.body, again.method.redelivered) == (b"1", True)
            quorum(channel, "target")
            channel.bind("target", "dead")
            channel.send(Basic.Reject(again.method.delivery_tag, False))
            assert arrival(channel, "target").body == b"1"
            connection.close()
