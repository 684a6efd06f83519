"""A member of a consumer group: a ``basic.consume`` fed from all queues assigned by the group.

The member has a *feed* for each of these queues; the queue treats the feed like any other consumer. The feeds share the
member's prefetch. Without capacity they wait in turn, with :class:`GroupConsumer` as their entry in
``Channel.waiting``.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jumpmq.amqp import methods as m
from jumpmq.amqp.erlang import TYPE_NAMES
from jumpmq.amqp.errors import AccessRefused, NotAllowed, NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.fields import INTEGER_TYPES, Field, write_fields
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.consumers import ChannelConsumer, DeliveringChannel, Holder, check_arguments, epoch_field
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.channel.returning import give_back
from jumpmq.broker.consumer_groups.assignment import MAX_WEIGHT
from jumpmq.broker.consumer_groups.group import GroupCounts, Partition
from jumpmq.broker.consumer_groups.live import ConsumerGroups, GroupPrincipal, LiveGroup
from jumpmq.broker.names import unique_name
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Outcome, Queue
from jumpmq.queues.delivery import CHUNK
from jumpmq.queues.slots import Share
from jumpmq.queues.stream_filter import FILTER
from jumpmq.queues.stream_rows import OFFSET

GROUP = "x-consumer-group"
MEMBER, WEIGHT, GRACE = "x-group-member", "x-group-weight", "x-group-grace"
REBALANCE_DELAY, HANDOVER_TIMEOUT = "x-rebalance-delay", "x-handover-timeout"

LONGEST = 24 * 3600 * 1000
"""Maximum time in an argument, in milliseconds."""

MAX_NAME = 255
"""Maximum octets of a group's or member's name."""


@dataclass(frozen=True, slots=True)
class GroupArguments:
    """Arguments of ``basic.consume`` about a group; times in seconds.

    Attributes:
        member: name of the member; None for a generated name.
        rebalance_delay, handover_timeout: None without the argument.
    """

    group: str
    member: str | None = None
    weight: int = 1
    grace: float = 0.0
    rebalance_delay: float | None = None
    handover_timeout: float | None = None

    @classmethod
    def of(cls, arguments: list[Field]) -> "GroupArguments | None":
        """Parse the arguments; None without a group.

        Raises:
            PreconditionFailed: an argument has an invalid value.
        """
        given = {name: (kind, value) for name, kind, value in reversed(arguments)}
        if GROUP not in given:
            return None
        grace = _milliseconds(given, GRACE)
        if grace and MEMBER not in given:
            raise PreconditionFailed(f"invalid arg '{GRACE}': without '{MEMBER}' a member cannot come back")
        return cls(
            _name(given, GROUP),
            _name(given, MEMBER) if MEMBER in given else None,
            _weight(given),
            0.0 if grace is None else grace,
            _milliseconds(given, REBALANCE_DELAY),
            _milliseconds(given, HANDOVER_TIMEOUT),
        )


@runtime_checkable
class Evictable(Protocol):
    """A consumer that is evicted for an overdue delivery."""

    def evict_overdue(self) -> None:
        """Evict the consumer."""


class Whole(Protocol):
    """A member with a part per home.

    Attributes:
        unacknowledged: unacknowledged deliveries of other homes.
    """

    unacknowledged: int

    def cancelled(self) -> None:
        """Cancel the whole member after one part was cancelled by the broker."""


class MemberChannel(DeliveringChannel, Protocol):
    """A channel, from the point of view of members of consumer groups, and of others that revoke deliveries."""

    groups: ConsumerGroups
    upkeep: Upkeep

    @property
    def transaction(self) -> object | None: ...
    def revoke(self, tags: list[int], counts: GroupCounts) -> None: ...


class GroupConsumer:
    """An active ``basic.consume`` of a member of a consumer group.

    Attributes:
        live: the group.
        prefetch: maximum number of unacknowledged deliveries from all queues together, 0 without a limit.
        unacknowledged: number of unacknowledged deliveries.
        delivered: number of delivered messages.
        feeds: feeds by the queue's number, including feeds that get no more messages and still hold some.
        handover_timeout: seconds; see :class:`~jumpmq.broker.consumer_groups.group.MemberSession`.
        waiting: skipped feeds; the first has waited longest.
        ended: True if the consumer has ended, and gets no messages.
        whole: the member with parts at several homes, of which this consumer is one; None otherwise.
    """

    def __init__(
        self,
        channel: MemberChannel,
        live: LiveGroup,
        tag: str,
        *,
        prefetch: int,
        arguments: list[Field],
        handover_timeout: float | None,
        whole: "Whole | None" = None,
    ) -> None:
        self.channel = channel
        self.live = live
        self.whole = whole
        self.tag = tag
        self.prefetch = prefetch
        self.arguments = arguments
        self.handover_timeout = handover_timeout
        self.unacknowledged = self.delivered = 0
        self.ended = False
        self.feeds: dict[int, Feed] = {}
        self.waiting: OrderedDict[Feed, None] = OrderedDict()
        self.user = channel.connection.user
        self.reader = GroupPrincipal.of(self.user)
        self.identity = channel.connection.identity
        self.connection_name = channel.connection.name

    @property
    def queues(self) -> list[Queue]:
        """Queues that feed the member, or still have messages held by the member."""
        return [feed.queue for feed in self.feeds.values()]

    @property
    def parts(self) -> list[ChannelConsumer]:
        """The member's registrations, one per queue."""
        return [feed for feed in self.feeds.values() if feed.fed]

    @property
    def holders(self) -> Sequence[Holder]:
        """Holders of the member's unsettled deliveries."""
        return self.parts

    def capacity(self) -> int:
        """Return the number of messages that the member accepts now."""
        channel = self.channel
        if channel.connection.congested or self.ended:
            return 0
        capacity = self.prefetch - self.unacknowledged if self.prefetch else CHUNK
        if self.whole is not None and self.prefetch:
            capacity -= self.whole.unacknowledged
        return min(capacity, channel.prefetch - channel.held) if channel.prefetch else capacity

    def passed_over(self, feed: "Feed") -> None:
        """Add a feed that its queue has skipped for lack of capacity."""
        self.waiting[feed] = None
        self.channel.waiting[self] = None

    def admit(self) -> ChannelConsumer | None:
        """Offer freed capacity to the longest waiting feed. Return the feed to serve, if any."""
        if self.capacity() <= 0:
            if self.waiting:
                self.channel.waiting[self] = None
            return None
        while self.waiting:
            feed, _ = self.waiting.popitem(last=False)
            feed.waits = False
            feed.queue.admit(feed)
            if feed.has_ready:
                # The other feeds of the member keep their turn at the channel.
                if self.waiting:
                    self.channel.waiting[self] = None
                return feed
        return None

    def leave(self) -> None:
        """End the member, cancelled by the client or with the channel."""
        self.ended = True
        self.channel.groups.leave(self.live, self)
        self._end()

    def replaced(self) -> None:
        """Stop feeding the member, replaced by a new member of equal name; deliveries stay."""
        self._cancel()

    # --- as the group's session ---

    def start(self, unit: Partition) -> int:
        queue = self.live.queues[unit.queue_id]
        feed = self.feeds.get(unit.queue_id)
        if feed is None:
            feed = self.feeds[unit.queue_id] = Feed(self, queue)
        # Before the first delivery, which carries the epoch.
        epoch = feed.own(unit.slot)
        if unit.slot is not None and queue.slots is not None:
            queue.slots.give(unit.slot, feed.share)
            if not feed.fed:
                queue.subscribe(feed, feed.share)
        elif not feed.fed and queue.offsets is not None:
            queue.offsets.subscribe(self.live, feed)
        elif not feed.fed:
            queue.subscribe(feed)
        feed.fed.add(unit)
        feed.drains.discard(unit)
        queue.serve(feed)
        return epoch

    def stop(self, unit: Partition) -> None:
        feed = self.feeds.get(unit.queue_id)
        if feed is None or unit not in feed.fed:
            return  # the queue is deleted
        # The next owner gets messages of the partition when these are settled.
        if self.held(unit):
            feed.drains.add(unit)
        if unit.slot is not None and feed.queue.slots is not None:
            feed.queue.slots.give(unit.slot, None)
        if len(feed.fed) == 1:
            feed.waits = False
            self.waiting.pop(feed, None)
            feed.queue.unsubscribe(feed)
        feed.fed.discard(unit)
        self.forget_done(feed)

    def held(self, unit: Partition) -> int:
        feed = self.feeds.get(unit.queue_id)
        if feed is None:
            return 0
        slots = feed.queue.slots
        return feed.unacknowledged if unit.slot is None or slots is None else slots.held(unit.slot)

    def evict(self) -> None:
        # First: from here on the member has no capacity, so no queue delivers to it.
        self.ended = True
        channel = self.channel
        channel.groups.dismiss(self.live, self)
        tags, messages = channel.unacknowledged.take_of(self.feeds.values())
        if tags:
            # The client may still settle the revoked deliveries, which must not count as unknown tags.
            channel.revoke(tags, self.live.group.counts)
            taken = Deliveries()
            taken.put(tags, messages)
            give_back(channel.upkeep, taken, Outcome.CONSUMER_GONE)
        self.handover_timeout = None
        self._cancel()

    def released(self, feed: "Feed") -> None:
        """Handle settled deliveries of a feed."""
        if feed.drains:
            self.live.group.released(feed.drains)
            self.channel.groups.soon(self.live)
            if not feed.unacknowledged:
                feed.drains.clear()
        self.forget_done(feed)

    def forget_done(self, feed: "Feed") -> None:
        """Remove a feed that gets no messages and holds none."""
        if not feed.fed and not feed.unacknowledged and self.feeds.get(feed.queue.id) is feed:
            del self.feeds[feed.queue.id]

    def _cancel(self) -> None:
        channel = self.channel
        if self.whole is not None:
            self._end()
            self.whole.cancelled()
        elif channel.consumers.get(self.tag) is self:
            self._end()
            if channel.connection.wants_cancel_notice:
                channel.send(m.BasicCancel(self.tag, True))

    def _end(self) -> None:
        if self.channel.consumers.get(self.tag) is self:
            self.channel.forget(self)
        else:
            self.channel.waiting.pop(self, None)


