"""Consumers of queues of other homes, and these queues, as the client's channel sees them."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message, encode_deliveries, relay_deliveries
from jumpmq.queues import Outcome
from jumpmq.queues.arguments import Limits
from jumpmq.queues.base import Held
from jumpmq.queues.runs import set_consumer
from jumpmq.topology.declared import DeclaredQueue

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel
    from jumpmq.broker.channel.consumers import ChannelConsumer, Holder
    from jumpmq.nodes.channels.remote_channels import Remote
    from jumpmq.queues import Queue


class RemoteQueue:
    """A queue of another home, to the deliveries that one channel has from it; or all queues there that a member of a
    consumer group may have deliveries from."""

    ready_count = 0
    requeues_in_place = True
    append_only = False
    deleted = False
    auto_delete = False
    purging = False
    consumer_group = None

    def __init__(self, remote: "Remote", vhost: str, name: str, id: int, limits: Limits) -> None:
        self.vhost, self.name, self.id = vhost, name, id
        self.limits = limits
        self._remote = remote  # the channel at its home
        self._returning = 0  # how many have announced that they requeue in steps
        self._returned: list[Message] = []  # what they have requeued

    def settle(self, messages: list[Message], outcome: Outcome, held: Held = Held.UNACKNOWLEDGED) -> None:
        """See :meth:`jumpmq.queues.Queue.settle`; what a channel held when it is closed its home finds itself."""
        if outcome is Outcome.CONSUMER_GONE:
            return
        if outcome is Outcome.REQUEUED and self._returning:
            self._returned += messages
        else:
            self._remote.settle(messages, outcome)

    def begin_return(self) -> None:
        """See :meth:`jumpmq.queues.Queue.begin_return`."""
        self._returning += 1

    def end_return(self) -> None:
        """See :meth:`jumpmq.queues.Queue.end_return`."""
        self._returning -= 1
        if self._returned and not self._returning:
            returned, self._returned = sorted(self._returned, key=attrgetter("seq")), []
            self._remote.settle(returned, Outcome.REQUEUED)

    def page_held(self, messages: list[Message], held: Held = Held.UNACKNOWLEDGED) -> int:
        """Bodies are not kept here."""
        return 0


class RemoteConsumer:
    """A ``basic.consume`` from a queue of another home. To its channel a :class:`Subscription`."""

    def __init__(
        self, channel: "Channel", remote: "Remote", declared: DeclaredQueue, queue: RemoteQueue, method: m.BasicConsume
    ) -> None:
        self.channel = channel
        self.declared = declared
        self.queue = queue
        self.tag = method.consumer_tag
        self.no_ack, self.exclusive, self.arguments = method.no_ack, method.exclusive, method.arguments
        self.prefetch = channel.consumer_prefetch
        self.unacknowledged = self.delivered = 0
        self.remote = remote
        self._tag_octets = self.tag.encode()

    @property
    def queues(self) -> "list[Queue]":
        """None is here."""
        return []

    @property
    def parts(self) -> "list[ChannelConsumer]":
        """The same."""
        return []

    @property
    def holders(self) -> "Sequence[Holder]":
        """What holds its deliveries until they are settled."""
        return [self]

    def capacity(self) -> int:
        """Its home knows."""
        return 0

    def release(self, count: int) -> None:
        """So many of its deliveries are no longer held."""
        self.unacknowledged -= count
        self.channel.held -= count

    def admit(self) -> None:
        """Its home knows of the room."""

    def leave(self) -> None:
        """Its channel is closed; that is told to its home as a whole."""
        self.channel.forget(self)
        self.remote.forget(self)

    def cancelled(self) -> None:
        """Its queue is gone, or not reachable any more."""
        self.leave()
        if self.channel.connection.wants_cancel_notice:
            self.channel.send(m.BasicCancel(self.tag, True))

    def deliver(self, messages: list[Message]) -> None:
        """Hand the client messages that its home has sent."""
        self._count(len(messages))
        hand_on(self, self.channel, self._tag_octets, messages)

    def relay(self, payload: memoryview, at: int) -> int:
        """Hand the client the deliveries to this consumer that begin at ``payload[at]``, as far as their frames are
        there, and short enough for the client; returns where they end."""
        channel = self.channel
        first, connection, held = channel.next_delivery_tag, channel.connection, not self.no_ack
        messages, count, redelivered, end = relay_deliveries(
            payload, at, first, connection.frame_max, self.queue, self, held
        )
        if count:
            self._count(count)
            with payload[at:end] as frames:
                connection.relay_deliveries(frames)
            note_sent(channel, messages, count, redelivered)
        return end

    def _count(self, deliveries: int) -> None:
        self.delivered += deliveries
        if not self.no_ack:
            self.unacknowledged += deliveries


class Taker(Protocol):
    """What a remote channel has deliveries for."""

    @property
    def tag(self) -> str: ...

    @property
    def queue(self) -> RemoteQueue: ...

    def deliver(self, messages: list[Message]) -> None:
        """Take messages that its home has sent."""

    def cancelled(self) -> None:
        """Its queue is gone, or not reachable any more."""


class Acknowledging(Protocol):
    """To whom messages are handed on."""

    @property
    def no_ack(self) -> bool: ...


def hand_on(consumer: Acknowledging, channel: "Channel", tag: bytes, messages: list[Message]) -> None:
    """Hand the client messages that came from another home.

    Args:
        consumer: holds them until they are acknowledged, if it does that.
        tag: its consumer tag.
    """
    connection = channel.connection
    frames = encode_deliveries(messages, channel.number, tag, channel.next_delivery_tag, connection.frame_max)
    if not consumer.no_ack:
        for message in messages:
            message.body = b""  # its home has it
        set_consumer(messages, consumer)
    redelivered = sum([message.redelivered for message in messages])
    connection.send_deliveries(frames)
    note_sent(channel, [] if consumer.no_ack else messages, len(messages), redelivered)


def note_sent(channel: "Channel", held: list[Message], count: int, redelivered: int) -> None:
    """The client is sent deliveries that came from another home.

    Args:
        held: them, until they are acknowledged; empty where that is not to be.
        count: how many there are.
        redelivered: how many of them are.
    """
    first = channel.next_delivery_tag
    channel.next_delivery_tag = first + count
    tally = channel.tally
    tally.redeliver += redelivered
    if not held:
        tally.deliver_no_ack += count
        return
    tally.deliver += count
    channel.held += count
    channel.unacknowledged.add(first, held)
