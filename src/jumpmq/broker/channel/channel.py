"""State of a channel of a live connection. :mod:`methods` has the functions of its methods."""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotFound
from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel import direct_reply, publishing, transactions
from jumpmq.broker.channel.client import ChannelClient
from jumpmq.broker.channel.confirms import Confirms
from jumpmq.broker.channel.consumers import ChannelConsumer, Subscription
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.channel.methods import ACTIONS
from jumpmq.broker.channel.remote import RemoteChannels, no_remote
from jumpmq.broker.channel.returning import give_back
from jumpmq.broker.channel.revoked import Revoked
from jumpmq.broker.channel.transactions import Transaction
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.config import Config
from jumpmq.broker.consumer_groups.group import GroupCounts
from jumpmq.broker.consumer_groups.live import ConsumerGroups
from jumpmq.broker.memory.charges import CHANNEL, CONSUMER
from jumpmq.broker.routing.routing import Pushed
from jumpmq.broker.routing.sending import NOWHERE, Sender
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.security.user_limits import UserLimits
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Outcome, Queue
from jumpmq.topology import Topology
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.tally import Tally

if TYPE_CHECKING:
    from jumpmq.broker.commit.receipts import Part


SERVED_AT_ONCE = 64
"""Consumers served before checking again that the connection accepts more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelServices:
    """Services shared by channels.

    Attributes:
        sender: sends messages to queues of other homes.
        remote: returns a channel's remote channels, for queues of other homes.
        reply_queues: direct reply-to addresses in use.
        groups: the consumer groups.
        spans: exports spans of traced messages; None without tracing.
    """

    config: Config
    topology: Topology
    turns: Turns
    upkeep: Upkeep
    authorization: Authorization
    user_limits: UserLimits
    churn: Churn
    groups: ConsumerGroups
    spans: Spans | None
    sender: Sender = NOWHERE
    remote: "Callable[[Channel], RemoteChannels]" = no_remote
    reply_queues: dict[bytes, direct_reply.ReplyQueue] = field(default_factory=dict)

    def deliver_reply(self, message: Message) -> bool:
        """Deliver a reply to the requesting channel; return False if the channel is gone."""
        reply_queue = self.reply_queues.get(message.routing_key)
        if reply_queue is not None:
            reply_queue.deliver([message])
        return reply_queue is not None


class Channel:
    """An open channel.

    Attributes:
        unacknowledged: unsettled deliveries, also of ``basic.get``.
        prefetch: maximum number of deliveries held by all consumers of the channel together; 0 without a limit.
        waiting: consumers skipped for lack of shared capacity: the connection's, or that of ``prefetch``. The first has
            waited longest.
        held: number of deliveries held by consumers: without ``basic.get``, and with deliveries that a transaction will
            acknowledge.
        consumer_prefetch: the prefetch of the next consumers.
        consumer_max: maximum number of consumers; None without a limit.
        last_queue: the queue declared last, used by methods without a queue name.
        last_exchange: name of the last publish's exchange, the topology's revision at which the publish was allowed,
            and the exchange; None if the next publish needs a check.
        spans: exports spans of traced messages; None without tracing.
        sender: sends messages to queues of other homes.
        remote: remote channels, for queues of other homes.
        turns: event-loop iterations of the broker.
        tally: counters of the channel's messages.
        published_to: number of published messages by exchange.
        tags_at: next delivery tag at past times; see :mod:`overdue`.
        groups: the consumer groups of the broker.
        revoked: deliveries revoked from members of consumer groups; None without any.
    """

    __slots__ = (  # faster than a dict with so many attributes
        "_churn", "authorization", "closed", "confirms", "connection", "consumer_max", "consumer_prefetch",
        "consumers", "groups", "held", "last_exchange", "last_queue", "name", "next_delivery_tag",
        "number", "prefetch", "published_to", "remote", "reply_queue", "reply_queues", "revoked", "sender", "spans",
        "tags_at", "tally", "topology", "transaction", "turns", "unacknowledged", "upkeep", "user_limits",
        "waiting",
    )  # fmt: skip

    def __init__(self, connection: ChannelClient, number: int, services: ChannelServices) -> None:
        self.connection = connection
        self.topology = services.topology
        self.authorization = services.authorization
        self.reply_queues = services.reply_queues
        self.upkeep = services.upkeep
        self.user_limits = services.user_limits
        self.spans = services.spans
        self.groups = services.groups
        self.sender = services.sender
        self.remote = services.remote(self)
        self._churn = services.churn  # counts the end of the channel
        self.consumer_max = services.config.consumer_max_per_channel
        self.turns = services.turns
        self.number = number
        self.name = f"{connection.name} ({number})"
        self.consumers: dict[str, Subscription] = {}
        self.unacknowledged = Deliveries()
        self.next_delivery_tag = 1
        self.waiting: OrderedDict[Subscription, None] = OrderedDict()
        self.prefetch = 0
        self.held = 0
        self.consumer_prefetch = 0
        self.last_queue = ""
        self.last_exchange: tuple[str, int, Exchange] | None = None
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.reply_queue: direct_reply.ReplyQueue | None = None
        self.closed = False
        connection.charges.add("channels", CHANNEL)
        self.tally = Tally()
        self.published_to: dict[str, int] = {}
        self.tags_at: deque[tuple[float, int]] | None = None
        self.revoked: Revoked | None = None

    # --- the connection's side ---

    def send(self, method: m.Method) -> None:
        """Send a method on the channel."""
        self.connection.send(self.number, method)

    def receive(self, method: m.Method) -> Waiting | None:
        """Run a method; return the wait to complete first, or None.

        Raises:
            AMQPError: the method is refused.
        """
        return ACTIONS[type(method)](self, method)

    def close(self) -> None:
        """Cancel the consumers, and requeue unacknowledged messages."""
        if not self.closed:
            self._churn.channel_closed += 1
            self.connection.charges.add("channels", -CHANNEL)
        self.closed = True
        queues = {queue for consumer in self.consumers.values() for queue in consumer.queues}
        for queue in queues:  # otherwise the next consumer would get messages from behind the returned ones
            queue.begin_return()
        # Consumers leave before their messages return: otherwise they would get the same messages again.
        for consumer in list(self.consumers.values()):
            consumer.leave()
        if self.reply_queue is not None:
            self.reply_queue.close()
            self.reply_queue = None
        # Before the return: deliveries claimed by a transaction go back to the list of deliveries first.
        transactions.forget(self)
        give_back(self.upkeep, self.unacknowledged.take_upto(0), Outcome.CONSUMER_GONE)
        for queue in queues:
            queue.end_return()
        self.remote.close()
        self.connection.vhost.past.channels.add(self.tally)

    # --- publishing ---

    def publish(self, run: Publish) -> None:
        """Route a run of messages, or keep it for the transaction's commit."""
        if self.transaction is not None:
            publishing.require_publishable(self, run)
            transactions.keep(self, self.transaction, run)
            return
        pushed = publishing.publish(self, run)
        if self.confirms is not None:
            self._confirm(self.confirms, run.messages, pushed)
            self.turns.confirm(self)

    def _confirm(self, confirms: Confirms, messages: list[Message], pushed: Pushed) -> None:
        first = all_sources = 0
        for queue in pushed.routes:
            all_sources |= queue.source
            first = first or queue.source
        # One entry for the run instead of one per message: the usual case.
        if first == all_sources and not pushed.refused and pushed.sent is None:
            confirms.add(len(messages), all_sources)
            return
        sent = pushed.sent
        if sent is not None and sent.source and sent.copies == len(messages) and not (pushed.routes or sent.parts):
            confirms.add(len(messages), sent.source)
            return
        refused = set(map(id, pushed.refused))
        sources, parts = ({}, {}) if sent is None else (dict(sent.sources), sent.parts)
        for queue, share in pushed.routes.items():
            for message in share:
                sources[id(message)] = sources.get(id(message), 0) | queue.source
        for message in messages:
            if id(message) in refused:
                confirms.refuse()
            else:
                confirms.add(1, sources.get(id(message), 0), parts.get(id(message), ()))

    def assign_receipts(self, parts: Mapping[int, "Part"]) -> bool:
        """Assign the receipts of this event-loop iteration, by source, to its publishes; return True if confirms wait
        for receipts."""
        confirms = self.confirms
        assert confirms is not None
        confirms.assign_receipts(parts)
        if confirms.due:
            return self.send_confirms()
        if confirms.may_hold_up:
            self.turns.look_later(self)
        return True

    def send_confirms(self) -> bool:
        """Send due confirms; return True if some still wait."""
        confirms = self.confirms
        # The number of a closed channel may belong to a later channel by now.
        if confirms is None or self.closed:
            return False
        for answer in confirms.answers():
            self.connection.send(self.number, answer)
        self.tally.confirm = confirms.acknowledged
        if confirms.may_hold_up:
            self.turns.look_later(self)
        return confirms.waiting

    def check_confirms(self) -> None:
        """Check for a publish that delays later confirms, and then send the delayed confirms."""
        if self.confirms is not None:
            self.confirms.look()
            self.send_confirms()

    # --- what methods need ---

    def serve(self) -> None:
        """Offer freed capacity to waiting consumers: a few at a time, because consumers of non-empty queues may soon
        wait again.
        """
        if self.remote.opened:
            self.remote.make_room()
        waiting = self.waiting
        while waiting and not self.connection.congested:
            left = self.prefetch - self.held if self.prefetch else SERVED_AT_ONCE
            if left <= 0:
                return
            served: dict[Queue, ChannelConsumer] = {}
            for _ in range(len(waiting)):
                consumer = waiting.popitem(last=False)[0].admit()
                if consumer is not None and consumer.queue.ready_count:
                    served[consumer.queue] = consumer
                    left -= 1
                    if left <= 0:
                        break
            if not served:
                return
            for queue, consumer in served.items():
                queue.serve(consumer)

    def add(self, consumer: Subscription) -> None:
        """Add a consumer."""
        self.consumers[consumer.tag] = consumer
        self.connection.charges.add("channels", CONSUMER)

    def forget(self, consumer: Subscription) -> None:
        """Remove a consumer."""
        if self.consumers.pop(consumer.tag, None) is not None:
            self.connection.charges.add("channels", -CONSUMER)
        self.waiting.pop(consumer, None)

    def revoke(self, tags: list[int], counts: GroupCounts) -> None:
        """Revoke deliveries of a member of a consumer group: the client can no longer settle these deliveries.

        Args:
            counts: statistics of the group, which count the client's late settlements.
        """
        if self.revoked is None:
            self.revoked = Revoked()
        self.revoked.add(tags, counts)

    def queue(self, name: str) -> Queue:
        """Return a queue by name; "" is the queue last declared on this channel.

        Raises:
            NotFound: no such queue.
            ResourceLocked: the queue is exclusive to another connection.
        """
        return self.connection.vhost.queue(self.resolve(name), self.connection.identity)

    def find(self, name: str) -> Queue | DeclaredQueue:
        """Return a local queue, or the definition of a remote queue; for "" the queue declared last.

        Raises:
            NotFound: no such queue.
            ResourceLocked: the queue is exclusive to another connection.
        """
        name = self.resolve(name)
        return self.remote_queue(name) or self.queue(name)

    def remote_queue(self, name: str) -> DeclaredQueue | None:
        """Return a remote queue by name; None if local.

        Raises:
            ResourceLocked: the queue is exclusive to another connection.
        """
        return self.remote.queue(self.connection.vhost, name, self.connection.identity)

    def resolve(self, name: str) -> str:
        """Return the queue name; "" is the queue last declared on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise NotFound("no previously declared queue")
        return self.last_queue
