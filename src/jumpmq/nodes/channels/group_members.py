"""Member of a consumer group of an exchange: one ``basic.consume`` with a part at each home.

Each home distributes its own queues among the same members (:mod:`jumpmq.broker.consumer_groups`). A member has a part
at its client's home, a :class:`~jumpmq.broker.channel.group_consumer.GroupConsumer`, and a :class:`_Part` at each
linked home; it joins further homes as their links come up. Each home sends up to the member's whole prefetch, so
that the homes together may send more than the client has capacity for. The surplus waits here.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, InternalError, NotFound
from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel import group_consumer
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.channel.group_consumer import MEMBER, GroupArguments, GroupConsumer
from jumpmq.broker.channel.returning import give_back
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.consumer_groups.live import LiveGroup
from jumpmq.nodes.channels.remote_consumers import hand_on
from jumpmq.queues import Outcome

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel
    from jumpmq.broker.channel.consumers import ChannelConsumer, Holder
    from jumpmq.nodes.channels.remote_channel import Answered, RemoteChannel, Request
    from jumpmq.queues import Queue

RETRY_INTERVAL = 0.5
"""Delay in seconds before a home that does not know the exchange yet is asked again."""


class Homes(Protocol):
    """Other homes of a member's channel."""

    @property
    def up(self) -> list[int]:
        """Homes with established links."""

    def at(self, home: int) -> "RemoteChannel | None":
        """Return the channel's remote channel at a home; None while the link is down."""

    def ask_at(self, remote: "RemoteChannel", method: m.Method, then: "Answered") -> "Request":
        """Send a request not related to a queue."""

    def close_unused(self, home: int) -> None:
        """Close the remote channel at a home if no requests are pending, so that a new channel is used next."""

    def follow(self, member: "SpreadMember") -> None:
        """Notify the member of links coming up."""

    def follow_no_more(self, member: "SpreadMember") -> None:
        """Stop notifying the member of links."""


class _Part:
    """Part of a group member at another home, acting as a consumer of the remote channel."""

    def __init__(self, whole: "SpreadMember", remote: "RemoteChannel") -> None:
        self.whole = whole
        self.channel = whole.channel
        self.remote = remote
        self.queue = remote.source()
        self.tag = whole.tag
        self.arguments = whole.arguments
        self.no_ack = False
        self.unacknowledged = 0

    def deliver(self, messages: list[Message]) -> None:
        """Pass on messages sent by the part's home."""
        self.whole.take(self, messages)

    def cancelled(self) -> None:
        """Handle the part's cancellation by its home, or the loss of the home."""
        self.whole.part_over(self)

    def capacity(self) -> int:
        """Return no capacity: the part's home keeps the count."""
        return 0

    def release(self, count: int) -> None:
        """Release so many held deliveries of the part."""
        self.unacknowledged -= count
        self.whole.release(count)

    def admit(self) -> None:
        """Do nothing: the part's home knows of free capacity."""

    def evict_overdue(self) -> None:
        """Evict the member, as a delivery of the part has been held for too long."""
        self.whole.evict()


