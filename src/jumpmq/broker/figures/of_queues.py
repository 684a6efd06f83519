"""Metrics of a queue, its consumers and its exchange, read from the live objects."""

from __future__ import annotations

from typing import Any

from jumpmq.amqp.fields import to_python
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import TIMESTAMP, Properties
from jumpmq.broker.channel.consumers import ChannelConsumer
from jumpmq.broker.figures.of_connections import peer_of
from jumpmq.broker.figures.values import (
    ConsumerFigures,
    ConsumerId,
    Counts,
    GroupOffsetFigures,
    QueueFigures,
    RingTrafficFigures,
)
from jumpmq.queues import Consumer, Queue
from jumpmq.topology import ConsistentHashExchange, Exchange, VirtualHost
from jumpmq.topology.tally import Tally


def counts_of_exchange(exchange: Exchange) -> Counts:
    """Return messages in and out, as ``OF_EXCHANGES``."""
    return exchange.published_in, exchange.published_out


def is_unread(queue: Queue) -> bool:
    """True if the queue's messages wait for no consumer: in a stream, or in a queue of an exchange."""
    return queue.append_only or queue.is_internal


def counts_of_queue(queue: Queue) -> Counts:
    """Return the counters of a queue, as ``OF_QUEUES`` and ``LEVELS_OF_QUEUES``."""
    sent, got, got_unasked = queue.delivered_unasked, queue.got, queue.got_unasked
    delivered = queue.delivered
    counts = (
        *(queue.published, delivered, queue.acknowledged - sent - got_unasked),
        *(delivered - sent - got - got_unasked, sent, got, got_unasked, queue.got_nothing, queue.redelivered),
        *(queue.ready_count, queue.unacknowledged_count),
    )
    return counts if counts != _UNUSED else _UNUSED


_UNUSED = (0,) * 11
"""Counters of an unused queue, shared by many queues."""


def counts_of_deleted_queues(host: VirtualHost) -> Counts:
    """Return the counters of a virtual host's deleted queues, as :func:`counts_of_queue`."""
    total = Tally()
    for tally in host.past.queues.values():
        total.add(tally)
    sent = total.deliver + total.deliver_no_ack + total.get + total.get_no_ack
    return (
        *(0, sent, total.ack, total.deliver, total.deliver_no_ack, total.get, total.get_no_ack, total.get_empty),
        *(total.redeliver, 0, 0),
    )


def ring_figures(exchange: ConsistentHashExchange) -> RingTrafficFigures:
    """Return the recent traffic of a ring, without registers."""
    assert exchange.traffic is not None
    counted = exchange.traffic.counted()
    return RingTrafficFigures(
        exchange.vhost,
        exchange.name,
        counted.since,
        list(counted.names),
        counted.messages,
        counted.missing,
        exchange.missing_count,
        counted.noted,
        [(one.key.hex(), one.destination, one.messages, one.error) for one in counted.frequent],
        [],
    )


def queue_figures(queue: Queue) -> QueueFigures:
    """Return the metrics of a queue."""
    consumers, active, front = queue.consumers, queue.active_consumer, queue.front()
    return QueueFigures(
        id=queue.id,
        type=queue.type,
        node=queue.node,
        append_only=queue.append_only,
        counts=counts_of_queue(queue),
        consumers=len(consumers),
        memory=queue.memory,
        last_seq=queue.next_seq - 1,
        messages=queue.figures(),
        head_timestamp=_timestamp(front),
        exclusive_consumer_tag=next((one.tag for one in consumers if one.exclusive), None),
        single_active_consumer_tag=active.tag if active is not None else None,
        automatic=any(one.no_ack for one in consumers),
        exhausted=bool(consumers) and all(_is_exhausted(one) for one in consumers),
        max_length=queue.limits.max_length,
        overflow=queue.limits.overflow,
        status=queue.status() | _fenced(queue),
        head_published_at=(front.published_at or None) if front is not None else None,
    )


def _fenced(queue: Queue) -> dict[str, Any]:
    """Return the ordering barriers of a queue; empty without barriers."""
    if queue.fences is None:
        return {}
    return {"messages_fenced": queue.fenced_count, "fences": [one.shown() for one in queue.fences.figures()]}


def _is_exhausted(consumer: Consumer) -> bool:
    return isinstance(consumer, ChannelConsumer) and consumer.prefetch > 0 and consumer.capacity() <= 0


def _timestamp(message: Message | None) -> int | None:
    if message is None or not int.from_bytes(message.properties[:2]) & TIMESTAMP:
        return None
    return Properties.parse(message.properties).timestamp


def consumer_figures(queue: Queue, consumer: Consumer) -> ConsumerFigures:
    """Return the metrics of a queue's consumer."""
    single = queue.limits.single_active_consumer
    channel = consumer.channel if isinstance(consumer, ChannelConsumer) else None
    return ConsumerFigures(
        vhost=queue.vhost,
        queue=queue.name,
        tag=consumer.tag,
        no_ack=consumer.no_ack,
        exclusive=consumer.exclusive,
        prefetch=consumer.prefetch,
        unacknowledged=consumer.unacknowledged if isinstance(consumer, ChannelConsumer) else 0,
        delivered=consumer.delivered if isinstance(consumer, ChannelConsumer) else 0,
        active=not single or consumer is queue.active_consumer,
        single=single,
        arguments=to_python(consumer.arguments) if isinstance(consumer, ChannelConsumer) else {},
        channel=channel.name if channel is not None else None,
        number=channel.number if channel is not None else None,
        peer=peer_of(channel.connection) if channel is not None else None,
    )


def consumer_id(queue: Queue, consumer: ChannelConsumer) -> ConsumerId:
    """Return the identity of a client's consumer."""
    channel = consumer.channel
    return channel.connection.identity, channel.number, queue.vhost, queue.name, consumer.tag


def offset_figures(queue: Queue) -> list[GroupOffsetFigures]:
    """Return the positions of consumer groups in a stream."""
    offsets, end = queue.offsets, queue.next_seq
    if offsets is None:
        return []
    return [
        GroupOffsetFigures(
            *(queue.vhost, queue.name, one.group, one.offset, end),
            *(one.ready(end), one.unacknowledged, one.skipped, one.group in offsets.members),
        )
        for one in offsets
    ]
