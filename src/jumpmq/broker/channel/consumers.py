"""A channel's consumers, as seen by queues."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.erlang import TYPE_NAMES
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import INTEGER_TYPES, Field, write_fields
from jumpmq.amqp.messages import Message, encode_deliveries
from jumpmq.broker.channel.client import ChannelClient
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.routing.sending import Sender
from jumpmq.broker.telemetry import tracing
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.queues import CONSUMER_ARGUMENTS, Queue
from jumpmq.queues.consumer import Rows
from jumpmq.queues.delivery import CHUNK
from jumpmq.queues.epochs import OWNER_EPOCH
from jumpmq.queues.runs import set_consumer
from jumpmq.topology import DeleteQueue, Topology
from jumpmq.topology.proposals import Pending
from jumpmq.topology.tally import Tally


def check_arguments(queue: Queue, arguments: list[Field]) -> int:
    """Return the consumer priority in the arguments, by default 0.

    Raises:
        PreconditionFailed: the priority is not an integer, another argument has a wrong value, or the kind of queue
            does not take an argument. Of several errors, the error named by RabbitMQ: a wrong value before a wrong
            argument.
    """
    subject = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    given = {name: (kind, value) for name, kind, value in reversed(arguments)}
    taken = {name: given[name] for name in queue.consumer_argument_names if name in given}
    kind, priority = taken.get("x-priority", ("I", 0))
    if kind not in INTEGER_TYPES:
        raise PreconditionFailed(
            f"invalid arg 'x-priority' for {subject}: \"expected integer, got {TYPE_NAMES[kind]}\""
        )
    for name, _, _ in arguments:
        if name in CONSUMER_ARGUMENTS and name not in taken:
            raise PreconditionFailed(f"invalid arg '{name}' for {subject} of queue type rabbit_{queue.type}_queue")
    return int(priority)


def epoch_field(epoch: int) -> bytes:
    """Encode the header with the owner epoch of deliveries, as an entry of a field table."""
    return write_fields([Field(OWNER_EPOCH, "l", epoch)])[4:]


class Limited(Protocol):
    """An object with an optional acknowledgement timeout."""

    @property
    def consumer_timeout(self) -> int | None:
        """Acknowledgement timeout in milliseconds; None without a timeout."""


class DeliveringQueue(Protocol):
    """A local or remote queue, as seen by deliveries."""

    @property
    def limits(self) -> Limited: ...


class Holder(Protocol):
    """A consumer, as seen by deliveries.

    Attributes:
        arguments: arguments of ``basic.consume``.
    """

    arguments: list[Field]

    @property
    def queue(self) -> DeliveringQueue: ...


class Subscription(Protocol):
    """An active ``basic.consume``, as seen by its channel.

    Attributes:
        tag: the consumer tag.
        arguments: arguments of ``basic.consume``.
    """

    tag: str
    arguments: list[Field]

    @property
    def queues(self) -> list[Queue]:
        """Queues of the subscription."""

    @property
    def parts(self) -> "list[ChannelConsumer]":
        """The consumer's registrations, one per queue."""

    @property
    def holders(self) -> "Sequence[Holder]":
        """Holders of the consumer's unsettled deliveries."""

    def admit(self) -> "ChannelConsumer | None":
        """Offer freed capacity to a skipped consumer. Return the registration to serve, if any."""

    def leave(self) -> Pending | None:
        """End the subscription, cancelled by the client or with the channel; return a consequent deletion, if any."""


class DeliveringChannel(Protocol):
    """A channel, from the point of view of its consumers; see :class:`~jumpmq.broker.channel.channel.Channel`."""

    name: str
    number: int
    prefetch: int
    consumer_prefetch: int
    held: int
    next_delivery_tag: int
    consumers: dict[str, Subscription]
    waiting: OrderedDict[Subscription, None]
    unacknowledged: Deliveries
    tally: Tally
    spans: Spans | None
    sender: Sender
    topology: Topology

    @property
    def connection(self) -> ChannelClient: ...
    def send(self, method: m.Method) -> None: ...
    def forget(self, consumer: Subscription) -> None: ...