class SpreadMember:
    """A member of a consumer group at all homes. To its channel a :class:`Subscription`.

    Args:
        method: the client's method, with queue and consumer tag filled in.

    Attributes:
        unacknowledged: number of unacknowledged deliveries from other homes.

    Raises:
        AMQPError: the client's home refuses the member.
    """

    def __init__(self, channel: "Channel", homes: Homes, method: m.BasicConsume, membership: GroupArguments) -> None:
        self.channel = channel
        self.tag = method.consumer_tag
        self.arguments = method.arguments
        self.prefetch = channel.consumer_prefetch
        self.unacknowledged = self.delivered = 0
        self._homes = homes
        self._method = method
        self._membership = replace(membership, member=membership.member or group_consumer.own_name(channel))
        self._find()
        self._own: GroupConsumer  # the local part; set by :meth:`_begin`
        self._others: dict[int, _Part] = {}  # parts at other homes, by home
        self._asked: set[int] = set()  # homes without an answer yet
        self._refusal: AMQPError | None = None  # refusal of another home
        self._begun = False  # True once the client has its answer
        self._over = False
        self._cancelled = False  # True if a home cancelled its part before the client had its answer
        self._pending: deque[tuple[_Part, Message]] = deque()  # messages beyond the client's capacity
        self._tag_octets = self.tag.encode()

    # --- how it comes and goes ---

    def begin(self) -> Waiting | None:
        """Join the group at all homes; the wait ends once all linked homes have answered."""
        waiting = Waiting(self._begin)
        for home in self._homes.up:
            self._join(home, waiting)
        if self._asked:
            return waiting
        self._begin()
        return None

    def _find(self) -> LiveGroup:
        """Return the local group.

        Raises:
            AMQPError: the group refuses the member.
        """
        return group_consumer.find(self.channel, self._membership, self._method.queue, self.arguments)

    def _begin(self) -> None:
        channel = self.channel
        try:
            if self._refusal is not None:
                raise self._refusal
            live = self._find()  # again: the group may have been created or have ended while other homes were asked
            self._own = group_consumer.take_up(channel, live, self._membership, self._method, self)
        except AMQPError:
            self._over = True
            self._leave_others()
            for part in set(map(itemgetter(0), self._pending)):
                self._take_pending(part)  # the closed channel requeues the messages
            raise
        self._begun = True
        channel.add(self)
        self._homes.follow(self)
        if not self._method.no_wait:
            channel.send(m.BasicConsumeOk(self.tag))
        if self._cancelled:
            self.cancelled()
            return
        group_consumer.join(self._own, self._membership)
        for home in self._homes.up:  # including links established meanwhile
            self._join(home)
        self.admit()

    def _join(self, home: int, waiting: Waiting | None = None) -> None:
        """Join the group at another home."""
        if self._over or self.channel.closed or home in self._asked or home in self._others:
            return
        if (remote := self._homes.at(home)) is None:
            return
        self._asked.add(home)
        given = [field for field in self.arguments if field.name != MEMBER]
        named = [*given, Field(MEMBER, "S", self._membership.member)]
        method = replace(self._method, no_wait=False, arguments=named)
        request = self._homes.ask_at(remote, method, lambda *_: self._joined(home, remote))
        request.waiting.on_end(lambda: self._answered(home, request.raised, waiting))

    def _joined(self, home: int, remote: "RemoteChannel") -> None:
        part = self._others[home] = _Part(self, remote)
        remote.add(part)
        if self._over:
            self._leave_at(part)

    def _answered(self, home: int, raised: list[AMQPError], waiting: Waiting | None) -> None:
        self._asked.discard(home)
        if raised and not self._over and not self.channel.closed:
            (error,) = raised
            # the home is down, or has not applied the exchange's declaration yet
            if isinstance(error, NotFound | InternalError):
                self._homes.close_unused(home)
                asyncio.get_running_loop().call_later(RETRY_INTERVAL, self._join, home)
            elif self._begun:
                self.cancelled()
            else:
                self._refusal = error
        if waiting is not None and not self._asked:
            waiting.end()

    def home_up(self, home: int) -> None:
        """Join the group at a home whose link has come up."""
        self._join(home)

    def part_over(self, part: _Part) -> None:
        """Handle the end of a part. A lost home ends only its part; a home that cancels its part ends the member."""
        self._others = {home: one for home, one in self._others.items() if one is not part}
        part.remote.forget(part)
        self._take_pending(part)
        if not part.remote.gone:
            self.cancelled()

    def cancelled(self) -> None:
        """End all parts after the broker has cancelled one; notify the client, if it has received its consumer tag."""
        self._cancelled = True
        if self._begun and not self._over:
            self.leave()
            self._leave_others()
            if self.channel.connection.wants_cancel_notice:
                self.channel.send(m.BasicCancel(self.tag, True))

    def cancel(self, then: Callable[[], None]) -> Waiting:
        """Cancel the member for the client; deliveries in flight arrive before ``then``."""
        left = set(self._others.values())

        def go_on() -> None:
            self.leave()
            then()

        def left_at(part: _Part) -> None:
            left.discard(part)
            if not left:
                waiting.end()

        waiting = Waiting(go_on)
        for part in list(left):
            self._leave_at(part, left_at)
        return waiting

    def leave(self) -> None:
        """End the member; waiting messages are returned, unless its channel is closed: closing returns everything."""
        self._over = True
        if not self._own.ended:
            self._own.leave()
        for part in set(map(itemgetter(0), self._pending)):
            messages = self._take_pending(part)
            if not self.channel.closed:
                part.queue.settle(messages, Outcome.REQUEUED)
        self._homes.follow_no_more(self)
        self.channel.forget(self)

    def _leave_others(self) -> None:
        for part in list(self._others.values()):
            self._leave_at(part)

    def _leave_at(self, part: _Part, then: Callable[[_Part], None] = lambda part: None) -> None:
        def ended() -> None:
            part.remote.forget(part)
            then(part)

        if part.remote.gone:
            ended()
        else:
            request = self._homes.ask_at(part.remote, m.BasicCancel(self.tag, False), lambda *_: None)
            request.waiting.on_end(ended)

    def evict(self) -> None:
        """Evict the member for not settling its deliveries, and return the messages."""
        channel = self.channel
        tags, messages = channel.unacknowledged.take_of(self._others.values())
        if tags:
            channel.revoke(tags, self._own.live.group.counts)
            taken = Deliveries()
            taken.put(tags, messages)
            give_back(channel.upkeep, taken, Outcome.REQUEUED)
        channel.groups.evict(self._own.live, self._own)

    # --- what comes, and goes on to the client ---

    def take(self, part: _Part, messages: list[Message]) -> None:
        """Deliver messages sent by a home, or keep them until the client has capacity."""
        if self._over:
            part.queue.settle(messages, Outcome.REQUEUED)
        elif not self._pending and len(messages) <= self._room(len(messages)):
            self._deliver(part, messages)
        else:
            self._pending.extend((part, message) for message in messages)
            self._charge(messages, 1)
            self.admit()

    def release(self, count: int) -> None:
        """Note that the client has settled the given number of deliveries from other homes."""
        self.unacknowledged -= count
        self.channel.held -= count
        if self._pending:
            self.channel.waiting[self] = None

    def admit(self) -> None:
        """Deliver waiting messages, as capacity may be free again."""
        room = self._room(len(self._pending))
        taken = [self._pending.popleft() for _ in range(min(room, len(self._pending)))]
        for part, entries in groupby(taken, itemgetter(0)):
            messages = [message for _, message in entries]
            self._charge(messages, -1)
            self._deliver(part, messages)
        if self._pending:
            self.channel.waiting[self] = None

    def _room(self, wanted: int) -> int:
        """Return the number of messages, up to the number given, with free capacity."""
        if not self._begun or self._own.ended:
            return 0
        room = self.prefetch - self.unacknowledged - self._own.unacknowledged if self.prefetch else wanted
        channel = self.channel
        return max(0, min(room, channel.prefetch - channel.held) if channel.prefetch else room)

    def _deliver(self, part: _Part, messages: list[Message]) -> None:
        part.unacknowledged += len(messages)
        self.unacknowledged += len(messages)
        self.delivered += len(messages)
        hand_on(part, self.channel, self._tag_octets, messages)

    def _take_pending(self, part: _Part) -> list[Message]:
        """Remove and return the waiting messages of a part."""
        found = [message for one, message in self._pending if one is part]
        self._pending = deque(entry for entry in self._pending if entry[0] is not part)
        self._charge(found, -1)
        return found

    def _charge(self, messages: list[Message], sign: int) -> None:
        octets = sum(len(message.body) + len(message.properties) for message in messages)
        self.channel.connection.charges.add("channels", sign * octets)

    # --- as a subscription ---

    @property
    def queues(self) -> "list[Queue]":
        """Member's queues at the local home."""
        return self._own.queues

    @property
    def parts(self) -> "list[ChannelConsumer]":
        """Member's consumers of the queues at the local home."""
        return self._own.parts

    @property
    def holders(self) -> "Sequence[Holder]":
        """Holders of the member's deliveries until settled."""
        return [*self._own.parts, *self._others.values()]
