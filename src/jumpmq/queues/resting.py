"""Returned messages resting in their queue until the next try (``x-delayed-retry-type``, RabbitMQ 4.3).

A message that rests is held by its queue as a delivery is by a consumer: it is no longer ready, counts as
unacknowledged, can be paged, and does not expire. When it is due it returns to its place.

**Where messages have keys, a key rests while a message of it rests.** What of the key is taken for a delivery
meanwhile is held, too, behind it. When the key is due, its messages return to their places together, in order; where
they are many, some at a time: then messages up to :attr:`_Key.passing` pass, and later ones are held until their turn.
So nothing of a key is delivered before what it waits for, and to look for what may go on costs each message of a
resting key one step.

When a message rests, the journal notes until when, and how often it came back, until it is settled. After a restart it
is ready at first, and rests again when it would be delivered, before anything of its key that is behind it. So it is
where its queue has moved to: a header (:data:`HEADER`) carries the note there.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from math import ceil
from typing import Any, NamedTuple

from jumpmq.amqp.fields import Field
from jumpmq.amqp.frames import with_entries
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues.by_number import ByNumber

MAX_KEYS = 100_000
"""Maximum number of resting keys of a queue; a message of a further key returns at once. Messages resting alone do not
count."""

MAX_HELD = 1_000_000
"""Maximum number of messages of a queue that rest or wait behind a resting message; at the maximum, the queue delivers
nothing until some are due.
"""

GRID = 1000 / 16
"""Times a second at which messages that rest alone go on."""

CORRECTED = 100
"""Keys looked at together that were to go on, and of which a message has come back since."""

FREED = 10_000
"""Numbers of a deleted queue freed together."""

LOOKED_THROUGH = 1000
"""Numbers looked through together where most are of messages that no longer rest."""

Key = bytes | float
"""A key; for messages resting alone, the due time (:func:`alone`): those of 16 ms share an object."""

Noted = tuple[float, int]
"""When a message is due, and how often it came back."""

HEADER = "x-jumpmq-retry"
"""Header of a message on the way to its queue's new home: until when it rests, and how often it came back.

