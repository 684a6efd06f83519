"""Ready messages by slot (``x-slots``): order per key in one queue, without blocked keys delaying the rest.

The hash of a message's key selects one of the queue's slots. While all messages of a slot are in memory and in order,
they are in a lane of the kernel (:mod:`jumpmq.queues._lanes`). Otherwise the slot is *apart*: it has
:class:`ReadyMessages`, whose head is that lane, with the features of a queue without slots: paging, return to a
position, expiry at the front.

Slots with ready messages, and with fewer unacknowledged ones than ``x-in-flight-per-slot``, wait for their turn in the
ring of a :class:`Share`; messages are taken round that ring. Other slots are in no ring, and are never examined::

    idle       no ready message                                  | in no ring
    blocked    maximum number of unacknowledged messages         | in no ring
    withheld   given to no share                                 | in no ring
    reading    the next messages are being read from the store   | in no ring
    waiting    otherwise                                         | in the ring of its share

All slots are in one share, except slots given to other shares (:meth:`SlottedMessages.give`).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from operator import attrgetter

from jumpmq.amqp.messages import Message, hash_keys
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import xxh64
from jumpmq.queues._lanes import Lanes, Share
from jumpmq.queues.any_ready import NO_SEQ, AnyReady, each, sums
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.head import RUN
from jumpmq.queues.leftovers import AllLeftovers
from jumpmq.queues.memory import OVERHEAD, MemoryAccount
from jumpmq.queues.ready import ReadyMessages
from jumpmq.queues.runs import body_octets, by_slot, set_slots
from jumpmq.queues.slot_states import SlotStates
from jumpmq.queues.tail import PAGED_AT_ONCE
from jumpmq.store.layout import octets

__all__ = ["MAX_SLOTS", "Share", "SlottedMessages"]

MAX_SLOTS = 1024

DEFAULT_KEY = "routing-key"

SEED = 0x4A756D704D515331
"""Seed of the slots' hash, for independence from further systems' hashes: the octets ``JumpMQS1``."""

_seq = attrgetter("seq")


def slot_of(key: bytes, slots: int) -> int:
    """Return the slot of a key, 0 to ``slots`` - 1: XXH64 of its octets with :data:`SEED`, modulo the number of
    slots.
    """
    return xxh64(key, SEED) % slots


class SlotKey:
    """The part of a message used as slot key (``x-slot-key``).

    Args:
        text: ``routing-key``, ``message-id``, ``correlation-id`` or ``header:NAME``.
    """

    def __init__(self, text: str) -> None:
        kind, _, name = text.partition(":")
        self._name = name.encode()
        self._place = {
            "routing-key": None,
            "message-id": Properties.place("message_id"),
            "correlation-id": Properties.place("correlation_id"),
            "header": Properties.place("headers"),
        }[kind]

    def keys(self, messages: list[Message]) -> list[bytes] | None:
        """Return the slot keys of messages; None for routing keys.

        The key of a header is its octets for a string, its decimal digits for an integer, and otherwise as for
        exchanges with ``hash-header``. A message without the header or property has the empty key.
        """
        if self._place is None:
            return None
        keys, _ = hash_keys(messages, self._place, self._name, b"")
        return [key if isinstance(key, bytes) else b"%d" % key for key in keys]


class _Account:
    """The memory account, and the part of it for a queue's ready messages."""

    __slots__ = ("_account", "memory")

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self.memory = 0

    def charge(self, kind: str, octets: int) -> None:
        if kind == "ready":
            self.memory += octets
        self._account.charge(kind, octets)

    def move(self, source: str, target: str, octets: int) -> None:
        self.memory -= octets
        self._account.move(source, target, octets)

    @property
    def tight(self) -> bool:
        return self._account.tight


class _Fronts:
    """Minimum over the slots' fronts, updated lazily for changed slots."""

    __slots__ = ("_by_slot", "_heap", "_lists", "_value", "changed")

    def __init__(self, lists: Mapping[int, ReadyMessages], value: Callable[[ReadyMessages], float]) -> None:
        self._lists = lists
        self._value = value
        self._heap: list[tuple[float, int]] = []
        self._by_slot: dict[int, float] = {}
        self.changed = set(lists)

    def first(self) -> tuple[float, int] | None:
        """Return the lowest value with its slot; None if empty."""
        heap, by_slot = self._heap, self._by_slot
        for slot in self.changed:
            ready = self._lists[slot]
            value = self._value(ready) if len(ready) else 0
            if not value:  # nothing is ready, or nothing expires
                by_slot.pop(slot, None)
            elif by_slot.get(slot) != value:
                by_slot[slot] = value
                heappush(heap, (value, slot))
        self.changed.clear()
        # Outdated entries are skipped, not removed: without a bound they would fill the memory.
        if len(heap) > 2 * len(by_slot) + 64:
            heap[:] = [(value, slot) for slot, value in by_slot.items()]
            heapify(heap)
        while heap and by_slot.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None