class Feed(ChannelConsumer):
    """A member's registration at a queue.

    Attributes:
        fed: assigned partitions of the queue.
        drains: partitions that are no longer assigned, with messages that the feed may hold.
        share: the assigned slots of a queue with slots.
    """

    def __init__(self, member: GroupConsumer, queue: Queue) -> None:
        super().__init__(
            member.channel,
            queue,
            member.tag,
            no_ack=False,
            exclusive=False,
            prefetch=member.prefetch,
            arguments=_without_offset(member.arguments) if queue.offsets is None else member.arguments,
        )
        self.member = member
        self.fed: set[Partition] = set()
        self.drains: set[Partition] = set()
        self.share = Share()
        self._slot_fields: dict[int, bytes] = {}
        # Owner epochs by slot, or (None) of the queue.
        self._epochs: dict[int | None, int] = {}
        self._floor = queue.owner_floor  # owner floor of the queue at the last renewal of the epochs
        self.added = b"" if queue.slots is None else self._slot_fields

    @property
    def has_ready(self) -> bool:
        """Return True if a message is available for the feed."""
        queue = self.queue
        if queue.offsets is not None:
            found = queue.offsets.get(self.member.live.name)
            return found is not None and found.ready(queue.next_seq) > 0
        return bool(self.share) if queue.slots is not None else queue.ready_count > queue.fenced_count

    def own(self, slot: int | None) -> int:
        """Start feeding from a slot, or from a queue without slots; return the owner epoch of the deliveries."""
        epoch = self.queue.draw_epoch()
        self._name(slot, epoch)
        self.channel.connection.defer_answers()
        return epoch

    def _name(self, slot: int | None, epoch: int) -> None:
        """Add the origin and owner epoch to deliveries."""
        self._epochs[slot] = epoch
        if slot is None:
            self.added = self._origin() + epoch_field(epoch)
        else:
            self._slot_fields[slot] = self._origin(Field("x-slot", "I", slot)) + epoch_field(epoch)

    def epoch_of(self, message: Message) -> int:
        return self._epochs.get(None if self.queue.slots is None else message.slot, 0)

    def _origin(self, *more: Field) -> bytes:
        """Return the headers with the origin of a delivery."""
        return write_fields([Field("x-queue", "S", self.queue.name), *more])[4:]

    def _renew(self) -> None:
        """Raise the owner epochs, after keys with higher epochs have moved to the queue."""
        self._floor = self.queue.owner_floor
        for slot, epoch in self._epochs.items():
            if epoch < self._floor:
                self._name(slot, self._floor)
        self.channel.connection.defer_answers()

    def capacity(self) -> int:
        return self.member.capacity()

    def passed_over(self) -> None:
        self.waits = True
        self.member.passed_over(self)

    def release(self, count: int) -> None:
        self.unacknowledged -= count
        self.member.unacknowledged -= count
        self.channel.held -= count
        if self.drains or not self.fed:
            self.member.released(self)

    def admit(self) -> ChannelConsumer | None:
        return self.member.admit()

    @property
    def shares_capacity(self) -> bool:
        return True

    def deliver(self, messages: list[Message]) -> None:
        if self._floor != self.queue.owner_floor:
            self._renew()
        self.member.unacknowledged += len(messages)
        self.member.delivered += len(messages)
        super().deliver(messages)

    def evict_overdue(self) -> None:
        """Evict the member for an overdue delivery."""
        self.member.channel.groups.evict(self.member.live, self.member)

    def cancelled(self) -> None:
        """Handle the deletion of the queue; the member stays."""
        self.fed.clear()
        self.member.forget_done(self)
        self.member.waiting.pop(self, None)


