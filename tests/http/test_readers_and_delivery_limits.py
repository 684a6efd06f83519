"""Readers of a quorum queue with a delivery limit: only the expiry of a lease counts."""

import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.waiting import until

import jumpmq
from jumpmq.testing import JumpMQ

LEASE = 0.5


def declare(channel: BlockingChannel, limit: int, *queues: str) -> list[bytes]:
    """Declare quorum queues with ten messages and the dead-letter queue ``dead``."""
    channel.queue_declare("dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    published = []
    for queue in queues:
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": limit} | dead
        channel.queue_declare(queue, durable=True, arguments=arguments)
        bodies = [f"{queue} {number}".encode() for number in range(10)]
        publish(channel, queue, bodies)
        published += bodies
    return published


def reserve(api: API, *queues: str, query: str = "one") -> int:
    """Reserve all messages for a run of a query. Return their number."""
    session = api.post("readers", "/", "g", "open", body={"query": query, "lease": LEASE})["session"]
    wish = {"queues": dict.fromkeys(queues), "lease": LEASE, "session": session}
    return sum(at["messages"] for at in api.post("readers", "/", "g", "reserve", body=wish)["queues"].values())


def lapse(api: API, *queues: str) -> None:
    until(lambda: not any(api.counts(queue)[1] for queue in queues))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_lapse_counts_as_a_return(tmp_path: Path, workers: int) -> None:
    """An expired lease counts as a return, also at another process; every message is dead-lettered once."""
    queues = ("q1", "q2")
    with jumpmq.running(data_dir=tmp_path, workers=workers, queue_leader_locator="balanced") as broker:
        api = API(broker.http_url)
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            published = declare(channel, 2, *queues)
            for _ in range(3):
                assert api.counts("dead") == (0, 0)
                assert reserve(api, *queues) == len(published)
                lapse(api, *queues)
            until(lambda: api.counts("dead") == (len(published), 0))
            assert [api.counts(queue) for queue in queues] == [(0, 0), (0, 0)]
            dead = [channel.basic_get("dead", auto_ack=True) for _ in published]
            assert sorted(body for _, _, body in dead) == sorted(published)
            assert {properties.headers["x-first-death-reason"] for _, properties, _ in dead} == {"delivery_limit"}


@pytest.mark.parametrize("end", [JumpMQ.stop, JumpMQ.kill])
def test_a_start_of_the_broker_does_not_count(tmp_path: Path, end: Callable[..., int]) -> None:
    """A restart of the broker does not count as a return, with a held reservation or after the lapse."""
    with JumpMQ(tmp_path) as process:
        with pika.BlockingConnection(pika.ConnectionParameters(port=process.port)) as connection:
            declare(connection.channel(), 1, "q")
        api = API(f"http://127.0.0.1:{process.http_port}")
        assert reserve(api, "q") == 10
        lapse(api, "q")
        with pika.BlockingConnection(pika.ConnectionParameters(port=process.port)) as connection:
            connection.channel().queue_declare("later", durable=True)  # answered once the lapse is on disk, too
        for _ in range(3):
            end(process)
            process.start()
            api = API(f"http://127.0.0.1:{process.http_port}")
            assert api.counts("q") == (10, 0)
            time.sleep(2 * LEASE)
        assert reserve(api, "q") == 10
        end(process)
        process.start()
        api = API(f"http://127.0.0.1:{process.http_port}")
        assert reserve(api, "q") == 10
        assert api.counts("dead") == (0, 0)
        until(lambda: api.counts("dead") == (10, 0))


def test_a_failed_read_of_what_is_left_does_not_count(api: API, channel: BlockingChannel) -> None:
    declare(channel, 1, "q")
    assert reserve(api, "q") == 10
    lapse(api, "q")
    channel.basic_get("q", auto_ack=True)
    for _ in range(3):
        found = api.request("GET", "readers", "/", "g", "queues", "q", "messages", params={"upto": 1})
        assert found.status_code == 410
        assert api.counts("q") == (9, 0)
    _, properties, _ = channel.basic_get("q", auto_ack=True)
    assert properties.headers == {"x-delivery-count": 1}