Removed on arrival; of several the last counts, as publishers may send headers of this name.
"""

NAMED = HEADER.encode()


def alone(due: float) -> float:
    """Key of a message that rests alone; those of 16 ms go on together."""
    return ceil(due * GRID) / GRID


class _Key:
    """Messages resting together.

    Attributes:
        due: when it goes on, by :mod:`~jumpmq.queues.clock`.
        first: number of the message that came back last, for which the others wait.
        held: numbers of those that are held, a heap.
        passing: up to which number messages are delivered, while the others return in steps.
        since: how often all were hastened before a message of it came back last.
    """

    __slots__ = ("due", "first", "held", "passing", "since")

    def __init__(self, due: float, first: int, since: int) -> None:
        self.due, self.first, self.since = due, first, since
        self.held: list[int] = []
        self.passing = 0


class _Hastened(NamedTuple):
    """Keys that go on now, unless a message came back since.

    Attributes:
        before: how often all had been hastened.
        heap: the keys, as in :attr:`Resting._by_due`.
    """

    before: int
    heap: "_ByDue"


_ByDue = list[tuple[float, int, Key]]
"""A heap of keys, each once, by a time at which the key is due, or by an earlier one."""


class Resting:
    """Resting messages of a queue.

    Args:
        record: notes of a message, by its number, until when it rests and how often it came back; None forgets it.

    Attributes:
        held: the messages, by number.
        keys: how many keys rest.
    """

    def __init__(self, record: Callable[[int, Noted | None], None]) -> None:
        self.held = ByNumber[Message]()
        self.keys = 0
        self._record = record
        self._keys: dict[Key, _Key] = {}
        self._by_due: _ByDue = []  # all others
        self._hastened: deque[_Hastened] = deque()
        self._hastenings = 0  # how often all were
        self._pushed = 0  # tells entries of one time apart
        self._noted = ByNumber[Noted]()  # what is recorded
        self._has_rested = False  # whether messages are ready that are to rest as they did before a restart
        self._to_page: deque[int] = deque()  # numbers of messages whose bodies may be in memory, and of some gone

    def restore(self, noted: dict[int, list[Any]]) -> None:
        """Load recorded retries."""
        for seq, (due, tries) in noted.items():
            self._noted[seq] = float(due), int(tries)
        self.rest_noted()

    @property
    def is_full(self) -> bool:
        """True if no more messages can be held."""
        return len(self.held) >= MAX_HELD

    @property
    def in_use(self) -> bool:
        """True if messages may be resting."""
        return bool(self._keys or len(self._noted))

    @property
    def next_due(self) -> float | None:
        """When the next goes on, or a time before; None where nothing rests."""
        if self._hastened:
            return 0.0
        for _ in range(CORRECTED):
            if not self._by_due:
                return None
            due, _, name = self._by_due[0]
            if self._keys[name].due <= due:
                return due
            heapreplace(self._by_due, self._entry(name))
        return self._by_due[0][0]

    def _entry(self, name: Key) -> tuple[float, int, Key]:
        self._pushed += 1
        return self._keys[name].due, self._pushed, name

    def note(self, seq: int, noted: Noted, *, recorded: bool) -> None:
        """Note until when a message rests that is not held.

        Args:
            recorded: whether that is to be known after a restart.
        """
        self._noted[seq] = noted
        if recorded:
            self._record(seq, noted)

    def rest_noted(self) -> None:
        """From now on a noted message rests instead of being delivered before its due time."""
        self._has_rested = True

    def noted(self, message: Message) -> Noted | None:
        """Return the due time and the number of returns of a message; None if it has not rested."""
        return self._noted.get(message.seq)

    def tries(self, message: Message) -> int:
        """Number of times a message was returned and rested."""
        noted = self._noted.get(message.seq)
        return 0 if noted is None else noted[1]

    def waiting_for(self, key: Key) -> tuple[int, float] | None:
        """The number of the message that a key waits for, and until when; None where the key does not rest."""
        found = self._keys.get(key)
        return None if found is None else (found.first, found.due)

    def due_of(self, seq: int) -> float:
        """When a message is due by itself."""
        noted = self._noted.get(seq)
        return 0.0 if noted is None else noted[0]

    def rest(self, message: Message, key: Key, due: float, tries: int, *, recorded: bool) -> bool:
        """Delay a message and the message's key. Return True if room is available.

        Args:
            tries: how often it came back.
            recorded: whether that is to be known after a restart, as the message is there then.
        """
        if self.is_full or (self.keys >= MAX_KEYS and isinstance(key, bytes) and key not in self._keys):
            return False
        self.note(message.seq, (due, tries), recorded=recorded)
        self._put(message, key, due)
        return True

    def _put(self, message: Message, key: Key, due: float) -> None:
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = _Key(due, message.seq, self._hastenings)
            self.keys += isinstance(key, bytes)
            heappush(self._by_due, self._entry(key))
        elif due > found.due or found.since < self._hastenings:
            found.due, found.first, found.since = due, message.seq, self._hastenings
        found.passing = 0
        self._hold(found, message)

    def _hold(self, key: _Key, message: Message) -> None:
        seq = message.seq
        heappush(key.held, seq)
        self.held[seq] = message
        self._to_page.append(seq)
        if len(self._to_page) > 2 * len(self.held) + LOOKED_THROUGH:
            some = [self._to_page.popleft() for _ in range(LOOKED_THROUGH)]
            self._to_page += [seq for seq in some if seq in self.held]

    def divert(
        self, messages: list[Message], keys: list[Key] | None, now: float
    ) -> tuple[list[Message], list[Message]]:
        """Split messages taken for delivery into deliverable and held messages.

        Args:
            keys: keys of the messages; None if each message rests alone.
        """
        alive: list[Message] = []
        kept: list[Message] = []
        for place, message in enumerate(messages):
            noted = self._noted.get(message.seq)
            found = None if keys is None else self._keys.get(keys[place])
            if noted is not None and self._has_rested and noted[0] > now:
                self._put(message, alone(noted[0]) if keys is None else keys[place], noted[0])
            elif found is not None and message.seq > found.passing:
                self._hold(found, message)
            else:
                alive.append(message)
                continue
            kept.append(message)
        return alive, kept

    def due(self, now: float, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages that go on by now."""
        found: list[Message] = []
        for _ in range(count):
            if len(found) == count or (due := self.next_due) is None or due > now:
                break
            heap = self._by_due
            if self._hastened:
                before, heap = self._hastened[0]
                if not heap:
                    self._hastened.popleft()
                    continue
                if self._keys[heap[0][2]].since > before:  # it rests anew
                    heappush(self._by_due, self._entry(heappop(heap)[2]))
                    continue
            elif self._keys[heap[0][2]].due > due:
                break  # the next step looks further
            self._release(heap, count - len(found), found)
        return found

    def _release(self, heap: _ByDue, count: int, found: list[Message]) -> None:
        """Move up to ``count`` messages of the heap's first key to those found."""
        name = heap[0][2]
        key = self._keys[name]
        for _ in range(min(len(key.held), count)):
            key.passing = heappop(key.held)
            found.append(self.held.take(key.passing))
        if not key.held:
            heappop(heap)
            del self._keys[name]
            self.keys -= isinstance(name, bytes)

    def hasten(self) -> int:
        """Release all resting messages now; return the number of held messages."""
        self._has_rested = False
        if self._by_due:
            self._hastened.append(_Hastened(self._hastenings, self._by_due))
            self._hastenings += 1
            self._by_due = []
        return len(self.held)

    def forget(self, messages: Iterable[Message]) -> None:
        """Messages are gone from the queue."""
        if len(self._noted):
            for message in messages:
                if self._noted.pop(message.seq) is not None:
                    self._record(message.seq, None)

    def forget_others(self) -> Iterator[None]:
        """All messages are gone from the queue that are not held: forget what is noted of them, in steps."""
        for seqs in self._noted.tables():
            for seq in seqs:
                if seq not in self.held and self._noted.pop(seq) is not None:
                    self._record(seq, None)
            yield

    def leave(self, let_go: Callable[[list[Message]], None]) -> Iterator[None]:
        """The queue is gone: forget all in steps. To be used no more.

        Args:
            let_go: takes what was held.
        """
        for seqs in self.held.tables():
            let_go([message for seq in seqs if (message := self.held.pop(seq)) is not None])
            yield
        numbers = [key.held for key in self._keys.values()]
        self._keys.clear()
        while self._to_page or numbers:  # to free a million numbers takes a while, too
            left = FREED
            for _ in range(min(left, len(self._to_page))):
                self._to_page.pop()
            while numbers and left > 0:
                left -= len(numbers[-1]) + 1
                del numbers[-1][-FREED:]
                if not numbers[-1]:
                    numbers.pop()
            yield
        yield from self.forget_others()

    def to_page(self, count: int) -> list[Message]:
        """Return up to ``count`` messages with bodies possibly in memory, without repetition."""
        some = {self._to_page.popleft() for _ in range(min(count, len(self._to_page)))}
        return [message for seq in sorted(some) if (message := self.held.get(seq)) is not None]

    def page_again(self, messages: Iterable[Message]) -> None:
        """Note messages with bodies still in memory."""
        self._to_page += [message.seq for message in messages]


def carrying(properties: bytes, noted: Noted | None) -> bytes:
    """Return a property list with a note for the queue's new home; None says that there is none."""
    text = b"" if noted is None else f"{noted[0]!r} {noted[1]}".encode()
    return with_entries(properties, bytes((len(NAMED),)) + NAMED + b"S" + len(text).to_bytes(4) + text)


def carried(octets: bytes) -> tuple[bytes, Noted | None]:
    """Return a property list without the note of :func:`carrying`, and the note."""
    properties = Properties.parse(octets)
    headers = properties.headers or []
    place = max((place for place, field in enumerate(headers) if field.name == HEADER), default=None)
    if place is None:
        return octets, None
    noted = _read(headers.pop(place))
    properties.headers = headers or None
    return properties.encode(), noted


def _read(field: Field) -> Noted | None:
    """Parse a note; a peer of an earlier version may pass on any value that a publisher has sent."""
    due, _, tries = str(field.value).partition(" ")
    try:
        return float(due), int(tries)
    except ValueError:
        return None