def require(channel: MemberChannel, membership: GroupArguments, method: m.BasicConsume) -> None:
    """Refuse a member whose ``basic.consume`` asks for unsupported features.

    Raises:
        AMQPError: such a feature is requested.
    """
    if channel.transaction is not None:
        raise NotImplementedByServer("consumer groups on transactional channels")
    if method.no_ack:
        raise PreconditionFailed(f"consumer group '{membership.group}' needs acknowledgements: no_ack is refused")
    if method.exclusive:
        raise AccessRefused(f"consumer group '{membership.group}' has no exclusive consumers")
    if any(name == "x-priority" for name, _, _ in method.arguments):
        raise PreconditionFailed(f"consumer group '{membership.group}' has no priorities: use '{WEIGHT}'")
    if any(name == FILTER for name, _, _ in method.arguments):
        raise PreconditionFailed(
            f"consumer group '{membership.group}' has no filters: filtered messages would never be settled"
        )


def _require_start(channel: MemberChannel, live: LiveGroup, queues: list[Queue], arguments: list[Field]) -> None:
    """Refuse a member unable to read streams, or with a start position for a non-stream queue.

    Raises:
        PreconditionFailed: the channel has no prefetch, or the start position is invalid.
    """
    streams = [queue for queue in queues if queue.offsets is not None]
    if streams and not channel.consumer_prefetch:
        raise PreconditionFailed(
            f"consumer prefetch count is not set for stream queue '{streams[0].name}' in vhost '{streams[0].vhost}'"
        )
    for queue in queues:
        if queue.offsets is not None:
            queue.offsets.start_of(arguments)
    if live.kind == "queue":  # streams of a group on an exchange may be at other homes
        for queue in queues:
            check_arguments(queue, arguments)


