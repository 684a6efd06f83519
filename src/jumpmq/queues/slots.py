"""Ready messages by slot (``x-slots``): order per key in one queue, and a blocked key costs the others nothing.

A message's key falls into one of the queue's slots by its hash. Each slot in use has :class:`ReadyMessages` of its own,
where all is as in a queue without slots: paging, returning to a place, expiry at the front. Slots that have ready
messages, and fewer unacknowledged ones than ``x-in-flight-per-slot``, wait for their turn in the ring of a
:class:`Share`; what is taken goes round that ring. A slot that has nothing to give is in no ring, so that it is never
looked at::

    idle       nothing ready                                     | in no ring
    blocked    as many unacknowledged as may be                  | in no ring
    withheld   it was given to nobody                            | in no ring
    reading    what is next is being read back from the store    | in no ring
    waiting    else                                              | in the ring of the share that it was given to

All slots are in one share, unless some are given to others (:meth:`SlottedMessages.give`).
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from heapq import heapify, heappop, heappush, merge
from itertools import islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from jumpmq.amqp.messages import Message, hash_keys
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import xxh64
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.head import RUN
from jumpmq.queues.leftovers import AllLeftovers
from jumpmq.queues.memory import OVERHEAD, MemoryAccount
from jumpmq.queues.ready import NO_SEQ, PAGED_AT_ONCE, ReadyMessages, for_nobody, nobody_waits
from jumpmq.queues.runs import body_octets, by_slot, count_slots, octets, set_slots
from jumpmq.store import Batch

MAX_SLOTS = 1024

DEFAULT_KEY = "routing-key"

SEED = 0x4A756D704D515331
"""Of the slots' hash, so that it is independent of that of other systems: the octets ``JumpMQS1``."""

_seq = attrgetter("seq")


def slot_of(key: bytes, slots: int) -> int:
    """The slot of a key, 0 to ``slots`` - 1: XXH64 of its octets with :data:`SEED`, modulo the slots."""
    return xxh64(key, SEED) % slots


class SlotKey:
    """What of a message is the key of its slot (``x-slot-key``).

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
        """The keys of messages; None where these are the routing keys.

        A header's key is its octets where it is a string, its decimal digits where it is an integer, else as exchanges
        with ``hash-header`` read it. A message without the header or property has the empty key.
        """
        if self._place is None:
            return None
        keys, _ = hash_keys(messages, self._place, self._name, b"")
        return [key if isinstance(key, bytes) else b"%d" % key for key in keys]


class SlotState(Enum):
    """What a slot is doing."""

    IDLE = "idle"
    BLOCKED = "blocked"
    READING = "reading"
    WITHHELD = "withheld"
    WAITING = "waiting"


class SlotFigures(NamedTuple):
    """What there is to show of a slot.

    Attributes:
        slot: its number.
        ready, unacknowledged: messages.
        oldest: when the first ready message was published, in seconds since the epoch; None where that is not in
            memory, or nothing is ready.
        state: what it is doing, as at the head of this module.
    """

    slot: int
    ready: int
    unacknowledged: int
    oldest: float | None
    state: SlotState


class Share:
    """Slots that take turns, apart from those of other shares.

    Attributes:
        ring: the slots that wait for their turn, the next first.
    """

    __slots__ = ("ring",)

    def __init__(self) -> None:
        self.ring: OrderedDict[int, None] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there is something to take."""
        return bool(self.ring)


class _Account:
    """The account of memory, and what of it is a queue's ready messages."""

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
    """Which slot's front is the lowest by something, without asking all: those that have changed since are asked."""

    __slots__ = ("_by_slot", "_heap", "_lists", "_value", "changed")

    def __init__(self, lists: Mapping[int, ReadyMessages], value: Callable[[ReadyMessages], float]) -> None:
        self._lists = lists
        self._value = value
        self._heap: list[tuple[float, int]] = []
        self._by_slot: dict[int, float] = {}
        self.changed = set(lists)

    def first(self) -> tuple[float, int] | None:
        """The lowest value, and its slot; None where there is nothing."""
        heap, by_slot = self._heap, self._by_slot
        for slot in self.changed:
            ready = self._lists[slot]
            value = self._value(ready) if len(ready) else 0
            if not value:  # nothing is ready, or what is never expires
                by_slot.pop(slot, None)
            elif by_slot.get(slot) != value:
                by_slot[slot] = value
                heappush(heap, (value, slot))
        self.changed.clear()
        if len(heap) > 2 * len(by_slot) + 64:
            heap[:] = [(value, slot) for slot, value in by_slot.items()]
            heapify(heap)
        while heap and by_slot.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None


