"""Taking messages from queues, by subscription or one by one (AMQP 0-9-1, class basic)."""

from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotAllowed, NotImplementedByServer
from jumpmq.broker.channel import direct_reply, group_consumer
from jumpmq.broker.channel.consumers import ChannelConsumer
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.names import unique_name
from jumpmq.broker.telemetry import tracing
from jumpmq.queues import Outcome, Queue

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel


def basic_qos(channel: "Channel", method: m.BasicQos) -> None:
    """``global`` means all consumers of the channel together, else each consumer to come (RabbitMQ's meaning)."""
    if method.prefetch_size:
        raise NotImplementedByServer(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.prefetch = method.prefetch_count
    else:
        channel.consumer_prefetch = method.prefetch_count
    channel.send(m.BasicQosOk())
    channel.serve()


def basic_consume(channel: "Channel", method: m.BasicConsume) -> None:
    name = channel.resolve(method.queue)  # what "" means is asked before all else
    tag = method.consumer_tag or f"amq.ctag-{unique_name()}"
    if tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if channel.consumer_max is not None and len(channel.consumers) >= channel.consumer_max:
        raise NotAllowed(f"reached maximum ({channel.consumer_max}) of consumers per channel")
    channel.user_limits.require_consumer(channel.connection.user)
    if name == direct_reply.NAME:
        direct_reply.consume(channel, tag, method)
        return
    membership = group_consumer.Membership.of(method.arguments) if method.arguments else None
    if membership is not None:
        group_consumer.join(channel, tag, membership, method)
        return
    queue = _source(channel, name)
    queue.require_unshared()
    if channel.prefetch and not queue.takes_global_prefetch:
        raise NotImplementedByServer(f"queue '{queue.name}' in vhost '{queue.vhost}' does not support global qos")
    consumer = ChannelConsumer(
        channel,
        queue,
        tag,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        prefetch=channel.consumer_prefetch,
        arguments=method.arguments,
    )
    queue.subscribe(consumer)
    channel.add(consumer)
    if not method.no_wait:
        channel.send(m.BasicConsumeOk(tag))
    queue.serve(consumer)


def basic_cancel(channel: "Channel", method: m.BasicCancel) -> None:
    consumer = channel.consumers.get(method.consumer_tag)
    if consumer is not None:
        consumer.leave()
    elif channel.reply_queue is not None and channel.reply_queue.tag == method.consumer_tag:
        channel.reply_queue.close()
        channel.reply_queue = None
    if not method.no_wait:
        channel.send(m.BasicCancelOk(method.consumer_tag))


def basic_get(channel: "Channel", method: m.BasicGet) -> Waiting | None:
    queue = _source(channel, channel.resolve(method.queue))
    queue.require_unshared()
    queue.touch()
    if not queue.knows_next:
        waiting = Waiting(lambda: basic_get(channel, method))
        queue.when_next_known(waiting.end)
        return waiting
    _get(channel, queue, method)
    return None


def _get(channel: "Channel", queue: Queue, method: m.BasicGet) -> None:
    messages = queue.take(1)
    if not messages:
        queue.got_nothing += 1
        channel.tally.get_empty += 1
        channel.send(m.BasicGetEmpty())
        return
    (message,) = messages
    if channel.connection.vhost.tracing:
        tracing.delivered(channel, queue, messages)
    if channel.spans is not None:
        channel.spans.delivered(queue, messages, None)
    tag = channel.next_delivery_tag
    channel.next_delivery_tag += 1
    ok = m.BasicGetOk(tag, message.redelivered, message.exchange, message.routing_key, queue.ready_count)
    channel.connection.send_content(channel.number, ok, message)
    channel.tally.redeliver += message.redelivered
    if method.no_ack:
        queue.got_unasked += 1
        channel.tally.get_no_ack += 1
        queue.settle(messages, Outcome.ACKNOWLEDGED)
    else:
        queue.got += 1
        channel.tally.get += 1
        message.consumer = None
        channel.unacknowledged.add(tag, messages)


def _source(channel: "Channel", name: str) -> Queue:
    """The queue to take from: the name of a sharded exchange stands for its shard with the fewest consumers.

    Raises:
        NotFound, ResourceLocked: as :meth:`Channel.queue`.
        AccessRefused: the user may not read it.
    """
    actual = channel.topology.sharding.local_shard(channel.connection.vhost, name)
    channel.connection.require_permission("read", "queue", actual)  # before anybody learns whether it is there
    return channel.queue(actual)
