"""Consumers of queues at other homes, and these queues, as seen by the client's channel."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message, encode_deliveries, relay_deliveries
from jumpmq.queues import Outcome
from jumpmq.queues.arguments import Limits
from jumpmq.queues.memory import Held
from jumpmq.queues.runs import set_consumer
from jumpmq.topology.declared import DeclaredQueue

if TYPE_CHECKING:
    from jumpmq.broker.channel.consumers import ChannelConsumer, DeliveringChannel, Holder
    from jumpmq.queues import Queue


class RemoteEnd(Protocol):
    """The client's end of a remote channel; see :class:`~jumpmq.nodes.channels.remote_channel.RemoteChannel`."""

    def settle(self, messages: list[Message], outcome: Outcome) -> None:
        """Report the outcome of deliveries to the other home."""

    def forget(self, consumer: "Taker") -> None:
        """Unregister a consumer."""


class RemoteQueue:
    """A queue of another home, as the source of a channel's deliveries. For a member of a consumer group, all queues
    of the home together.
    """

    ready_count = 0
    requeues_in_place = True
    append_only = False
    deleted = False
    auto_delete = False
    purging = False
    consumer_group = None
    taken = None

    def __init__(self, remote: RemoteEnd, vhost: str, name: str, id: int, limits: Limits) -> None:
        self.vhost, self.name, self.id = vhost, name, id
        self.limits = limits
        self._remote = remote  # the remote channel at the queue's home
        self._returning = 0  # requeues in progress
        self._returned: list[Message] = []  # messages requeued so far

    def settle(self, messages: list[Message], outcome: Outcome, held: Held = Held.UNACKNOWLEDGED) -> None:
        """See :meth:`jumpmq.queues.Queue.settle`. The other home itself finds the deliveries of a closing channel."""
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
            # Requeued together, in the queue's order: the queue's home puts them back in place.
            returned, self._returned = sorted(self._returned, key=attrgetter("seq")), []
            self._remote.settle(returned, Outcome.REQUEUED)


class RemoteConsumer:
    """Consumer (``basic.consume``) of a queue at another home, acting as a :class:`Subscription` of its channel.

    Args:
        resume: opens the consumer again, at the home's next process.
    """

    def __init__(
        self,
        channel: "DeliveringChannel",
        remote: RemoteEnd,
        declared: DeclaredQueue,
        queue: RemoteQueue,
        method: m.BasicConsume,
        resume: "Callable[[RemoteConsumer, m.BasicConsume], None]",
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
        self._method = method
        self._resume = resume

    @property
    def queues(self) -> "list[Queue]":
        """No queues here: the queue is remote."""
        return []

    @property
    def parts(self) -> "list[ChannelConsumer]":
        """No consumers here: the queue is remote."""
        return []

    @property
    def holders(self) -> "Sequence[Holder]":
        """Holders of the consumer's deliveries until settled."""
        return [self]

    def capacity(self) -> int:
        """Return no capacity: the queue's home keeps the count."""
        return 0

    def release(self, count: int) -> None:
        """Release so many held deliveries of the consumer."""
        self.unacknowledged -= count
        self.channel.held -= count

    def admit(self) -> None:
        """Do nothing: the queue's home knows the free capacity."""

    def leave(self) -> None:
        """Leave at the closing of the channel; the other home is notified of the channel's closing, not of each
        consumer.
        """
        self.channel.forget(self)
        self.remote.forget(self)

    @property
    def resumes(self) -> bool:
        """True if the consumer can be opened again. A consumer of a stream cannot: it would start at its first offset
        again.
        """
        return not self.declared.append_only

    def resume(self) -> None:
        """Open the consumer again, as its home is served by another node."""
        self._resume(self, self._method)

    def cancelled(self) -> None:
        """Handle the deletion or loss of the queue."""
        self.leave()
        if self.channel.connection.wants_cancel_notice:
            self.channel.send(m.BasicCancel(self.tag, True))

    def deliver(self, messages: list[Message]) -> None:
        """Deliver messages sent by the other home to the client."""
        self._count(len(messages))
        hand_on(self, self.channel, self._tag_octets, messages)

    def relay(self, payload: memoryview, at: int) -> int:
        """Relay the consumer's deliveries from ``payload[at]`` on to the client, as long as their frames are complete
        and fit the client's ``frame_max``. Return the position after them.
        """
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
    """Receiver of a remote channel's deliveries: a consumer, or a part of a group member."""

    @property
    def tag(self) -> str: ...

    @property
    def queue(self) -> RemoteQueue: ...

    def deliver(self, messages: list[Message]) -> None:
        """Take messages sent by the other home."""

    def cancelled(self) -> None:
        """Handle the deletion or loss of the queue."""


class Acknowledging(Protocol):
    """Receiver of messages passed on to a client."""

    @property
    def no_ack(self) -> bool: ...


def hand_on(consumer: Acknowledging, channel: "DeliveringChannel", tag: bytes, messages: list[Message]) -> None:
    """Deliver messages of another home to the client.

    Args:
        consumer: holds the messages until they are acknowledged, unless it consumes without acknowledgements.
        tag: the consumer tag.
    """
    connection = channel.connection
    frames = encode_deliveries(messages, channel.number, tag, channel.next_delivery_tag, connection.frame_max)
    if not consumer.no_ack:
        for message in messages:
            message.body = b""  # the other home has the body
        set_consumer(messages, consumer)
    redelivered = sum([message.redelivered for message in messages])
    connection.send_deliveries(frames)
    note_sent(channel, [] if consumer.no_ack else messages, len(messages), redelivered)


def note_sent(channel: "DeliveringChannel", held: list[Message], count: int, redelivered: int) -> None:
    """Count deliveries of another home as sent to the client.

    Args:
        held: the deliveries, if the consumer acknowledges; else empty.
        count: number of deliveries.
        redelivered: number of these marked as redelivered.
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