class SlottedMessages:
    """Ready messages, a list for each slot in use. See :class:`ReadyMessages` for what is done with them.

    Messages that are taken count as unacknowledged of their slot until :meth:`settled` is told of them; those that
    leave undelivered (:meth:`take_expired`, :meth:`take_oldest`) do not.

    Args:
        slots: how many there are.
        key: see :class:`SlotKey`.
        limit: how many messages of a slot may be unacknowledged, 0 is any number.

    Attributes:
        share: the share of all slots that were given to no other.
        size: octets of all ready bodies.
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
        self.share = Share()
        self.size = 0
        self._key = SlotKey(key)
        self._reader = reader
        self._prepare = prepare
        self._account = _Account(account)
        self._arrived = arrived
        self._lists: dict[int, ReadyMessages] = {}
        self._count = 0
        self._held = array("I", bytes(4 * slots))
        # Slots of which what is next is being read back.
        self._reading: set[int] = set()
        # Whose each slot is, where it is not everybody's; None is nobody's.
        self._given: dict[int, Share | None] = {}
        # Kept from the first time that they are wanted.
        self._by_seq: _Fronts | None = None
        self._by_expiry: _Fronts | None = None
        self._paged_last = 0

    def __len__(self) -> int:
        return self._count

    @property
    def memory(self) -> int:
        return self._account.memory

    # --- whose turn it is ---

    def slot_of(self, key: bytes) -> int:
        """The slot that messages of this key are in."""
        return slot_of(key, self.slots)

    def give(self, slot: int, share: Share | None) -> None:
        """Have the slot's messages taken with this share's from now on; with None, with nobody's."""
        if (before := self._share_of(slot)) is not None:
            before.ring.pop(slot, None)
        self._given[slot] = share
        if share is self.share:
            del self._given[slot]
        self._queue_up(slot)

    def held(self, slot: int) -> int:
        """How many messages of the slot are unacknowledged."""
        return self._held[slot]

    def settled(self, messages: list[Message]) -> bool:
        """Messages that were taken are so no longer; returns whether slots that have ready ones may go on now."""
        count_slots(messages, self._held, -1)
        if not self.limit:
            return False
        freed = False
        for slot in {message.slot for message in messages}:
            freed |= self._queue_up(slot)
        return freed

    def _share_of(self, slot: int) -> Share | None:
        return self._given.get(slot, self.share) if self._given else self.share

    def _queue_up(self, slot: int) -> bool:
        """Have a slot wait for its turn, if it has something to give; returns whether it did not wait before."""
        ready = self._lists.get(slot)
        if ready is None or not len(ready) or slot in self._reading or (self.limit and self._held[slot] >= self.limit):
            return False
        share = self._share_of(slot)
        if share is None or slot in share.ring:
            return False
        share.ring[slot] = None
        return True

    # --- coming ---

    def _list(self, slot: int) -> ReadyMessages:
        ready = self._lists.get(slot)
        if ready is None:
            ready = self._lists[slot] = ReadyMessages(
                self._reader,
                partial(self._read_back, slot),
                self._account,  # type: ignore[arg-type]
                partial(self._on_read, slot),
            )
        return ready

    def _read_back(self, slot: int, messages: list[Message]) -> None:
        for message in messages:
            message.slot = slot
        self._prepare(messages)

    def _on_read(self, slot: int) -> None:
        self._reading.discard(slot)
        if self._queue_up(slot):
            self._arrived()

    def _note(self, slot: int, ready: ReadyMessages, count: int, size: int) -> None:
        """A slot had ``count`` messages with ``size`` octets before what was just done."""
        self._count += len(ready) - count
        self.size += ready.size - size
        self._note_front(slot)

    def _note_front(self, slot: int) -> None:
        if self._by_seq is not None:
            self._by_seq.changed.add(slot)
        if self._by_expiry is not None:
            self._by_expiry.changed.add(slot)

    def restore(self, batch: Batch, delivered_seq: int) -> None:
        """Add a stored batch behind all others. It is read: its keys are in its messages."""
        assert self._reader is not None
        messages = self._reader.read(batch)
        for message in messages:
            message.redelivered = message.seq <= delivered_seq
        self._prepare(messages)
        self.extend(messages, 0)

    def extend(self, messages: list[Message], size: int) -> None:
        set_slots(messages, self._key.keys(messages), self.slots, SEED)
        groups = by_slot(messages)
        if not self._account.tight:
            groups = self._extend_heads(groups)
        for slot, group in groups.items():
            ready = self._list(slot)
            count, before = len(ready), ready.size
            ready.extend(group, body_octets(group))
            self._note(slot, ready, count, before)
            self._queue_up(slot)

    def _extend_heads(self, groups: dict[int, list[Message]]) -> dict[int, list[Message]]:
        """Add messages to the slots that are in memory as a whole, charged at once; returns those of the others."""
        lists, others, charged, ring = self._lists, {}, 0, self.share.ring
        fronts = self._by_seq is not None or self._by_expiry is not None
        for slot, group in groups.items():
            ready = lists[slot] if slot in lists else self._list(slot)
            size, held = octets(group)
            held += OVERHEAD * len(group)
            if not ready.extend_head(group, size, held):
                others[slot] = group
                continue
            charged += held
            self.size += size
            self._count += len(group)
            if fronts:
                self._note_front(slot)
            if slot not in ring:
                self._queue_up(slot)
        self._account.charge("ready", charged)
        return others

    def put_back(self, messages: list[Message]) -> None:
        for slot, group in by_slot(messages).items():
            ready = self._list(slot)
            count, before = len(ready), ready.size
            ready.put_back(group)
            self._reading.discard(slot)
            self._note(slot, ready, count, before)
            self._queue_up(slot)

    # --- taking ---

    def take(self, count: int, share: Share | None = None) -> list[Message]:
        """Remove and return up to ``count`` messages of a share's slots, of all that were given to no other unless it
        is named, in turn."""
        for slot in list(self._reading):  # who asks so does not wait for what is being read
            self._reading.discard(slot)
            self._queue_up(slot)
        return self._take(count, 1 << 62, self.share if share is None else share, ReadyMessages.take)

    def take_octets(self, count: int, most: int, share: Share | None = None) -> list[Message]:
        """As :meth:`take`, but as few as hold ``most`` octets, and what is in memory; see :class:`ReadyMessages`."""
        return self._take(count, most, self.share if share is None else share, None)

    def _take(
        self, count: int, most: int, share: Share, take: Callable[[ReadyMessages, int], list[Message]] | None
    ) -> list[Message]:
        ring, lists, held, limit = share.ring, self._lists, self._held, self.limit
        taken: list[Message] = []
        released = turns = part = 0
        fronts = self._by_seq is not None or self._by_expiry is not None
        while ring and count > 0 and most > 0:
            if not turns:  # another round, in which each has an equal part
                turns, part = len(ring), -(-count // len(ring))
            turns -= 1
            slot, _ = ring.popitem(last=False)
            some = min(part, count, limit - held[slot]) if limit else min(part, count)
            ready = lists[slot]
            if ready.memory <= most and (head := ready.take_head(some)) is not None:
                found, size, memory = head
                released += memory
                most -= memory
                taken += found
                count -= len(found)
                held[slot] += len(found)
                self._count -= len(found)
                self.size -= size
                if fronts:
                    self._note_front(slot)
                if ready.memory and (not limit or held[slot] < limit):
                    ring[slot] = None
                continue
            before, size = len(ready), ready.size
            found = ready.take_octets(some, most) if take is None else take(ready, some)
            self._note(slot, ready, before, size)
            if found:
                taken += found
                count -= len(found)
                held[slot] += len(found)
                if take is None:
                    most -= octets(found)[1]
            elif len(ready) and take is None:
                self._reading.add(slot)
                continue
            self._queue_up(slot)
        if released:
            self._account.charge("ready", -released)
        return taken

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages numbered ``first_seq`` to ``last_seq``, the lowest of all slots
        first, whosever the slots are."""
        from_front = first_seq <= 1
        taken = self._take_oldest(last_seq, count) if from_front else self._take_between(first_seq, last_seq, count)
        count_slots(taken, self._held, 1)
        return taken

    def take_oldest(self, count: int) -> list[Message]:
        """Remove and return the oldest messages of the queue; they are not counted as unacknowledged."""
        return self._take_oldest(NO_SEQ, count)

    def _take_oldest(self, last_seq: int, count: int) -> list[Message]:
        if self._by_seq is None:
            self._by_seq = _Fronts(self._lists, ReadyMessages.first_seq)
        fronts = self._by_seq
        taken: list[Message] = []
        while len(taken) < count and (first := fronts.first()) is not None and first[0] <= last_seq:
            # So many numbers, so many messages at most: slots may give all that they have of these.
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
        ready = self._lists[slot]
        before, size = len(ready), ready.size
        taken = ready.take_range(first_seq, last_seq, count)
        self._note(slot, ready, before, size)
        self._forget_idle(slot, ready)
        return taken

    def take_expired(self, now: float, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages at the fronts of slots that expire by ``now``."""
        taken: list[Message] = []
        while len(taken) < count and (first := self._first_to_expire()) is not None and first[0] <= now:
            ready = self._lists[first[1]]
            before, size = len(ready), ready.size
            taken += ready.take_expired(now, count - len(taken))
            self._note(first[1], ready, before, size)
            self._forget_idle(first[1], ready)
        return taken

    def _forget_idle(self, slot: int, ready: ReadyMessages) -> None:
        if not len(ready):
            self._reading.discard(slot)
            if (share := self._share_of(slot)) is not None:
                share.ring.pop(slot, None)

    # --- looking ---

    def _first_to_expire(self) -> tuple[float, int] | None:
        if self._by_expiry is None:
            self._by_expiry = _Fronts(self._lists, ReadyMessages.first_expiry)
        return self._by_expiry.first()

    def first_expiry(self) -> float:
        """When the first of the fronts of all slots expires, 0 is never."""
        first = self._first_to_expire()
        return 0.0 if first is None else first[0]

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        merged = self._merged(first_seq, last_seq)
        return iter(lambda: list(islice(merged, RUN)), [])

    def _merged(self, first_seq: int, last_seq: int) -> Iterator[Message]:
        return merge(*(_each(ready, first_seq, last_seq) for ready in self._lists.values() if len(ready)), key=_seq)

    def front(self) -> Message | None:
        """The first message of the slot that is next, if it is in memory."""
        slot = next(iter(self.share.ring), None)
        return None if slot is None else self._lists[slot].front()

    def figures(self) -> Iterator[SlotFigures]:
        """Of each slot that has messages, by number."""
        for slot in range(self.slots):
            if self._held[slot] or ((ready := self._lists.get(slot)) is not None and len(ready)):
                yield self.figures_of(slot)

    def figures_of(self, slot: int) -> SlotFigures:
        ready, held = self._lists.get(slot), self._held[slot]
        front = None if ready is None else ready.front()
        oldest = None if front is None else front.published_at
        return SlotFigures(slot, 0 if ready is None else len(ready), held, oldest, self._state(slot))

    def _state(self, slot: int) -> SlotState:
        ready = self._lists.get(slot)
        if ready is None or not len(ready):
            return SlotState.IDLE
        if self.limit and self._held[slot] >= self.limit:
            return SlotState.BLOCKED
        if self._share_of(slot) is None:
            return SlotState.WITHHELD
        return SlotState.READING if slot in self._reading else SlotState.WAITING

    def before(self, slot: int) -> int:
        """How many slots have their turn before this one, which waits for its."""
        share = self._share_of(slot)
        return 0 if share is None else sum(1 for _ in takewhile(slot.__ne__, share.ring))

    def in_memory(self) -> tuple[int, int]:
        return _sums(ready.in_memory() for ready in self._lists.values())

    def spilled(self) -> tuple[int, int]:
        return _sums(ready.spilled() for ready in self._lists.values())

    def measure(self, segments: int) -> bool:
        return True  # all batches were read

    # --- leaving, and memory ---

    def leave(self) -> AllLeftovers:
        left = AllLeftovers([ready.leave() for ready in self._lists.values()])
        for ready in self._lists.values():
            ready.close()
        self._lists.clear()
        self._reading.clear()
        self._count = self.size = 0
        self._by_seq = self._by_expiry = None
        for share in {self.share, *self._given.values()} - {None}:
            assert share is not None
            share.ring.clear()
        return left

    def close(self) -> None:
        for ready in self._lists.values():
            ready.close()
        self._prepare, self._arrived = for_nobody, nobody_waits

    def page_out(self, kept: int) -> int:
        """As :meth:`ReadyMessages.page_out`, one slot after the other, each with a part of ``kept``."""
        lists = [ready for slot, ready in sorted(self._lists.items()) if len(ready)]
        done, each = 0, kept // max(len(lists), 1)
        for place in range(len(lists)):
            done += lists[(self._paged_last + place) % len(lists)].page_out(each)
            if done >= PAGED_AT_ONCE:
                self._paged_last += place + 1
                break
        return done


def _each(ready: ReadyMessages, first_seq: int, last_seq: int) -> Iterator[Message]:
    for messages in ready.between(first_seq, last_seq):
        yield from messages


def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    found = list(pairs)
    return sum(first for first, _ in found), sum(second for _, second in found)
