"""Messages that are delayed, deduplicated, or wait for their next try are read once, when ready."""

from __future__ import annotations

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType
from tests.http.api import API
from tests.spark.sources import numbered
from tests.spark.streams.published import Query, bodies, rows
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.spark import JumpMQDataSource
from jumpmq.spark.sink import BatchWriter

HOUR = 3_600_000
"""Milliseconds beyond the duration of a test."""

KEY_AND_BODY = StructType().add("routing_key", StringType()).add("body", BinaryType())
SCHEMA = StructType([*KEY_AND_BODY, *StructType().add("headers", MapType(StringType(), LongType()))])


def write(broker: RunningBroker, published: list[bytes], header: str, values: list[int], **target: str) -> None:
    """Write rows as a task of Spark, with an integer header and the body as the routing key."""
    headers = pa.array([[(header, value)] for value in values], pa.map_(pa.string(), pa.int64()))
    keys = [body.decode() for body in published]
    writer = JumpMQDataSource({"url": broker.http_url} | target).writer(SCHEMA, False)
    assert isinstance(writer, BatchWriter)
    batch = pa.record_batch({"routing_key": keys, "body": published, "headers": headers})
    writer._publish(iter([batch]), writer._writer, "0")


def ready(api: API, queue: str) -> int:
    count: int = api.get("queues", "/", queue)["messages_ready"]
    return count


@pytest.fixture
def delaying(channel: BlockingChannel) -> None:
    """A delaying exchange ``late`` over the queues ``q1`` and ``q2``."""
    arguments = {"x-delayed-type": "x-consistent-hash"}
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=arguments)
    for queue in ("q1", "q2"):
        channel.queue_bind(queue, "late", "1")


@pytest.mark.usefixtures("delaying")
def test_a_delayed_message_is_read_once_it_is_due(broker: RunningBroker) -> None:
    now, late, soon = numbered(1, 20), numbered(21, 40), numbered(41, 60)
    write(broker, now + late, "x-delay", [0] * 20 + [HOUR] * 20, exchange="late")
    for source in ({"exchange": "late"}, {"pattern": ".*"}):
        assert sorted(bodies(rows(broker, **source))) == now
    query = Query(broker, pattern=".*")
    assert sorted(bodies(query.batch())) == now
    write(broker, soon, "x-delay", [1] * 20, exchange="late")
    found: list[bytes] = []

    def have_come() -> bool:
        found.extend(bodies(query.batch()))
        return len(found) >= 20

    until(have_come)
    assert sorted(found) == soon
    assert sorted(bodies(rows(broker, queue="amq.delayed.late"))) == late
    assert bodies(query.batch()) == []


@pytest.mark.parametrize("once", ["exchange", "queue"])
def test_a_duplicate_is_no_row(broker: RunningBroker, channel: BlockingChannel, once: str) -> None:
    by_queue = {"x-message-deduplication": True} if once == "queue" else {}
    channel.queue_declare("once", durable=True, arguments=by_queue)
    target = {"queue": "once"}
    if once == "exchange":
        arguments = {"x-cache-size": 1000}
        channel.exchange_declare("payments", "x-message-deduplication", durable=True, arguments=arguments)
        channel.queue_bind("once", "payments")
        target = {"exchange": "payments"}
    published = numbered(1, 40)
    write(broker, published, "x-deduplication-header", [number // 2 for number in range(40)], **target)
    until(lambda: len(rows(broker, queue="once")) == 20)
    assert bodies(rows(broker, pattern=".*")) == published[::2]
    query = Query(broker, pattern=".*")
    assert bodies(query.batch()) == published[::2]
    assert bodies(query.batch()) == []


@pytest.fixture(params=["classic", "quorum"])
def resting(request: pytest.FixtureRequest, channel: BlockingChannel) -> str:
    """Name of a queue with 20 messages; the first five have a redelivery delay of an hour."""
    arguments = {"x-queue-type": request.param, "x-delayed-retry-type": "all", "x-delayed-retry-min": HOUR}
    channel.queue_declare("tried", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for body in numbered(1, 20):
        channel.basic_publish("", "tried", body, pika.BasicProperties(delivery_mode=2))
    for _ in range(5):
        method, _, _ = channel.basic_get("tried")
        channel.basic_nack(method.delivery_tag)
    channel.queue_declare("tried", passive=True)
    return "tried"


def test_a_message_that_rests_is_read_after_its_rest(broker: RunningBroker, api: API, resting: str) -> None:
    assert bodies(rows(broker, queue=resting)) == numbered(6, 20)
    query = Query(broker, queue=resting)
    assert bodies(query.batch(10)) == numbered(6, 15)
    assert bodies(query.batch(10)) == numbered(16, 20)
    assert bodies(query.batch(10)) == []
    assert api.post("queues", "/", resting, "retries", body={})["messages"] == 5
    found = until(lambda: bodies(query.batch(10)))
    assert found == numbered(1, 5)
    assert bodies(query.batch(10)) == []
    assert api.counts(resting) == (0, 0)


def test_a_query_that_is_gone_has_its_messages_rest_no_more_than_once(
    broker: RunningBroker, api: API, resting: str
) -> None:
    """Messages of an expired lease are ready at once: the restarted query has the same rows."""
    query = Query(broker, queue=resting, group="g")
    assert bodies(query.batch(10)) == numbered(6, 15)
    api.request("DELETE", "readers", "/", "g")
    until(lambda: ready(api, resting) == 15)
    assert bodies(Query(broker, queue=resting).batch()) == numbered(6, 20)


def test_a_key_that_rests_is_read_in_order(broker: RunningBroker, channel: BlockingChannel, api: API) -> None:
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": HOUR, "x-ordered-retries": True}
    channel.queue_declare("keys", durable=True, arguments=arguments)
    channel.queue_bind("keys", "amq.topic", "#")
    channel.confirm_delivery()
    for number, body in enumerate(numbered(1, 20)):
        channel.basic_publish("amq.topic", f"k{number % 4}", body, pika.BasicProperties(delivery_mode=2))
    method, _, _ = channel.basic_get("keys")
    channel.basic_nack(method.delivery_tag)
    channel.queue_declare("keys", passive=True)
    query = Query(broker, queue="keys")
    of_key = numbered(1, 20)[::4]
    assert bodies(query.batch()) == [body for body in numbered(1, 20) if body not in of_key]
    api.post("queues", "/", "keys", "retries", body={})
    assert until(lambda: bodies(query.batch())) == of_key
    assert bodies(query.batch()) == []
    assert api.counts("keys") == (0, 0)
