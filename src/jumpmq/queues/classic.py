"""The classic queue: messages in order of arrival, delivered to one consumer at a time.

Long work (the expiry, overflow or purge of millions of messages) is done in bounded steps: the first step at once, the
others in the queue's maintenance. Between steps the counts show the actual state: for example, a length above the
limit.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from jumpmq.amqp.messages import Message
from jumpmq.queues import clock, settings
from jumpmq.queues.any_ready import AnyReady
from jumpmq.queues.arguments import Limits
from jumpmq.queues.barriers import Barriers
from jumpmq.queues.base import Outcome, Queue
from jumpmq.queues.clock import NEVER
from jumpmq.queues.columns import Columns
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.deduplication import Seen
from jumpmq.queues.delivery import CHUNK, QueueDelivery
from jumpmq.queues.expiry import Expiry
from jumpmq.queues.figures import MessageFigures
from jumpmq.queues.leftovers import Forget, settle_spilled
from jumpmq.queues.length_limit import LengthLimit
from jumpmq.queues.memory import PAGED, Held
from jumpmq.queues.priorities import PrioritizedMessages
from jumpmq.queues.ready import ReadyMessages, TakenColumns
from jumpmq.queues.ready_kinds import Around, slotted, unslotted
from jumpmq.queues.records import QueueRecords
from jumpmq.queues.resting import NAMED, carried, carrying
from jumpmq.queues.retries import Retries, status_of
from jumpmq.queues.runs import (
    body_octets,
    carries,
    enter_queue,
    highest_seq,
    of_body,
    persistent,
    settle_stored,
)
from jumpmq.queues.slot_delivery import SlotDelivery
from jumpmq.queues.slots import Share
from jumpmq.queues.stored_run import StoredRun
from jumpmq.queues.taken import TakenMessages
from jumpmq.queues.unstored import Unstored
from jumpmq.queues.view import ReadyView, View
from jumpmq.store import Batch
from jumpmq.store.kinds import DELIVERED, SEQUENCE

CHUNK_OCTETS = 1 << 20
"""Maximum octets of bodies handed to consumers at once; the last message may exceed them."""

SEQUENCE_BLOCK = 1 << 20
"""Message numbers reserved in the journal at a time, so that no number is reused."""

STEP = 1000
"""Number of messages that expire or overflow per step; dead-lettering a full step takes a few milliseconds."""

LOOKED_AT = 4 * CHUNK
"""Maximum number of resting or waiting messages that ``basic.get`` passes at once: some milliseconds."""

MEASURED = 4
"""Batches read per step to measure a restored queue."""


class ClassicQueue(Queue):
    """Messages in order of arrival, delivered to one consumer at a time.

    Attributes:
        ready: the ready messages. The object is replaced when messages get priorities, or wait for other queues.
    """

    __slots__ = (
        "_arriving",
        "_barriers",
        "_delivered_seq",
        "_delivery",
        "_dispatching",
        "_expiry",
        "_leaving",
        "_length",
        "_next_seq",
        "_present",
        "_reserved_seq",
        "_returns",
        "_unstored",
        "_was_read",
        "ready",
    )  # fmt: skip

    type = "classic"
    policy_target = "classic_queues"
    holds_back = True
    argument_checks = settings.argument_checks(type)
    refused_policy_keys = settings.refused_policy_keys(type)

    taken: TakenMessages

    def __init__(self, vhost: str, name: str, **declared: Any) -> None:
        super().__init__(vhost, name, **declared)
        self.slots = slotted(self.arguments, self.around())
        delivery = QueueDelivery if self.slots is None else SlotDelivery
        self._delivery = delivery(self, self.knows_exclusive_consumers)
        self._delivery.serve_one(self.limits.single_active_consumer)
        self._was_read = False  # True if bodies were read back recently
        self.ready: AnyReady = self._ready_messages() if self.slots is None else self.slots
        self._dispatching = False  # True during the delivery of messages
        self.taken = TakenMessages(self._spill_store, self._account)
        self._unstored = Unstored()
        self._leaving: tuple[Iterator[None], ...] = ()  # unfinished steps of departures
        self._returns = 0  # number of unfinished returns in steps
        self._next_seq = 1  # number of the next message
        self._reserved_seq = 0  # first number after a crash
        self._delivered_seq = 0  # highest delivered number: after a crash, messages up to it count as redelivered
        self._expiry = self._own_expiry()
        self._arriving = False  # True while a message goes to a waiting consumer, so that it cannot expire
        self._length = LengthLimit.of(self.limits)  # None without a limit
        self._barriers: Barriers | None = None  # None until keys have moved to the queue or away
        # Identities of the messages, for a queue without duplicates; None otherwise.
        self._present = Seen(self._account) if self.arguments.get("x-message-deduplication") else None
        self.mind_lease()

    def _own_expiry(self) -> Expiry:
        return Expiry()

    def _ready_messages(self) -> AnyReady:
        return unslotted(self.arguments, self.around())

    def around(self) -> Around:
        """Return the services for ready messages of any kind."""
        return Around(self._spill_store, self._prepare, self._account, self.deliver_soon)

    def deliver_soon(self) -> None:
        """Deliver at the next maintenance, for example messages read for waiting consumers."""
        self._was_read = True
        self.wake(clock.now())

    # --- contents ---

    @property
    def ready_count(self) -> int:
        return len(self.ready)

    @property
    def memory(self) -> int:
        return self.ready.memory + self.taken.memory

    def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        if isinstance(self.ready, PrioritizedMessages):
            shown["priority_lengths"] = {str(priority): count for priority, count in self.ready.counts().items()}
        if self._present is not None:
            shown["message_deduplication_cache_info"] = self._present.shown()
        return ({"backing_queue_status": shown} if shown else {}) | status_of(self.retries, self.limits)

    def figures(self) -> MessageFigures:
        ready, taken = self.ready, self.taken
        loaded, loaded_octets = ready.in_memory()
        unacknowledged = taken.octets_in_memory + taken.paged_octets
        stored = self._journal is not None
        spilled, spilled_octets = ready.spilled()
        return MessageFigures(
            ready_octets=ready.size,
            unacknowledged_octets=unacknowledged,
            ready_in_memory=loaded,
            unacknowledged_in_memory=self.unacknowledged_count - taken.paged,
            octets_in_memory=loaded_octets + taken.octets_in_memory,
            # During a purge, messages to be removed still count.
            persistent=max(0, self.message_count - self._unstored.count) if stored else 0,
            persistent_octets=max(0, ready.size + unacknowledged - self._unstored.octets) if stored else 0,
            paged_out=spilled,
            paged_out_octets=spilled_octets,
        )

    def front(self) -> Message | None:
        return self.ready.front()

    def page_out(self, kept: int) -> int:
        done = self.ready.page_out(kept)
        return done if done or self.retries is None else self.retries.page_out()

    @property
    def next_seq(self) -> int:
        return self._next_seq

    def restore(self, batches: list[Batch], records: QueueRecords) -> None:
        next_seq, delivered_seq = records.next_seq, records.delivered_seq
        if records.retries:
            self._begin_retries().resting.restore(records.retries)
        for batch in batches:
            self.ready.restore(batch, batch.last_seq if delivered_seq is None else delivered_seq)
            if self._present is not None and self._spill_store is not None:
                self._present.note(self._spill_store.read(batch))
            next_seq = max(next_seq, batch.last_seq + 1)
        if delivered_seq is None:
            delivered_seq = batches[-1].last_seq if batches else 0
        self._next_seq = next_seq
        self._delivered_seq = delivered_seq
        self._expiry.expected = self.returned = bool(batches)
        if batches:
            self.wake(clock.now())

    def would_refuse(self, messages: list[Message]) -> list[Message]:
        length, ready = self._length, self.ready
        if length is None or length.drops_head:
            return []
        octets = 0
        if length.counts_octets:
            ready.measure(MEASURED)
            octets = ready.size + self.undelivered_octets
        return length.refused(messages, len(ready) + self.undelivered_count, octets)

    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]:
        # Messages of the previous home have not all arrived: new messages must not overtake them.
        if self.behind is not None:
            return self.behind.push(messages)
        if self._present is not None and not (messages := self._present.new(messages)):
            return []
        if self._length is not None and not self._length.drops_head and not fitting:
            return self._push_what_fits(messages)
        self._enter(messages)
        return []

    def push_ahead(self, messages: list[Message]) -> None:
        """Add messages from the queue's previous home, before those of :attr:`behind`."""
        if carries(messages, NAMED):
            messages = [self._rested(message, seq) for seq, message in enumerate(messages, self._next_seq)]
        # The messages were counted as published at the previous home.
        self.published -= len(messages)
        self._enter_again(messages)

    def _rested(self, message: Message, seq: int) -> Message:
        """Return a message from the previous home, under the given number, without the note carried by the message."""
        if NAMED not in message.properties:
            return message
        properties, noted = carried(message.properties)
        own = _apart(message)
        own.properties, own.attempts = properties, message.attempts
        if noted is not None and self.limits.delays_retries:
            self._begin_retries().rest_here(own, seq, noted)
        return own

    def _enter_again(self, messages: list[Message]) -> None:
        """Add possibly delivered messages, under new numbers."""
        again = [place for place, message in enumerate(messages, self._next_seq) if message.redelivered]
        if again:
            self.returned = True
            self._delivered_seq = max(self._delivered_seq, again[-1])
        self._enter(messages)

    def note_redelivered(self) -> None:
        if self.behind is not None:
            self.behind.note_redelivered()
        else:
            super().note_redelivered()
            self._delivered_seq = max(self._delivered_seq, self._next_seq - 1)

    def departing(self, messages: list[Message]) -> list[Message]:
        """Return copies of taken messages, for :meth:`push_ahead` at the new home."""
        copies = [_apart(message) for message in messages]
        retries = self.retries
        if retries is not None or carries(messages, NAMED):
            for message, copy in zip(messages, copies, strict=True):
                noted = None if retries is None else retries.resting.noted(message)
                if noted is not None or NAMED in message.properties:
                    copy.properties = carrying(copy.properties, noted)
        return copies

    def follow_up(self, count: int) -> bool:
        behind = self.behind
        assert isinstance(behind, ClassicQueue)
        messages = behind.take_for_delivery(count)
        if messages:
            self._expiry.expected = self._expiry.expected or behind._expiry.expected
            new = messages if self._present is None else self._present.new(messages)
            if new:
                self._enter_again([_apart(message) for message in new])
            # One commit for both queues: after a crash, each message is in one of them.
            behind.settle(messages, Outcome.ACKNOWLEDGED)
        elif not behind.message_count and not behind.purging:
            self.behind = None
            behind.delete()
        return bool(messages)

    def _enter(self, messages: list[Message]) -> None:
        messages, count = enter_queue(messages, self, self._next_seq), len(messages)
        self._next_seq += count
        self.published += count
        if self._present is not None:
            self._present.note(messages)
        if self.limits.message_ttl is not None:
            self._expiry.set_ttl(messages, self.limits.message_ttl)
        # Before the delivery: a consumer without acknowledgements settles at once, and the store accepts a settlement
        # only for stored messages.
        self._store(messages)
        served = self._delivery.consumers
        self._arriving = bool(served) and not len(self.ready)  # waiting consumers get them, even with a TTL of 0
        self.ready.extend(messages, body_octets(messages))
        if served:
            self.dispatch()
            self._arriving = False
        if self._length is not None or self._expiry.expected:
            self._trim(clock.now(), STEP + count)

    def expect_expiry(self) -> None:
        self._expiry.expect()
        if self.behind is not None:
            self.behind.expect_expiry()

    @property
    def knows_next(self) -> bool:
        # The next message may be among those that are still returning.
        if self._returns:
            return False
        if not self._expiry.expected:
            return True
        now = clock.now()
        self._expiry.drop(self, now, self._step)
        return not self._expiry.is_due(self, now)

    def take(self, count: int) -> list[Message]:
        # Without a lease, another node may lead the home, and deliver the same messages.
        if self._gate.until != math.inf and self._gate.holds(self):
            return []
        if self.retries is None:
            return self._take(self.ready.take, count)
        return self.retries.passing_by(lambda: self._take(self.ready.take, count), LOOKED_AT)

    def take_for_delivery(self, count: int) -> list[Message]:
        if self.retries is not None:
            return self.retries.passing_by(lambda: self._take_octets(count), CHUNK)
        if not self._expiry.expected or self._arriving:
            return self._count_taken(self.ready.take_octets(min(count, CHUNK), CHUNK_OCTETS))
        return self._take_octets(count)

    def _take_octets(self, count: int) -> list[Message]:
        return self._take(lambda count: self.ready.take_octets(count, CHUNK_OCTETS), min(count, CHUNK))

    def take_from(self, share: Share, count: int) -> list[Message]:
        """As :meth:`take_for_delivery`, messages of this share of the queue's slots."""
        slots = self.slots
        assert slots is not None
        most = min(count, CHUNK)

        def take() -> list[Message]:
            return self._take(lambda count: slots.take_octets(count, CHUNK_OCTETS, share), most)

        return take() if self.retries is None else self.retries.passing_by(take, CHUNK)

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        while messages := self.ready.take_range(first_seq, last_seq, count):
            alive = self._expiry.living(self, messages, clock.now()) if self._expiry.expected else messages
            if counted := self._count_taken(alive, Held.RESERVED):
                return counted
        return []

    def _take(self, take: Callable[[int], list[Message]], count: int) -> list[Message]:
        """Take unexpired messages, and drop expired ones, also behind others. If more messages have expired than a
        step drops, nothing is taken yet.
        """
        if self.retries is not None and self.retries.resting.is_full:
            return []
        expiry = self._expiry
        if not expiry.expected or self._arriving:
            return self._count_taken(take(count))
        now = clock.now()
        expiry.drop(self, now, self._step)
        if expiry.is_due(self, now):
            return []
        messages = expiry.living(self, take(count), now)
        # Behind the taken messages there may be expired ones.
        expiry.drop(self, now, self._step)
        return self._count_taken(messages)

    def _count_taken(self, messages: list[Message], held: Held = Held.UNACKNOWLEDGED) -> list[Message]:
        if self.retries is not None:
            messages = self.retries.divert(messages)
        if messages:
            self.taken.hold(messages, held)
            again = sum([message.redelivered for message in messages]) if self.returned else 0
            # With slots or priorities, the last message need not have the highest number.
            last = messages[-1].seq if type(self.ready) is ReadyMessages else highest_seq(messages)
            self._count_delivered(len(messages), again, last)
        return messages

    def _count_delivered(self, count: int, redelivered: int, last_seq: int) -> None:
        self.unacknowledged_count += count
        self.delivered += count
        self.redelivered += redelivered
        self._delivered_seq = max(self._delivered_seq, last_seq)

    def take_columns(self, last_seq: int, count: int) -> TakenColumns:
        ready = self.ready
        if type(ready) is not ReadyMessages or self._minds_departures or self._account.tight:
            return super().take_columns(last_seq, count)
        found, messages = ready.take_columns(last_seq, count, may_expire=self._expiry.expected)
        if self._expiry.expected:
            if found and isinstance(last := found[-1], Columns) and last.expires:
                messages = last.messages() + messages
                del found[-1]
            messages = self._expiry.living(self, messages, clock.now())
        if not found and not messages:
            return super().take_columns(last_seq, count)
        for piece in found:
            if isinstance(piece, StoredRun):
                piece.queue = self
                self.taken.hold_run(piece)
            else:
                self.taken.hold_columns(piece)
            self._count_delivered(len(piece), len(piece) if piece.redelivered else 0, piece.last_seq)
        return found, self._count_taken(messages, Held.RESERVED)

    def settle_columns(self, columns: Columns | StoredRun) -> None:
        if isinstance(columns, StoredRun):
            self._settle_run(columns)
            return
        if self._minds_departures:
            super().settle_columns(columns)
            return
        count = len(columns)
        self.taken.release_columns(columns)
        self.unacknowledged_count -= count
        self.acknowledged += count
        if not columns.like.persistent:
            self._unstored.leave(count, columns.bodies)
        for batch, first, last in columns.batches:
            batch.settle_range(first, last)

    def _settle_run(self, run: StoredRun) -> None:
        if self._minds_departures and not self.deleted:
            self.settle(run.without_bodies(), Outcome.ACKNOWLEDGED, Held.RESERVED)
            return
        self.taken.release_run(run)
        if not self.deleted:
            self.unacknowledged_count -= len(run)
            self.acknowledged += len(run)
            if not run.persistent:
                self._unstored.leave(len(run), run.octets)
        # The store drops the persistent messages of a deleted queue.
        if not (self.deleted and run.persistent):
            run.batch.settle_range(run.first_seq, run.last_seq)

    def load_reserved(self, run: StoredRun, messages: list[Message]) -> None:
        """Count the messages of a reservation as objects without bodies; the run must not be used afterwards."""
        self.taken.release_run(run)
        self.taken.hold_paged(messages, run.octets, Held.RESERVED)

    def read_reserved(self, run: StoredRun) -> list[Message]:
        """Return reserved messages as objects, without unreadable ones, which stay in the store; the run must not be
        used afterwards.
        """
        if self.deleted:
            self._settle_run(run)
            return []
        messages = run.messages()
        self._prepare(messages)
        self.taken.release_run(run)
        self.taken.hold(messages, Held.RESERVED)
        lost = len(run) - len(messages)
        self.unacknowledged_count -= lost
        if not run.persistent:
            self._unstored.leave(lost, run.octets - body_octets(messages))
        return messages

    @property
    def _minds_departures(self) -> bool:
        """True if each settled message needs work: for retries, slots, deduplication or markers."""
        others = self.retries, self.slots, self._present
        return self.deleted or self._is_marked or any(other is not None for other in others)

    @property
    def view(self) -> View:
        return ReadyView(self._next_seq, self.ready, self.fences)

    def settle(self, messages: list[Message], outcome: Outcome, held: Held = Held.UNACKNOWLEDGED) -> None:
        if not messages:
            return
        # Before the check for a deleted queue, which stays charged for held messages; and before bodies are read back,
        # which are not charged.
        self.taken.release(messages, held)
        if self.deleted:
            settle_spilled(messages)
            return
        # An acknowledgement needs no body; every other outcome passes the message on.
        if outcome is not Outcome.ACKNOWLEDGED:
            messages = self._unpaged(messages)
            if not messages:
                self.dispatch()
                return
        freed = self.slots is not None and self.slots.settled(messages)
        self.unacknowledged_count -= len(messages)
        if outcome is Outcome.ACKNOWLEDGED:
            self.acknowledged += len(messages)
            self._forget(messages)
            settle_stored(messages)
        elif outcome is Outcome.REJECTED:
            self.discard(messages, "rejected")
        else:
            self._take_back(messages, outcome, held)
        # A slot below its limit of unacknowledged messages may deliver again.
        if freed:
            self.dispatch()

    def _unpaged(self, messages: list[Message], *, in_slots: bool = True) -> list[Message]:
        """Return deliveries with their bodies, without unreadable ones. Unreadable messages stay in the store: a later
        read may succeed.

        Args:
            in_slots: True if the messages count as unacknowledged in their slots.
        """
        missing = of_body(messages, PAGED)
        if not missing:
            return messages
        lost = self.taken.read_back(missing)
        if lost:
            self._leave_unread(lost, in_slots=in_slots)
        self.taken.not_paged([message for message in missing if message.body is not PAGED])
        return [message for message in messages if message.body is not PAGED] if lost else messages

    def leave_unread(self, messages: list[Message], held: Held) -> None:
        self.taken.release(messages, held)
        if self.deleted:
            settle_spilled(messages)
        else:
            self._leave_unread(messages, in_slots=True)
            self.dispatch()

    def _leave_unread(self, messages: list[Message], *, in_slots: bool) -> None:
        self.unacknowledged_count -= len(messages)
        if self.slots is not None and in_slots:
            self.slots.settled(messages)
        self._forget(messages)

    def delivered_no_ack(self, messages: list[Message]) -> None:
        """See :class:`~jumpmq.queues.delivery.DeliverySource`."""
        self.delivered_unasked += len(messages)
        self.settle(messages, Outcome.ACKNOWLEDGED)

    def _take_back(self, messages: list[Message], outcome: Outcome, held: Held) -> None:
        """Return messages to their positions, marked as redelivered, and deliver again; some rest first."""
        self.returned = True
        for message in messages:
            message.redelivered = True
            message.consumer = None
            if message.expires_at:
                self._expiry.expected = True
        if self.limits.delays_retries and held is Held.UNACKNOWLEDGED:
            # taken back for a move: the consumer has not failed
            gone = self.moved and outcome is Outcome.CONSUMER_GONE
            if not gone and self.limits.rests(requeued=outcome is Outcome.REQUEUED):
                messages = self._begin_retries().rest(messages)
        if messages:
            self.ready.put_back(messages)
        if self._length is not None or self._expiry.expected:
            self._trim(clock.now(), STEP + len(messages))
        self.dispatch()

    # --- retries ---

    def _begin_retries(self) -> Retries:
        if self.retries is None:
            self.retries = Retries(self, self._journal)
        return self.retries

    def returns_of(self, message: Message) -> int:
        """Number of returns of a message, including the current return."""
        return 1 if self.retries is None else self.retries.resting.tries(message) + 1

    def _release_due(self, retries: Retries, now: float) -> None:
        """Return rested messages to their positions, in steps."""
        if messages := retries.due(now):
            # Bodies are read before messages count as ready; unreadable messages leave here.
            messages = self._unpaged(messages, in_slots=False)
            self.unacknowledged_count -= len(messages)
            if any(message.expires_at for message in messages):
                self._expiry.expected = True
            if messages:
                self.ready.put_back(messages)
            self._was_read = True
        if (due := retries.resting.next_due) is not None:
            self.wake(max(due, now))

    def begin_return(self) -> None:
        self._returns += 1

    def end_return(self) -> None:
        self._returns -= 1
        self.dispatch()
        self.tell_next()

    def checkpoint(self) -> None:
        # Completely: messages whose departure the store does not know are in the queue again after the restart.
        while self._leaving:
            steps, *others = self._leaving
            self._leaving = tuple(others)
            self._drop_in_steps(steps)
        if self._journal is None:
            return
        # After a clean stop, the next start continues without the gap of a reserved block.
        if self._reserved_seq:
            self._journal.put(SEQUENCE, str(self.id), self._next_seq)
        if self._delivered_seq:
            self._journal.put(DELIVERED, str(self.id), self._delivered_seq)

    def purge(self) -> int:
        count = len(self.ready)
        if self._barriers is not None:
            self._barriers.markers.ready_leave()  # before the messages leave: it counts them
        if self.retries is not None:
            self._drop_in_steps(self.retries.resting.forget_others())
        self._drop_in_steps(self.ready.leave().settle(self._unstored.leave, self._forgetting()))
        if self._present is not None:
            self._present.clear()  # delivered messages, too, as in noxdafox's plugin
        return count if self.behind is None else count + self.behind.purge()

    def _forgetting(self) -> Forget | None:
        """Return a function that deletes the records of purged messages; None without such records."""
        return None

    @property
    def purging(self) -> bool:
        return bool(self._leaving)

    def delete(self) -> int:
        self.tell_gone()
        count = len(self.ready)
        if self.behind is not None:
            count += self.behind.delete()
        # Before anything leaves, so that later settlements have no effect.
        self.deleted = True
        self.taken.close()
        if self._present is not None:
            self._present.clear()
        self.wakes_at = NEVER
        if self._barriers is not None:
            self._barriers.markers.all_leave()
        if self.retries is not None:
            self._drop_in_steps(self.retries.resting.leave(self.retries.drop))
            self.retries = None
        self._drop_in_steps(self.ready.leave().forget())
        if self._journal is not None:
            self._journal.drop_queue(self.id)
            if self._next_seq > 1:  # otherwise nothing was recorded
                self._journal.delete(SEQUENCE, str(self.id))
                self._journal.delete(DELIVERED, str(self.id))
        self._delivery.cancel_all()
        self.ready.close()
        self.tell_next()
        return count

    def leave_consumers(self) -> None:
        """Cancel all consumers: the queue has moved to another home. Resting messages move, too."""
        self._delivery.cancel_all()
        if self.retries is not None:
            self.retries.hasten()

    # --- fences ---

    def barriers(self) -> Barriers:
        if self._barriers is None:
            self._barriers = Barriers(self)
        return self._barriers

    @property
    def _is_marked(self) -> bool:
        """True if other queues wait for messages of the queue."""
        return self._barriers is not None and bool(self._barriers.markers.placed)

    # --- consumers ---

    @property
    def consumers(self) -> list[Consumer]:
        return self._delivery.consumers

    @property
    def active_consumer(self) -> Consumer | None:
        return self._delivery.active

    def subscribe(self, consumer: Consumer, share: Share | None = None) -> None:
        if share is None:
            self._delivery.add(consumer)
        else:
            assert isinstance(self._delivery, SlotDelivery)
            self._delivery.add_to(consumer, share)
        self.touch()

    def unsubscribe(self, consumer: Consumer) -> None:
        if self._delivery.remove(consumer):
            self.touch()
            if self._delivery.active is not None:
                self.dispatch()

    def renew_owners(self) -> None:
        super().renew_owners()
        self._delivery.renew_epoch()

    def unshareable(self) -> str | None:
        return "it has priorities" if self.arguments.get("x-max-priority") else None

    def admit(self, consumer: Consumer) -> None:
        self._delivery.admit(consumer)

    def dispatch(self) -> None:
        # During a return in steps, messages would overtake those in front that are still missing.
        if self._returns or self._dispatching:
            return
        if self._gate.until != math.inf and self._gate.holds(self):
            return
        self._dispatching = True  # consumers without acknowledgements settle during the delivery
        try:
            more = self._delivery.dispatch()
        finally:
            self._dispatching = False
        if more:
            self.deliver_soon()

    # --- limits ---

    def set_limits(self, limits: Limits) -> None:
        self.limits = limits
        self._length = LengthLimit.of(limits)
        if self.behind is not None:
            self.behind.set_limits(limits.unbounded())
        self._delivery.serve_one(limits.single_active_consumer)
        if self.retries is not None and not limits.delays_retries:
            self.retries.hasten()
        self.touch()
        self.mind_lease()
        self.trim(clock.now())
        self.dispatch()

    def trim(self, now: float) -> None:
        for _ in range(len(self._leaving)):
            steps, *others = self._leaving
            self._leaving = tuple(others)
            self._drop_in_steps(steps)
        if self.retries is not None:
            self._release_due(self.retries, now)
        # After the return of rested messages, which may have expired, or exceed limits.
        self._trim(now, self._step)
        if self._barriers is not None:
            self._barriers.release()
        if self._expiry.expected or self._was_read:
            self._was_read = False
            self.dispatch()
        self.tell_next()  # after consumers, which come before requests for single messages

    def _drop_in_steps(self, steps: Iterator[None]) -> None:
        """Run one step of dropping messages, and schedule the rest."""
        for _ in steps:
            self._leaving += (steps,)
            self.wake(clock.now())
            return

    def _trim(self, now: float, count: int) -> None:
        """Drop up to ``count`` expired messages at the front, and as many beyond length limits."""
        if self._expiry.expected:
            self._expiry.drop(self, now, count)
        length = self._length
        if length is None:
            return
        if length.counts_octets and not self.ready.measure(MEASURED):
            self.wake(now)  # restored batches may have other counts than recorded
        elif length.drops_head:  # other settings keep returned messages
            dropped = length.take_overflow(self.ready, count)
            self.discard(dropped, "maxlen")
            if dropped and self._expiry.expected:
                self._expiry.look_ahead(self, now)  # another message is at the front
            # the object may have changed: a returned dead letter may have a priority
            if length.is_exceeded(self.ready):
                self.wake(now)

    @property
    def _step(self) -> int:
        """Return the number of messages that may leave undelivered now: 0 on a backlog of dead-lettering, because
        the messages can be paged here.
        """
        return 0 if self.limits.dead_letter_exchange is not None and self._dead_letters.is_behind(self) else STEP

    def _push_what_fits(self, messages: list[Message]) -> list[Message]:
        """Push messages one by one, because a delivery may make room for the next; return the messages without room."""
        refused = []
        for message in messages:
            if self.would_refuse([message]):
                refused.append(message)
            else:
                self._enter([message])
        if refused and self.limits.overflow == "reject-publish-dlx":
            if self.limits.dead_letter_exchange is not None:
                self._dead_letters.publish(self, refused, "maxlen")
            else:
                self._dead_letters.count_discarded(self, len(refused), "maxlen")
        return refused

    def discard(self, messages: list[Message], reason: str) -> None:
        """Drop undelivered messages, dead-lettering them if configured."""
        if not messages:
            return
        self._forget(messages)
        if self.limits.dead_letter_exchange is not None:
            self._dead_letters.publish(self, messages, reason)
        else:
            self._dead_letters.count_discarded(self, len(messages), reason)
            settle_stored(messages)

    # --- the store ---

    def _store(self, messages: list[Message]) -> None:
        """Store the persistent messages."""
        journal = self._journal
        if journal is None:
            return
        # Numbers of transient and settled messages leave no trace in the log. A block of numbers reserved ahead keeps a
        # start after a crash from using a number twice.
        if self._next_seq > self._reserved_seq:
            self._reserved_seq = self._next_seq + SEQUENCE_BLOCK
            journal.put(SEQUENCE, str(self.id), self._reserved_seq)
        stored = messages if self.always_durable else persistent(messages)
        if stored:
            journal.append(self.id, stored)
        if stored is not messages:
            self._unstored.add(messages, stored)

    def _forget(self, messages: list[Message]) -> None:
        """Stop counting departed messages as transient or paged."""
        if self.retries is not None:
            self.retries.resting.forget(messages)
        if self._barriers is not None and self._barriers.markers.placed:
            self._barriers.markers.passed(messages)
        if self._present is not None:
            self._present.forget(messages)
        if self._unstored.count:
            self._unstored.forget(messages, paged=bool(self.taken.paged))
        if self.taken.paged:
            self.taken.not_paged(of_body(messages, PAGED))

    def _prepare(self, messages: list[Message]) -> None:
        """Prepare messages read from the store for this queue."""
        for message in messages:
            message.queue = self


def _apart(message: Message) -> Message:
    """Return a copy of a message in a second queue; the message may have been delivered before a crash."""
    apart = message.copy()
    apart.expires_at, apart.redelivered = message.expires_at, message.redelivered
    return apart