class SlottedMessages(AnyReady):
    """Ready messages in slots.

    Taken messages count as unacknowledged in their slot until :meth:`settled`; messages that leave undelivered
    (:meth:`take_expired`, :meth:`take_oldest`) do not.

    Args:
        slots: number of slots.
        key: see :class:`SlotKey`.
        limit: maximum number of unacknowledged messages per slot; 0 for no limit.

    Attributes:
        share: the share of all slots that were not given to another share.
        states: the states of the slots.
    """

    def __init__(
        self,
        reader: BatchReader | None,
        prepare: Callable[[list[Message]], None],
        account: MemoryAccount,
        arrived: Callable[[], None],
        slots: int,
        key: str = DEFAULT_KEY,
        limit: int = 0,
    ) -> None:
        self.slots = slots
        self.limit = limit
        self._lanes = Lanes(slots, limit, OVERHEAD)
        self.share = self._lanes.share
        self._key = SlotKey(key)
        self._reader = reader
        self._prepare = prepare
        self._account = _Account(account)
        self._arrived = arrived
        # Messages of slots that are apart, or were, with the totals of messages and octets of bodies.
        self._lists: dict[int, ReadyMessages] = {}
        self._count = self._size = 0
        # Slots whose next messages are being read.
        self._reading: set[int] = set()
        self.states = SlotStates(self._lanes, self._lists, self._reading)
        # Kept from the first use until no message is ready: all used slots are apart then.
        self._by_seq: _Fronts | None = None
        self._by_expiry: _Fronts | None = None
        self._paged_last = 0

    def __len__(self) -> int:
        return self._lanes.count + self._count

    @property
    def size(self) -> int:
        return self._lanes.size + self._size

    @property
    def memory(self) -> int:
        return self._account.memory

    # --- whose turn it is ---

    def slot_of(self, key: bytes) -> int:
        """Return the slot of a key."""
        return slot_of(key, self.slots)

    def give(self, slot: int, share: Share | None) -> None:
        """Assign the slot to a share; None for no share."""
        self._lanes.give(slot, share)
        self._queue_up(slot)

    def held(self, slot: int) -> int:
        """Return the number of unacknowledged messages of the slot."""
        return self._lanes.held_of(slot)

    def settled(self, messages: list[Message]) -> bool:
        """Handle settled messages; return True if slots with ready messages may proceed."""
        freed, apart = self._lanes.settle(messages)
        for slot in apart:
            freed |= self._queue_up(slot)
        return freed

    def _queue_up(self, slot: int) -> bool:
        """Enqueue a slot with available messages in its ring; return False if already waiting."""
        return self._has_something(slot) and self._lanes.queue_up(slot)

    def _has_something(self, slot: int) -> bool:
        if self._lanes.is_apart(slot):
            return len(self._lists[slot]) > 0 and slot not in self._reading
        return self._lanes.length(slot) > 0

    # --- slots that are apart ---

    def _apart(self, slot: int) -> ReadyMessages:
        """Return the messages of a slot that is apart from now on; call :meth:`_note` afterwards."""
        ready = self._lists.get(slot)
        if ready is not None and self._lanes.is_apart(slot):
            return ready
        lane, size, held = self._lanes.set_apart(slot)
        if ready is None:
            ready = self._lists[slot] = ReadyMessages(
                self._reader,
                partial(self._read_back, slot),
                self._account,  # type: ignore[arg-type]
                partial(self._on_read, slot),
                head=lane,
            )
        ready.size, ready.memory = size, held
        self._count += len(ready)
        self._size += size
        return ready

    def _note(self, slot: int, ready: ReadyMessages, count: int, size: int) -> None:
        """Update the totals after a change to a separated slot that had ``count`` messages with ``size`` octets."""
        self._count += len(ready) - count
        self._size += ready.size - size
        if self._by_seq is None and self._by_expiry is None:
            # Without a tail and without returned messages, the lane has all messages of the slot again.
            if ready.is_plain and not self._account.tight:
                self._count -= len(ready)
                self._size -= ready.size
                self._lanes.rejoin(slot, ready.size, ready.memory)
        else:
            if self._by_seq is not None:
                self._by_seq.changed.add(slot)
            if self._by_expiry is not None:
                self._by_expiry.changed.add(slot)
            if not len(self):
                self._by_seq = self._by_expiry = None

    def _all_apart(self) -> None:
        for slot in self._lanes.filled():
            self._apart(slot)

    def _read_back(self, slot: int, messages: list[Message]) -> None:
        for message in messages:
            message.slot = slot
        self._prepare(messages)

    def _on_read(self, slot: int) -> None:
        self._reading.discard(slot)
        if self._queue_up(slot):
            self._arrived()

    # --- coming ---

    def keys_of(self, messages: list[Message]) -> list[bytes]:
        """Return the keys by which messages are assigned to slots."""
        keys = self._key.keys(messages)
        return [message.routing_key for message in messages] if keys is None else keys

    def set_slots(self, messages: list[Message]) -> None:
        """Set the slots of new messages."""
        set_slots(messages, self._key.keys(messages), self.slots, SEED)

    def extend(self, messages: list[Message], size: int) -> None:
        self.set_slots(messages)
        if not (self._account.tight or self._by_seq is not None or self._by_expiry is not None):
            messages, held = self._lanes.add(messages)
            self._account.charge("ready", held)
        if not messages:
            return
        for slot, group in by_slot(messages).items():
            ready = self._apart(slot)
            count, before = len(ready), ready.size
            ready.extend(group, body_octets(group))
            self._note(slot, ready, count, before)
            self._queue_up(slot)

    def put_back(self, messages: list[Message]) -> None:
        for slot, group in by_slot(messages).items():
            ready = self._apart(slot)
            count, before = len(ready), ready.size
            ready.put_back(group)
            self._reading.discard(slot)
            self._note(slot, ready, count, before)
            self._queue_up(slot)

    # --- taking ---

    def take(self, count: int, share: Share | None = None) -> list[Message]:
        """Take up to ``count`` messages of a share's slots in turn; without share, of unassigned slots."""
        for slot in list(self._reading):  # the caller does not wait for messages being read
            self._reading.discard(slot)
            self._queue_up(slot)
        return self._take(count, 1 << 62, self.share if share is None else share, ReadyMessages.take)

    def take_octets(self, count: int, most: int, share: Share | None = None) -> list[Message]:
        """As :meth:`AnyReady.take_octets`, of a share as :meth:`take`."""
        return self._take(count, most, self.share if share is None else share, None)

    def _take(
        self, count: int, most: int, share: Share, take: Callable[[ReadyMessages, int], list[Message]] | None
    ) -> list[Message]:
        def take_apart(slot: int, count: int, most: int) -> tuple[list[Message], int, bool]:
            ready = self._lists[slot]
            before, size = len(ready), ready.size
            found = ready.take_octets(count, most) if take is None else take(ready, count)
            waits = not found and len(ready) > 0 and take is None
            if waits:
                self._reading.add(slot)
            self._note(slot, ready, before, size)
            return found, octets(found)[1] if take is None else 0, not waits and self._has_something(slot)

        taken, held = self._lanes.take(share, count, most, take_apart)
        if held:
            self._account.charge("ready", -held)
        return taken

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from ``first_seq`` to ``last_seq``, the lowest of all slots
        first, whatever share the slots belong to.
        """
        from_front = first_seq <= 1
        taken = self._take_oldest(last_seq, count) if from_front else self._take_between(first_seq, last_seq, count)
        self._lanes.hold(taken)
        return taken

    def take_oldest(self, count: int, last_seq: int = NO_SEQ) -> list[Message]:
        """Remove and return the oldest messages of the queue, none beyond ``last_seq``; they are not counted as
        unacknowledged."""
        return self._take_oldest(last_seq, count)

    def _take_oldest(self, last_seq: int, count: int) -> list[Message]:
        fronts = self._fronts()
        taken: list[Message] = []
        while len(taken) < count and (first := fronts.first()) is not None and first[0] <= last_seq:
            # At most one message per number: slots may return all their messages of this range.
            last = min(int(first[0]) + count - len(taken) - 1, last_seq)
            window: list[Message] = []
            while first is not None and first[0] <= last:
                window += self._take_from(first[1], 0, last, count)
                first = fronts.first()
            taken += sorted(window, key=_seq)
        return taken

    def _take_between(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        wanted: dict[int, list[int]] = {}
        for message in islice(self._merged(first_seq, last_seq), count):
            wanted.setdefault(message.slot, []).append(message.seq)
        taken: list[Message] = []
        for slot, seqs in wanted.items():
            taken += self._take_from(slot, seqs[0], seqs[-1], len(seqs))
        return sorted(taken, key=_seq)

    def _take_from(self, slot: int, first_seq: int, last_seq: int, count: int) -> list[Message]:
        ready = self._apart(slot)
        before, size = len(ready), ready.size
        taken = ready.take_range(first_seq, last_seq, count)
        self._note(slot, ready, before, size)
        self._forget_idle(slot)
        return taken

    def take_expired(self, now: float, count: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count and (first := self._first_to_expire()) is not None and first[0] <= now:
            ready = self._apart(first[1])
            before, size = len(ready), ready.size
            taken += ready.take_expired(now, count - len(taken))
            self._note(first[1], ready, before, size)
            self._forget_idle(first[1])
        return taken

    def _forget_idle(self, slot: int) -> None:
        if not self._has_something(slot):
            self._reading.discard(slot)
            self._lanes.step_back(slot)

    # --- looking ---

    def _fronts(self) -> _Fronts:
        if self._by_seq is None:
            self._all_apart()
            self._by_seq = _Fronts(self._lists, ReadyMessages.first_seq)
        return self._by_seq

    def first_seq(self) -> int:
        first = self._fronts().first()
        assert first is not None
        return int(first[0])

    def count_upto(self, last_seq: int) -> int:
        self._all_apart()
        return sum(ready.count_upto(last_seq) for ready in self._lists.values())

    def _first_to_expire(self) -> tuple[float, int] | None:
        if not len(self):
            return None
        if self._by_expiry is None:
            self._all_apart()
            self._by_expiry = _Fronts(self._lists, ReadyMessages.first_expiry)
        return self._by_expiry.first()

    def first_expiry(self) -> float:
        first = self._first_to_expire()
        return 0.0 if first is None else first[0]

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        merged = self._merged(first_seq, last_seq)
        return iter(lambda: list(islice(merged, RUN)), [])

    def _merged(self, first_seq: int, last_seq: int) -> Iterator[Message]:
        self._all_apart()
        return merge(*(each(ready, first_seq, last_seq) for ready in self._lists.values() if len(ready)), key=_seq)

    def front(self) -> Message | None:
        """Return the first message of the next slot, if in memory."""
        ring = self._lanes.ring(self.share)
        return self.states.front(ring[0]) if ring else None

    def _lists_apart(self) -> list[ReadyMessages]:
        return [ready for slot, ready in sorted(self._lists.items()) if self._lanes.is_apart(slot)]

    def in_memory(self) -> tuple[int, int]:
        count, size = sums(ready.in_memory() for ready in self._lists_apart())
        return count + self._lanes.count, size + self._lanes.size

    def spilled(self) -> tuple[int, int]:
        return sums(ready.spilled() for ready in self._lists_apart())

    # --- leaving, and memory ---

    def leave(self) -> AllLeftovers:
        self._all_apart()
        left = AllLeftovers([ready.leave() for ready in self._lists_apart()])
        for ready in self._lists.values():
            ready.close()
        self._lists.clear()
        self._lanes.reset()
        self._reading.clear()
        self._count = self._size = 0
        self._by_seq = self._by_expiry = None
        return left

    def close(self) -> None:
        for ready in self._lists.values():
            ready.close()
        super().close()

    def page_out(self, kept: int) -> int:
        # Slot by slot, with a part of ``kept`` per slot.
        filled = [slot for slot in range(self.slots) if self.states.ready(slot)]
        done, each = 0, kept // max(len(filled), 1)
        # Behind the slot where the last step has ended, so that all slots have their turn.
        for place in range(len(filled)):
            done += self._apart(filled[(self._paged_last + place) % len(filled)]).page_out(each)
            if done >= PAGED_AT_ONCE:
                self._paged_last += place + 1
                break
        return done
