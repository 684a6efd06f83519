"""Queue of a deduplication exchange: every message passes once, and leaves an entry for identification.

A message and its entry enter the queue in one commit. The message leaves at once: it returns to the exchange, as dead
letters go to theirs. The entry has no body, and stays until it expires or is displaced. After a crash at any moment, no
confirmed message is lost, and none passes twice. Entries are ordinary messages: they are paged, they move with the
queue, and they survive a restart, unless the exchange keeps them in memory only.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import NO_PROPERTIES
from jumpmq.queues import argument_checks as checks
from jumpmq.queues import clock
from jumpmq.queues.base import Outcome
from jumpmq.queues.deduplication import Seen, identity_of, milliseconds_of
from jumpmq.queues.delayed import DUE_AT_ONCE, DelayedQueue, DueTimes, due_at
from jumpmq.queues.delayed_messages import DelayedMessages
from jumpmq.queues.expiry import ExpiringQueue, Expiry
from jumpmq.queues.records import QueueRecords
from jumpmq.queues.runs import settle_stored
from jumpmq.store import Batch
from jumpmq.store.definitions import BEHIND

PASSED = "passed"
"""Reason for messages leaving the queue."""

FOR_EVER = 3.2e9
"""Seconds that an entry without a TTL stays, unless pushed out: a hundred years."""


class _Entries(DueTimes):
    """Expiry of entries, and due times of messages."""

    __slots__ = ()

    def drop(self, queue: ExpiringQueue, now: float, count: int) -> None:
        assert isinstance(queue, DeduplicatingQueue)
        queue.let_due_pass(now, count)


class DeduplicatingQueue(DelayedQueue):
    """Entries of seen messages, and messages about to pass.

    Messages that arrive while the entries move here from another home wait, and are compared after the entries.
    """

    __slots__ = ("_is_behind", "_is_kept", "_seen", "_size", "_ttl")

    type = "deduplicating"
    argument_checks: ClassVar[Mapping[str, checks.Check]] = {
        **DelayedQueue.argument_checks,
        "x-cache-size": checks.anything,
        "x-cache-ttl": checks.anything,
        "x-cache-persistence": checks.anything,
    }

    def __init__(self, vhost: str, name: str, **declared: Any) -> None:
        super().__init__(vhost, name, **declared)
        self._size = int(self.arguments.get("x-cache-size", 1))  # maximum number of entries
        self._ttl = self.arguments.get("x-cache-ttl")  # milliseconds of an entry; None for no end
        self._is_kept = self.arguments.get("x-cache-persistence") == "disk"  # True if entries survive a restart
        self._is_behind = bool(self.id & BEHIND)  # True for a buffer of messages that wait for entries
        self._seen = Seen(self._account)

    def restore(self, batches: list[Batch], records: QueueRecords) -> None:
        super().restore(batches, records)
        # Messages in a buffer are compared when they enter the queue itself.
        if not self._is_behind:
            for messages in self.ready.between(0, self._next_seq):
                self._note_entries(messages)

    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]:
        if self.behind is not None:
            return self.behind.push(messages)
        if self._is_behind:
            # Not due here: a buffered message passes only behind the entries of the previous home.
            self._enter([due_at(message, clock.now() + FOR_EVER) for message in messages])
        else:
            self._look_at(messages)
        return []

    def follow_up(self, count: int) -> bool:
        behind = self.behind
        assert isinstance(behind, DeduplicatingQueue)
        messages = behind.take_for_delivery(count)
        if messages:
            self._look_at(messages)
            behind.settle(messages, Outcome.ACKNOWLEDGED)
        elif not behind.message_count and not behind.purging:
            self.behind = None
            behind.delete()
        return bool(messages)

    def _look_at(self, messages: list[Message]) -> None:
        """Admit unseen messages, and add an entry per identified message."""
        coming, now = list[Message](), clock.now()
        for message in self._seen.new(messages):
            if (identity := identity_of(message)) is not None:
                entry = Message("", identity, NO_PROPERTIES, b"", self._is_kept)
                ttl = milliseconds_of(message, "x-cache-ttl") or self._ttl
                entry.expires_at = now + (FOR_EVER if ttl is None else min(ttl / 1000, FOR_EVER))
                coming.append(entry)
            coming.append(due_at(message, now))
        if coming:
            self._expiry.expected = True
            self._enter(coming)

    def _store(self, messages: list[Message]) -> None:
        self._note_entries(messages)
        kept = messages if self._is_kept else [message for message in messages if not _is_entry(message)]
        super()._store(kept)

    def _note_entries(self, messages: list[Message]) -> None:
        for message in messages:
            if _is_entry(message):
                self._seen.add(message.routing_key, message.seq)

    def _own_expiry(self) -> Expiry:
        return _Entries()

    def let_due_pass(self, now: float, count: int) -> None:
        """Drop expired entries, and those that are too many; hand due messages to the exchange."""
        if self._is_behind:
            return
        ready = self.ready
        assert isinstance(ready, DelayedMessages)
        self._let_pass(ready.take_expired(now, min(count, DUE_AT_ONCE)))
        while (beyond := len(self._seen) - self._size) > 0 and (oldest := ready.take(min(beyond, DUE_AT_ONCE))):
            self._let_pass(oldest)
        if first := ready.first_expiry():
            self.wake(max(first, now))

    def _let_pass(self, messages: list[Message]) -> None:
        """Forget entries, and hand messages to the exchange."""
        entries = [message for message in messages if _is_entry(message)]
        self._forget(entries)
        settle_stored(entries)
        self.discard([message for message in messages if not _is_entry(message)], PASSED)

    def _forget(self, messages: list[Message]) -> None:
        self._seen.forget(messages)
        super()._forget(messages)

    def purge(self) -> int:
        self._seen.clear()
        return super().purge()

    def delete(self) -> int:
        self._seen.clear()
        return super().delete()

    def status(self) -> dict[str, Any]:
        return {"cache_info": self._seen.shown() | {"size": self._size}}


def _is_entry(message: Message) -> bool:
    """Return True for an entry: a message without properties and exchange. An identified message has both."""
    return not message.exchange and message.properties == NO_PROPERTIES
