"""The name of a sharded exchange in place of a queue's name: `queue.declare` and `basic.get`.

Clients declare a queue before they consume from it, most of them passively, and consume from the queue in the answer.
The answer has the requested name, so that the consumers are spread over the shards. RabbitMQ answers with the name of
shard 0: all consumers of such a client go to shard 0, or the client waits in vain for the requested name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotFound
from jumpmq.broker.channel.client import ChannelClient
from jumpmq.broker.channel.remote import RemoteChannels
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.topology import Topology

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue


class ShardedChannel(Protocol):
    """A channel that names a sharded exchange; see :class:`~jumpmq.broker.channel.channel.Channel`."""

    last_queue: str
    remote: RemoteChannels
    topology: Topology

    @property
    def connection(self) -> ChannelClient: ...
    def send(self, method: m.Method) -> None: ...


def declared(channel: ShardedChannel, method: m.QueueDeclare, name: str) -> Waiting | None:
    """Answer the declaration of a pseudo-queue with the sums of its shards' messages and consumers, without the shards
    of homes that are down.

    Raises:
        NotFound: the exchange has no shards at this node.
    """
    vhost = channel.connection.vhost
    shards = channel.topology.sharding.local_shards(vhost, name)
    if not shards:
        raise NotFound(f"no queue '{name}' in vhost '{vhost.name}'")
    return _count(channel, method, name, shards, 0, 0)


def _count(
    channel: ShardedChannel,
    method: m.QueueDeclare,
    name: str,
    shards: list[DeclaredQueue],
    messages: int,
    consumers: int,
) -> Waiting | None:
    """Add the counts of further shards, then answer; `shards` is consumed."""
    while shards:
        shard = shards.pop(0)
        if shard.contents is not None:
            shard.contents.touch()
            messages += shard.contents.ready_count
            consumers += len(shard.contents.consumers)
        elif (waiting := _ask(channel, method, name, shard, shards, (messages, consumers))) is not None:
            return waiting
    channel.last_queue = name
    if not method.no_wait:
        channel.send(m.QueueDeclareOk(name, messages, consumers))
    return None


def _ask(
    channel: ShardedChannel,
    method: m.QueueDeclare,
    name: str,
    shard: DeclaredQueue,
    shards: list[DeclaredQueue],
    before: tuple[int, int],
) -> Waiting | None:
    """Request the counts of a shard from its home, then continue with the next shards; None if the home is down."""
    answers: list[m.QueueDeclareOk] = []

    def add() -> Waiting | None:
        [found] = answers
        return _count(channel, method, name, shards, before[0] + found.message_count, before[1] + found.consumer_count)

    try:
        asked = channel.remote.ask(shard, m.QueueDeclare(queue=shard.name, passive=True), answers.append)
    except NotFound:
        return None
    return asked.followed_by(add)


def in_turn(channel: ShardedChannel, name: str) -> list[str]:
    """Return the queues to get from, in order: for a pseudo-queue the possibly non-empty shards, rotated by one at each
    call, or a single shard if all are empty."""
    sharding = channel.topology.sharding
    shards = sharding.local_shards(channel.connection.vhost, name)
    if not shards:
        return [name]
    first = sharding.next_turn() % len(shards)
    turn = [*shards[first:], *shards[:first]]
    return [shard.name for shard in turn if shard.contents is None or shard.contents.ready_count] or [turn[0].name]