def find(channel: MemberChannel, membership: GroupArguments, source: str, arguments: list[Field]) -> LiveGroup:
    """Return the group that a client may join.

    Args:
        arguments: arguments of ``basic.consume``.

    Raises:
        AMQPError: the consumption is refused.
    """
    groups, host, connection = channel.groups, channel.connection.vhost, channel.connection
    live = groups.find(host, connection.user, source, membership.group)
    groups.require(live, host, connection.user, connection.identity, membership.member)
    queues = groups.queues(live, host)
    if channel.prefetch and not all(queue.takes_global_prefetch for queue in queues):
        raise NotImplementedByServer(f"consumer group '{membership.group}' does not support global qos")
    _require_start(channel, live, queues, arguments)
    name = membership.member
    if name is not None and (present := live.group.members.get(name)) is not None and present.session is not None:
        other = present.session
        if isinstance(other, GroupConsumer) and other.user != connection.user:
            raise NotAllowed(f"member '{name}' of consumer group '{live.name}' is another user's")
    return live


def take_up(
    channel: MemberChannel,
    live: LiveGroup,
    membership: GroupArguments,
    method: m.BasicConsume,
    whole: Whole | None = None,
) -> GroupConsumer:
    """Return a consumer for a member of a group from :func:`find`; :func:`join` lets it join.

    Raises:
        AMQPError: the arguments are refused.
    """
    if membership.rebalance_delay is not None:
        live.group.rebalance_delay = membership.rebalance_delay
    return GroupConsumer(
        channel,
        live,
        method.consumer_tag,
        prefetch=channel.consumer_prefetch,
        arguments=method.arguments,
        handover_timeout=membership.handover_timeout,
        whole=whole,
    )


