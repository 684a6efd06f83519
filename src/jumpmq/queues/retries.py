"""Delayed retries of a queue: the rules of :mod:`jumpmq.queues.resting`, applied to one queue's messages."""

from collections.abc import Callable
from typing import Any, Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues import clock
from jumpmq.queues.arguments import Limits
from jumpmq.queues.journal import RecordJournal
from jumpmq.queues.leftovers import settle_spilled
from jumpmq.queues.memory import PAGED, Held
from jumpmq.queues.resting import NotedRetry, Resting, RestingKey, alone
from jumpmq.queues.slots import SlottedMessages
from jumpmq.queues.tail import PAGED_AT_ONCE
from jumpmq.queues.taken import TakenMessages
from jumpmq.store.kinds import RETRY

RETRIED = 500
"""Maximum number of rested messages released per step."""


class RestingQueue(Protocol):
    """A queue, from the point of view of its retries; see :class:`~jumpmq.queues.base.Queue`."""

    id: int
    limits: Limits
    moved: bool
    slots: SlottedMessages | None
    taken: TakenMessages
    unacknowledged_count: int

    @property
    def always_durable(self) -> bool: ...
    @property
    def ready_count(self) -> int: ...
    @property
    def consumer_group(self) -> object: ...
    def wake(self, at: float) -> None: ...
    def returns_of(self, message: Message) -> int:
        """Number of returns of a message, including the current return."""

    def deliver_soon(self) -> None:
        """Deliver after the current work."""


def status_of(retries: "Retries | None", limits: Limits) -> dict[str, Any]:
    """Return the fields of resting messages for the management API; none for a queue without delayed retries."""
    if retries is not None:
        return retries.status()
    return {"messages_resting": 0, "keys_resting": 0, "next_retry_at": None} if limits.delays_retries else {}


class Retries:
    """The resting messages of a queue. Created when a message first rests.

    Args:
        queue: the queue.
        notes: records due times; None for a queue without a journal.

    Attributes:
        resting: the messages that rest, or wait behind a resting message. They count as unacknowledged.
    """

    __slots__ = ("_held_back", "_notes", "_queue", "resting")

    def __init__(self, queue: RestingQueue, notes: RecordJournal | None) -> None:
        self._queue = queue
        self._notes = notes
        self._held_back = False  # True if all messages taken last rest, and more are ready
        self.resting = Resting(self._record)

    def _record(self, seq: int, value: NotedRetry | None) -> None:
        if self._notes is None:
            return
        if value is None:
            self._notes.delete(RETRY, f"{self._queue.id} {seq}")
        else:
            self._notes.put_text(RETRY, f"{self._queue.id} {seq}", f"[{value[0]!r},{value[1]}]")

    def status(self) -> dict[str, Any]:
        """Return the fields for the management API."""
        due = self.resting.next_due
        return {
            "messages_resting": len(self.resting.held),
            "keys_resting": self.resting.keys,
            "next_retry_at": None if due is None else round(due, 3),
        }

    def keys_of(self, messages: list[Message]) -> list[RestingKey] | None:
        """Return the key by which messages rest together, per message; None where messages rest alone."""
        queue = self._queue
        if queue.slots is not None:
            return [*queue.slots.keys_of(messages)]
        if queue.limits.ordered_retries or queue.consumer_group is not None or self.resting.keys:
            return [message.routing_key for message in messages]
        return None

    # --- resting ---

    def rest(self, messages: list[Message]) -> list[Message]:
        """Delay returned messages. Return the messages not delayed."""
        queue, resting, now = self._queue, self.resting, clock.now()
        keys = self.keys_of(messages)
        back: list[Message] = []
        kept: list[Message] = []
        for place, message in enumerate(messages):
            count = queue.returns_of(message)
            due = now + queue.limits.retry_delay(count)
            if queue.moved:  # it rests at the new home
                resting.note(message.seq, (due, count), recorded=self._stays(message))
                back.append(message)
                continue
            key = alone(due) if keys is None else keys[place]
            (kept if resting.rest(message, key, due, count, recorded=self._stays(message)) else back).append(message)
        self._keep(kept)
        return back

    def rest_here(self, message: Message, seq: int, noted: NotedRetry) -> None:
        """Add a resting message received from the queue's previous home.

        Args:
            seq: the queue's next number, assigned to the message.
            noted: state of the retry, sent by the previous home.
        """
        due, tries = noted
        latest = clock.now() + self._queue.limits.retry_delay(tries)  # the previous home's clock may be ahead
        self.resting.note(seq, (due if due < latest else latest, tries), recorded=self._stays(message))
        self.resting.rest_noted()

    def _stays(self, message: Message) -> bool:
        """Return True if the message survives a restart."""
        return self._queue.always_durable or message.persistent

    def _keep(self, messages: list[Message]) -> None:
        """Hold messages resting, or waiting behind resting messages."""
        if messages:
            self._queue.taken.hold(messages, Held.UNACKNOWLEDGED)
            self._queue.unacknowledged_count += len(messages)
            if (due := self.resting.next_due) is not None:
                self._queue.wake(due)

    # --- deliveries past resting messages ---

    def divert(self, messages: list[Message]) -> list[Message]:
        """Return the deliverable messages among taken messages: neither resting nor behind a resting message."""
        queue, resting = self._queue, self.resting
        if not (resting.in_use and messages):
            return messages
        alive, kept = resting.divert(messages, self.keys_of(messages), clock.now())
        if kept:
            # A held message must not use up its slot's limit of unacknowledged messages.
            if queue.slots is not None:
                queue.slots.settled(kept)
            self._keep(kept)
            self._held_back = not alive and queue.ready_count > 0
        return alive

    def passing_by(self, take: Callable[[], list[Message]], most: int) -> list[Message]:
        """Take messages until one is deliverable. Resting messages, and messages behind them, are passed over.

        Args:
            take: takes messages, through :meth:`divert`.
            most: maximum number of messages passed over; the next delivery examines further messages.
        """
        before = len(self.resting.held)
        while True:
            self._held_back = False
            if (messages := take()) or not self._held_back:
                return messages
            if len(self.resting.held) - before >= most:
                self._queue.deliver_soon()
                return []

    # --- leaving ---

    def due(self, now: float) -> list[Message]:
        """Remove and return one step of messages whose rest is over. They still count as unacknowledged."""
        messages = self.resting.due(now, RETRIED)
        if messages:
            # Before bodies are read back, which are not charged.
            self._queue.taken.release(messages, Held.UNACKNOWLEDGED)
        return messages

    def hasten(self) -> int:
        """Release all resting messages now, and return their number."""
        count = self.resting.hasten()
        self._queue.wake(clock.now())
        return count

    def drop(self, messages: list[Message]) -> None:
        """Drop messages of a deleted queue."""
        self._queue.taken.release(messages, Held.UNACKNOWLEDGED)
        settle_spilled(messages)

    # --- memory ---

    def page_out(self) -> int:
        """Drop one step of bodies on disk from memory; return the freed octets."""
        some = self.resting.to_page(PAGED_AT_ONCE)
        freed = self._queue.taken.page(some) if some else 0
        self.resting.page_again(message for message in some if message.body is not PAGED)
        return freed
