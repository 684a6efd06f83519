"""Taking messages from queues, by subscription or singly (AMQP 0-9-1, class basic)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotAllowed, NotImplementedByServer
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel import direct_reply, group_consumer, pseudo_queue
from jumpmq.broker.channel.consumers import ChannelConsumer, Subscription
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.names import unique_name
from jumpmq.broker.security.user_limits import UserLimits
from jumpmq.broker.telemetry import tracing
from jumpmq.queues import Outcome, Queue
from jumpmq.topology.declared import DeclaredQueue


class ConsumingChannel(group_consumer.MemberChannel, direct_reply.ReplyChannel, pseudo_queue.ShardedChannel, Protocol):
    """A channel, from the point of view of methods that take messages."""

    consumer_max: int | None
    user_limits: UserLimits

    def add(self, consumer: Subscription) -> None: ...
    def find(self, name: str) -> Queue | DeclaredQueue: ...
    def remote_queue(self, name: str) -> DeclaredQueue | None: ...
    def resolve(self, name: str) -> str: ...
    def serve(self) -> None: ...


def basic_qos(channel: ConsumingChannel, method: m.BasicQos) -> None:
    """Set a prefetch: with ``global`` for all consumers of the channel together, otherwise for each later consumer
    (RabbitMQ's meaning).
    """
    # RabbitMQ does not implement prefetch_size either, and refuses with the same error.
    if method.prefetch_size:
        raise NotImplementedByServer(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.prefetch = method.prefetch_count
    else:
        channel.consumer_prefetch = method.prefetch_count
    channel.send(m.BasicQosOk())
    channel.remote.set_prefetch()
    # Behind qos-ok, because a higher limit may deliver at once.
    channel.serve()


def basic_consume(channel: ConsumingChannel, method: m.BasicConsume) -> Waiting | None:
    name = channel.resolve(method.queue)  # before all other checks
    tag = method.consumer_tag or f"amq.ctag-{unique_name()}"
    # AMQP 0-9-1, basic.consume: a tag must not refer to an existing consumer (not-allowed).
    if tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if channel.consumer_max is not None and len(channel.consumers) >= channel.consumer_max:
        raise NotAllowed(f"reached maximum ({channel.consumer_max}) of consumers per channel")
    channel.user_limits.require_consumer(channel.connection.user)
    if name == direct_reply.NAME:
        direct_reply.consume(channel, tag, method)
        return None
    membership = group_consumer.GroupArguments.of(method.arguments) if method.arguments else None
    if membership is not None:
        return _join_group(channel, replace(method, queue=name, consumer_tag=tag), membership)
    method = replace(method, queue=name, consumer_tag=tag)
    if channel.topology.sharding.is_pseudo_queue(channel.connection.vhost, name):
        waiting = channel.remote.choose(name, lambda shard: _consume(channel, replace(method, queue=shard)))
        if waiting is not None:
            return waiting
    return _consume(channel, method)


def _consume(channel: ConsumingChannel, method: m.BasicConsume) -> Waiting | None:
    """Add a consumer, given a method with names of queue and consumer filled in."""
    name, tag = _source(channel, method.queue), method.consumer_tag
    queue = channel.find(name)
    if isinstance(queue, DeclaredQueue):
        return channel.remote.consume(queue, replace(method, queue=name))
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
    # Before the first delivery: the client learns its consumer tag from consume-ok.
    if not method.no_wait:
        channel.send(m.BasicConsumeOk(tag))
    queue.serve(consumer)
    return None


def _join_group(
    channel: ConsumingChannel, method: m.BasicConsume, membership: group_consumer.GroupArguments
) -> Waiting | None:
    """Add a member of a consumer group: for a queue at the queue's home, for an exchange at all homes."""
    group_consumer.require(channel, membership, method)
    if (remote := channel.remote_queue(method.queue)) is not None:
        channel.connection.require_permission("read", "queue", method.queue)
        return channel.remote.consume(remote, method)
    if channel.remote.shares_groups and method.queue not in channel.connection.vhost.declared:
        return channel.remote.join(method, membership)
    live = group_consumer.find(channel, membership, method.queue, method.arguments)
    consumer = group_consumer.take_up(channel, live, membership, method)
    channel.add(consumer)
    if not method.no_wait:
        channel.send(m.BasicConsumeOk(method.consumer_tag))
    # Behind consume-ok, because joining may deliver at once.
    group_consumer.join(consumer, membership)
    return None


def basic_cancel(channel: ConsumingChannel, method: m.BasicCancel) -> Waiting | None:
    def answer() -> None:
        if not method.no_wait:
            channel.send(m.BasicCancelOk(method.consumer_tag))

    waiting = channel.remote.cancel(method.consumer_tag, answer)
    if waiting is not None:
        return waiting
    consumer = channel.consumers.get(method.consumer_tag)
    if consumer is not None:
        deletion = consumer.leave()
        # After cancel-ok, the client may rely on the deletion of an auto-delete queue.
        if deletion is not None and not deletion.decided:
            waiting = Waiting(answer)
            deletion.then(waiting.end)
            return waiting
    elif channel.reply_queue is not None and channel.reply_queue.tag == method.consumer_tag:
        channel.reply_queue.close()
        channel.reply_queue = None
    answer()
    return None


def basic_get(channel: ConsumingChannel, method: m.BasicGet) -> Waiting | None:
    names = pseudo_queue.in_turn(channel, channel.resolve(method.queue))
    return _get_in_turn(channel, method, names)


def _get_in_turn(channel: ConsumingChannel, method: m.BasicGet, names: list[str]) -> Waiting | None:
    """Get a message from the first non-empty queue."""
    name, others = names[0], names[1:]
    channel.connection.require_permission("read", "queue", name)  # before the existence is revealed

    def empty() -> Waiting | None:
        if others:
            return _get_in_turn(channel, method, others)
        channel.tally.get_empty += 1
        channel.send(m.BasicGetEmpty())
        return None

    queue = channel.find(name)
    if isinstance(queue, DeclaredQueue):
        return _get_remote(channel, queue, replace(method, queue=name), empty)
    queue.require_unshared()
    queue.touch()
    if not queue.knows_next:
        waiting = Waiting(lambda: _get_in_turn(channel, method, names))
        queue.when_next_known(waiting.end)
        return waiting
    return _get(channel, queue, method, empty)


def _get(
    channel: ConsumingChannel, queue: Queue, method: m.BasicGet, empty: Callable[[], Waiting | None]
) -> Waiting | None:
    messages = queue.take(1)
    if not messages:
        queue.got_nothing += 1
        return empty()
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
        # Without a consumer, the delivery counts for no prefetch.
        message.consumer = None
        channel.unacknowledged.add(tag, messages)
    return None


def _get_remote(
    channel: ConsumingChannel, queue: DeclaredQueue, method: m.BasicGet, empty: Callable[[], Waiting | None]
) -> Waiting:
    is_empty: list[bool] = []

    def got(answer: m.BasicGetOk, message: Message) -> None:
        tag = channel.next_delivery_tag
        channel.next_delivery_tag += 1
        channel.connection.send_content(channel.number, replace(answer, delivery_tag=tag), message)
        channel.tally.redeliver += message.redelivered
        if method.no_ack:
            channel.tally.get_no_ack += 1
        else:
            channel.tally.get += 1
            message.body = b""  # the other home has the body
            channel.unacknowledged.add(tag, [message])

    waiting = channel.remote.get(queue, method, got, lambda answer: is_empty.append(True))
    return waiting.followed_by(lambda: empty() if is_empty else None)


def _source(channel: ConsumingChannel, name: str) -> str:
    """Return the queue to consume from: for a sharded exchange's name, the shard with the fewest consumers.

    Raises:
        AccessRefused: the user may not read the queue.
    """
    actual = channel.topology.sharding.local_shard(channel.connection.vhost, name, channel.remote.consumers_of)
    channel.connection.require_permission("read", "queue", actual)  # before the existence is revealed
    return actual
