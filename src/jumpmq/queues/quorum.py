"""The quorum queue, with a quorum of one on a single node: always durable, with delivery counts.

As in RabbitMQ 4, a quorum queue differs from a classic queue in three ways. It stores every message, whatever the
delivery mode. The header ``x-delivery-count`` of a delivery has the number of failed deliveries before it. A message
that was returned more often than ``x-delivery-limit`` allows is dead-lettered.

Without a limit, a message may be returned 20 times by lost consumers, and any number of times by a requeue. A requeued
message then goes to the end of the queue, so that a message that no consumer can handle does not block the others. A
negative limit means no limit. In a queue with slots, a message always returns to its position: it blocks only its slot,
whose order is kept.

A queue without slots has two priorities (:class:`~jumpmq.queues.priorities.WeightedMessages`), from the first message
of the higher priority on. The journal records that, so that a start reads messages only if they have priorities.
"""

from typing import Any

from jumpmq.amqp.errors import ResourceLocked
from jumpmq.amqp.frames import with_header
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues import settings
from jumpmq.queues.base import Outcome
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.delivery_counts import DeliveryCounts
from jumpmq.queues.leftovers import Forget
from jumpmq.queues.memory import Held
from jumpmq.queues.priorities import HIGH, LAST_NORMAL, WeightedMessages
from jumpmq.queues.ready import ReadyMessages
from jumpmq.queues.records import QueueRecords
from jumpmq.queues.retries import status_of
from jumpmq.queues.runs import by_priority, carries, settle_stored
from jumpmq.store import Batch
from jumpmq.store.kinds import PRIORITIES

DELIVERY_COUNT = "x-delivery-count"
_DELIVERY_COUNT = DELIVERY_COUNT.encode()

DEFAULT_DELIVERY_LIMIT = 20
"""Default maximum number of returns because of a lost consumer (RabbitMQ 4.0)."""


