"""Queries and consumer groups on the same queues: order is kept, and a message goes to one of both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.http.api import API
from tests.spark.members import Member, fall_silent
from tests.spark.sources import declare, numbered, publish
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.spark import SCHEMA, JumpMQDataSource, JumpMQError, session
from jumpmq.spark.stream import QueueStreamReader

BOUND = "bind a queue for each to the exchange, or read a stream"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query with a short wait for other queries."""
    monkeypatch.setattr(session, "TAKEOVER", 0.1)


def reader(broker: RunningBroker, **options: str) -> QueueStreamReader:
    source = JumpMQDataSource({"url": broker.http_url, "lease": "1"} | (options or {"exchange": "x"}))
    found = source.streamReader(SCHEMA)
    assert isinstance(found, QueueStreamReader)
    return found


def rows(query: QueueStreamReader, start: Any, end: Any) -> list[tuple[str, int, bytes]]:
    found = []
    for partition in query.partitions(start, end):
        for batch in query.read(partition):
            found += list(zip(*(batch.column(name).to_pylist() for name in ("queue", "seq", "body")), strict=True))
    return found


@pytest.fixture
def slotted(broker: RunningBroker) -> Iterator[list[bytes]]:
    """Messages behind ``x`` in a queue with slots and in a queue without slots."""
    with pika.BlockingConnection(pika.URLParameters(f"{broker.amqp_url}?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.queue_declare("q1", durable=True, arguments={"x-slots": 8})
        declare(channel, ["q2"])
        channel.queue_bind("q1", "x", "1")
        yield publish(channel, numbered(1, 400))


def test_a_query_has_the_messages_of_all_slots_in_the_order_of_the_queue(
    broker: RunningBroker, api: API, slotted: list[bytes]
) -> None:
    query = reader(broker)
    start = query.initialOffset()
    end = query.latestOffset(start, ReadMaxRows(300))
    found = rows(query, start, end)
    assert len(found) == 300
    for queue in ("q1", "q2"):
        mine = [(seq, body) for name, seq, body in found if name == queue]
        assert mine == sorted(mine)
        assert len(mine) > 50
    fall_silent(query, api)
    again = reader(broker)
    assert rows(again, start, end) == found, "what went back to its slots is the same batch"
    rest = again.latestOffset(end, ReadMaxRows(300))
    assert sorted(body for _, _, body in found + rows(again, end, rest)) == slotted
    assert again.latestOffset(rest, ReadMaxRows(300)) == rest
    assert api.counts("q1") == api.counts("q2") == (0, 0)
    assert again._session is not None
    again._session.stop()


def test_few_messages_of_a_slot_in_flight_are_no_micro_batch(broker: RunningBroker, channel: BlockingChannel) -> None:
    channel.queue_declare("strict", durable=True, arguments={"x-slots": 8, "x-in-flight-per-slot": 1})
    query = reader(broker, queue="strict")
    with pytest.raises(JumpMQError, match=r"has x-in-flight-per-slot 1, .*: bind a queue without it, and read that"):
        query.latestOffset(query.initialOffset(), ReadMaxRows(10))


def test_a_stream_that_is_bound_to_the_exchange_of_a_query_is_named_with_the_way_out(
    broker: RunningBroker, channel: BlockingChannel
) -> None:
    """A query names a stream bound to its exchange, with the remedy, and continues after the stream is unbound."""
    published, query = publish(channel, numbered(1, 20)), reader(broker)
    start = query.initialOffset()
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind("s", "x", "1")
    with pytest.raises(JumpMQError, match=r"'s' is a stream: .*; unbind the stream from the exchange, or name the"):
        query.latestOffset(start, ReadMaxRows(300))
    channel.queue_unbind("s", "x", "1")
    end = query.latestOffset(start, ReadMaxRows(300))
    assert sorted(body for _, _, body in rows(query, start, end)) == published


def test_a_query_beside_a_consumer_group_is_refused(broker: RunningBroker, slotted: list[bytes]) -> None:
    member = Member(broker)
    query = reader(broker)
    with pytest.raises(JumpMQError, match=rf"queue 'q\d' is read by consumer group 'g'.*{BOUND}"):
        query.latestOffset(query.initialOffset(), ReadMaxRows(300))
    until(lambda: member.has(400))
    member.close()
    assert sorted(member.bodies) == slotted


def test_a_member_beside_a_query_is_refused_until_what_the_query_had_went_back(
    broker: RunningBroker, api: API, slotted: list[bytes]
) -> None:
    """A member is refused until the query's messages have returned; afterwards the query takes none from the member."""
    query = reader(broker)
    start = query.initialOffset()
    end = query.latestOffset(start, ReadMaxRows(300))
    with pytest.raises(ChannelClosedByBroker, match=r"queue 'q\d' in vhost '/' is read by reader group 'spark-"):
        Member(broker)
    fall_silent(query, api)
    member = Member(broker)
    again = reader(broker)
    for ask in (lambda: rows(again, start, end), lambda: again.latestOffset(end, ReadMaxRows(300))):
        with pytest.raises(JumpMQError, match=rf"is read by consumer group 'g'.*{BOUND}"):
            ask()
    until(lambda: member.has(400))
    assert sorted(member.bodies) == slotted, "each once, also those that the query had reserved"
    member.close()
    with pytest.raises(JumpMQError, match="has lapsed, and messages of it have left the queue"):
        rows(again, start, end)
    assert again._session is not None
    again._session.stop()


def test_a_group_takes_a_queue_over_when_the_query_that_read_it_is_gone(
    broker: RunningBroker, api: API, channel: BlockingChannel
) -> None:
    channel.queue_declare("q3", durable=True)
    channel.basic_publish("", "q3", b"later")
    query = reader(broker, queue="q3")
    start = query.initialOffset()
    assert query.latestOffset(start, ReadMaxRows(10)) != start
    member = Member(broker)
    channel.queue_bind("q3", "x", "1")

    def refused() -> list[str]:
        (group,) = api.get("consumer-groups", "/")
        return [one["queue"] for one in group["refused"]]

    until(lambda: member.has(0) and refused() == ["q3"])
    fall_silent(query, api)
    began = time.monotonic()
    until(lambda: member.has(1))
    assert (member.bodies, refused()) == ([b"later"], []), time.monotonic() - began
    member.close()