class ChannelConsumer:
    """An active ``basic.consume``. Implements :class:`jumpmq.queues.Consumer`.

    Attributes:
        prefetch: maximum number of unacknowledged deliveries, 0 without a limit; without effect with ``no_ack``.
        unacknowledged: number of unacknowledged deliveries.
        delivered: number of delivered messages.
        waits: True if the queue has skipped the consumer, and has not been notified of capacity since.
        epoch: owner epoch of the consumer as single active consumer of the queue; otherwise 0.
        added: headers added to all deliveries, or by the slots of the queue; see ``encode_deliveries``.

    Raises:
        PreconditionFailed: the queue does not take these arguments.
    """

    def __init__(
        self,
        channel: DeliveringChannel,
        queue: Queue,
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        arguments: list[Field],
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.arguments = arguments
        self.priority = check_arguments(queue, arguments)
        self.unacknowledged = self.delivered = 0
        self.waits = False
        self.epoch = 0
        self.added: bytes | dict[int, bytes] = b""
        self._tag_octets = tag.encode()

    def capacity(self) -> int:
        channel = self.channel
        # Further deliveries would fill the broker's memory: the client does not read them.
        if channel.connection.congested:
            return 0
        capacity = self.prefetch - self.unacknowledged if self.prefetch and not self.no_ack else CHUNK
        if channel.prefetch:
            left = channel.prefetch - channel.held
            # Deliveries without acknowledgement do not use up the channel's prefetch, but wait while it is used up.
            if left <= 0 or not self.no_ack:
                return min(capacity, left)
        return capacity

    def passed_over(self) -> None:
        self.waits = True
        if self.no_ack or not self.prefetch or self.unacknowledged < self.prefetch:
            self.channel.waiting[self] = None  # waits for shared capacity

    def release(self, count: int) -> None:
        """Release ``count`` deliveries: the queue counts the capacity, and delivers on request."""
        self.unacknowledged -= count
        self.channel.held -= count
        # For a consumer in `waiting`, the turn of the channel decides: `Channel.serve`.
        if self.waits and self not in self.channel.waiting:
            self.admit()

    def admit(self) -> "ChannelConsumer | None":
        """Notify the queue that skipped the consumer of free capacity. Return the consumer if it has capacity, to be
        served.
        """
        if self.capacity() > 0:
            self.waits = False
            self.queue.admit(self)
            return self
        self.passed_over()
        return None

    @property
    def shares_capacity(self) -> bool:
        return self.channel.prefetch > 0 and len(self.channel.consumers) > 1

    def deliver(self, messages: list[Message]) -> None:
        channel = self.channel
        first = channel.next_delivery_tag
        channel.next_delivery_tag = first + len(messages)
        self.delivered += len(messages)
        # Counted only where redeliveries are possible: the count costs time for each message.
        if self.queue.returned:
            channel.tally.redeliver += sum([message.redelivered for message in messages])
        if self.no_ack:
            channel.tally.deliver_no_ack += len(messages)
        else:
            channel.tally.deliver += len(messages)
            self.unacknowledged += len(messages)
            channel.held += len(messages)
            set_consumer(messages, self)
            channel.unacknowledged.add(first, messages)
        connection = channel.connection
        if connection.vhost.tracing:
            tracing.delivered(channel, self.queue, messages)
        if channel.spans is not None:
            channel.spans.delivered(self.queue, messages, self.tag)
        connection.send_deliveries(
            encode_deliveries(messages, channel.number, self._tag_octets, first, connection.frame_max, self.added)
        )

    def owns(self, epoch: int) -> None:
        self.epoch = epoch
        self.added = epoch_field(epoch)
        self.channel.connection.defer_answers()

    def epoch_of(self, message: Message) -> int:
        """Return the owner epoch of a message at this consumer, 0 without an epoch."""
        return self.epoch

    def deliver_rows(self, rows: Rows) -> None:
        channel, count = self.channel, len(rows)
        first = channel.next_delivery_tag
        channel.next_delivery_tag = first + count
        self.delivered += count
        channel.tally.deliver += count
        self.unacknowledged += count
        channel.held += count
        unread = Message("", b"", b"", b"")  # a placeholder: the stream keeps the content
        unread.queue, unread.consumer = self.queue, self
        channel.unacknowledged.add(first, [unread] * count)
        connection = channel.connection
        connection.send_deliveries(rows.encode(channel.number, self._tag_octets, first, connection.frame_max))

    @property
    def queues(self) -> list[Queue]:
        """Queues of the consumer."""
        return [self.queue]

    @property
    def parts(self) -> "list[ChannelConsumer]":
        """The consumer's registrations, one per queue."""
        return [self]

    @property
    def holders(self) -> "Sequence[Holder]":
        """Holders of the consumer's unsettled deliveries."""
        return [self]

    def leave(self) -> Pending | None:
        """End the consumer, cancelled by the client or with the channel; an auto-delete queue is deleted with its last
        consumer.
        """
        self.channel.forget(self)
        queue = self.queue
        queue.unsubscribe(self)
        if queue.auto_delete and not queue.consumers and not queue.deleted:
            change = DeleteQueue(queue.vhost, queue.name, queue.id)
            return self.channel.topology.propose(change, self.channel.connection.change_principal)
        return None

    def cancelled(self) -> None:
        channel = self.channel
        channel.forget(self)
        if channel.connection.wants_cancel_notice:
            channel.send(m.BasicCancel(self.tag, True))