def join(consumer: GroupConsumer, membership: GroupArguments) -> None:
    """Join the group: the consumer becomes the member's consumer."""
    channel, live = consumer.channel, consumer.live
    member = own_name(channel) if membership.member is None else membership.member
    host = channel.connection.vhost
    replaced = channel.groups.join(live, host, consumer, member, membership.weight, membership.grace)
    if isinstance(replaced, GroupConsumer):
        replaced.replaced()
    if live.has_streams:
        channel.connection.defer_answers()  # the group's first offset in a stream must be durable


def own_name(channel: MemberChannel) -> str:
    """Return a generated member name."""
    return f"{channel.connection.name} ({channel.number}) {unique_name()}"


def evicted(message: Message) -> bool:
    """Return True if an overdue delivery belongs to a member of a consumer group, which is then evicted."""
    consumer = message.consumer
    if not isinstance(consumer, Evictable):
        return False
    consumer.evict_overdue()
    return True


def _without_offset(arguments: list[Field]) -> list[Field]:
    return [field for field in arguments if field.name != OFFSET]


def _name(given: dict[str, tuple[str, object]], argument: str) -> str:
    kind, value = given[argument]
    if kind != "S":
        raise PreconditionFailed(f"invalid arg '{argument}': {{unacceptable_type,{TYPE_NAMES[kind]}}}")
    if not isinstance(value, str):
        raise PreconditionFailed(f"invalid arg '{argument}': a name is text in UTF-8")
    if not 0 < len(value.encode()) <= MAX_NAME:
        raise PreconditionFailed(f"invalid arg '{argument}': a name has 1 to {MAX_NAME} octets")
    return value


def _integer(given: dict[str, tuple[str, object]], argument: str, lowest: int, highest: int) -> int | None:
    if argument not in given:
        return None
    kind, value = given[argument]
    if kind not in INTEGER_TYPES or not isinstance(value, int):
        raise PreconditionFailed(f"invalid arg '{argument}': \"expected integer, got {TYPE_NAMES[kind]}\"")
    if not lowest <= value <= highest:
        raise PreconditionFailed(f"invalid arg '{argument}': {value} is not from {lowest} to {highest}")
    return value


def _weight(given: dict[str, tuple[str, object]]) -> int:
    weight = _integer(given, WEIGHT, 1, MAX_WEIGHT)
    return 1 if weight is None else weight


def _milliseconds(given: dict[str, tuple[str, object]], argument: str) -> float | None:
    value = _integer(given, argument, 0, LONGEST)
    return None if value is None else value / 1000