class QuorumQueue(ClassicQueue):
    """A classic queue that persists all messages and counts deliveries (:mod:`~jumpmq.queues.delivery_counts`)."""

    type = "quorum"
    policy_target = "quorum_queues"
    group_size_argument = "x-quorum-initial-group-size"
    replicated = True
    argument_checks = settings.argument_checks(type)
    refused_policy_keys = settings.refused_policy_keys(type)
    always_durable = True
    takes_global_prefetch = False
    knows_exclusive_consumers = False

    def __init__(self, vhost: str, name: str, **declared: Any) -> None:
        super().__init__(vhost, name, **declared)
        self.requeues_in_place = self.slots is not None
        self._counts = DeliveryCounts(self.id, self._journal)

    def restore(self, batches: list[Batch], records: QueueRecords) -> None:
        self._counts.restore(records.attempts)
        # Before the batches, whose messages go into the list for their priorities.
        if records.has_priorities:
            self._expect_priorities()
        super().restore(batches, records)
        if isinstance(self.ready, WeightedMessages) and not len(self.ready.high):
            self._forget_priorities()
            self.ready = self.ready.normal

    def _expect_priorities(self) -> None:
        if type(self.ready) is ReadyMessages:
            self.ready = WeightedMessages(*self.around(), self.ready)

    def _enter(self, messages: list[Message]) -> None:
        if type(self.ready) is ReadyMessages and HIGH in by_priority(messages, HIGH, LAST_NORMAL):
            self._expect_priorities()
            if self._journal is not None:
                self._journal.put(PRIORITIES, str(self.id), True)
        super()._enter(messages)

    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]:
        if not carries(messages, _DELIVERY_COUNT):
            return super().push(messages, fitting=fitting)
        own = [_uncounted(message) for message in messages]
        refused = set(map(id, super().push(own, fitting=fitting)))
        return [message for message, entered in zip(messages, own, strict=True) if id(entered) in refused]

    def departing(self, messages: list[Message]) -> list[Message]:
        copies = super().departing(messages)
        for message, copy in zip(messages, copies, strict=True):
            if message.attempts > 1:
                copy.properties = with_header(copy.properties, _DELIVERY_COUNT, message.attempts - 1)
        return copies

    def push_ahead(self, messages: list[Message]) -> None:
        if carries(messages, _DELIVERY_COUNT):  # not from a publisher: the queue removes a publisher's header
            messages = [self._counted(message, seq) for seq, message in enumerate(messages, self._next_seq)]
        super().push_ahead(messages)

    def _counted(self, message: Message, seq: int) -> Message:
        """Return a message from the previous home, under the given number, with the delivery count carried by the
        message.
        """
        if _DELIVERY_COUNT not in message.properties:
            return message
        headers = Properties.parse(message.properties).headers or []
        counts = [field.value for field in headers if field.name == DELIVERY_COUNT]
        own = _uncounted(message)
        if counts:
            own.attempts = counts[0] + 1
            self._counts.record(seq, own.attempts)
        return own

    def _store(self, messages: list[Message]) -> None:
        for message in messages:
            if not message.attempts:
                message.attempts = 1
        super()._store(messages)

    def _prepare(self, messages: list[Message]) -> None:
        super()._prepare(messages)
        self._counts.apply(messages)

    def take(self, count: int) -> list[Message]:
        if self.limits.single_active_consumer:
            raise ResourceLocked(
                f"cannot obtain access to locked queue '{self.name}' in vhost '{self.vhost}'. "
                "basic.get operations are not supported by quorum queues with single active consumer"
            )
        return super().take(count)

    def settle(self, messages: list[Message], outcome: Outcome, held: Held = Held.UNACKNOWLEDGED) -> None:
        if outcome is Outcome.CONSUMER_GONE and held is Held.UNACKNOWLEDGED and self.limits.delivery_limit is None:
            self._counts.count_lost(messages)  # a reader group comes again: its reservations do not count
        super().settle(messages, outcome, held)
        if outcome is Outcome.ACKNOWLEDGED and self._counts.in_use:
            self._counts.forget(messages)

    @property
    def _minds_departures(self) -> bool:
        return self._counts.in_use or super()._minds_departures

    def discard(self, messages: list[Message], reason: str) -> None:
        super().discard(messages, reason)
        self._counts.forget(messages)

    def delete(self) -> int:
        count = super().delete()
        self._drop_in_steps(self._counts.forgetting_all())
        if isinstance(self.ready, WeightedMessages):
            self._forget_priorities()
        return count

    def _take_back(self, messages: list[Message], outcome: Outcome, held: Held) -> None:
        if outcome is Outcome.UNREAD:
            super()._take_back(messages, outcome, held)
            return
        limit = self.limits.delivery_limit
        for message in messages:
            message.attempts += 1
        over = self._over_limit(messages)
        if over:
            self.discard(over, "delivery_limit")
            gone = {message.seq for message in over}
            messages = [message for message in messages if message.seq not in gone]
        to_end = (limit is None or limit < 0) and not self.requeues_in_place and not self.limits.delays_retries
        if to_end and outcome is not Outcome.CONSUMER_GONE and len(self.ready):
            self.returned = True
            self._move_to_end(messages)
            return
        if messages:
            for message in messages:
                self._counts.record(message.seq, message.attempts)
            super()._take_back(messages, outcome, held)

    def _over_limit(self, messages: list[Message]) -> list[Message]:
        """Return the messages beyond the delivery limit."""
        limit = self.limits.delivery_limit
        if limit is not None:
            return [message for message in messages if message.attempts - 1 > limit >= 0]
        if not self._counts.in_use:
            return []
        return [message for message in messages if self._counts.lost(message.seq) > DEFAULT_DELIVERY_LIMIT]

    def _move_to_end(self, messages: list[Message]) -> None:
        """Requeue messages at the end, and settle the old messages, in one commit."""
        moved, messages = [], sorted(messages, key=lambda one: one.seq)
        for message in messages:
            again = message.copy()
            again.attempts, again.expires_at, again.redelivered = message.attempts, message.expires_at, True
            moved.append(again)
        # A requeued message is no further publish.
        self.published -= len(moved)
        if self._barriers is not None:
            self._barriers.markers.passed(messages)
        self._counts.move([message.seq for message in messages], moved, self._next_seq)
        self._enter_again(moved)
        settle_stored(messages)

    def unshareable(self) -> str | None:
        limit = self.limits.delivery_limit
        if (limit is None or limit < 0) and not self.requeues_in_place:
            return "it has no delivery limit, so that what is requeued goes to its end"
        return None

    def returns_of(self, message: Message) -> int:
        return message.attempts - 1

    def status(self) -> dict[str, Any]:
        return {
            **status_of(self.retries, self.limits),
            "leader": self.node,
            "members": [self.node],
            "online": [self.node],
            "messages_dlx": self.undelivered_count,
            "message_bytes_dlx": self.undelivered_octets,
        }

    def _forget_priorities(self) -> None:
        if self._journal is not None:
            self._journal.delete(PRIORITIES, str(self.id))

    def _forgetting(self) -> Forget | None:
        return self._counts.forgetting if self._counts.in_use else None


def _uncounted(message: Message) -> Message:
    """Return the message without a delivery count set by the publisher, perhaps from an earlier queue."""
    if _DELIVERY_COUNT not in message.properties:
        return message
    properties = Properties.parse(message.properties)
    properties.headers = [field for field in properties.headers or [] if field.name != DELIVERY_COUNT]
    same = message.copy()
    same.properties, same.expires_at = properties.encode(), message.expires_at
    same.redelivered = message.redelivered
    return same
