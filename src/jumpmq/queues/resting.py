"""Returned messages resting in their queue until the next try (``x-delayed-retry-type``, RabbitMQ 4.3).

The queue holds a resting message as a consumer holds a delivery: the message is not ready, counts as unacknowledged,
can be paged, and does not expire. When it is due, it returns to its position.

**If messages have keys, a key rests while a message of it rests.** Later messages of the key are held, too, when they
would be delivered. When the key is due, its messages return to their positions together, in order. If there are many,
they return in steps: messages up to :attr:`_Key.passing` are delivered, later ones are held until their step. No
message of a key thus overtakes a resting one, and each message of a resting key costs one additional step.

For each resting message, the journal records the due time and the number of returns, until the message is settled.
After a restart the message is ready at first, and rests again when it would be delivered, before all later messages of
its key. A queue that moves carries the same data in a header (:data:`HEADER`).
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
"""Maximum number of resting keys of a queue; a message of a further key returns at once. Messages that rest alone do
not count.
"""

MAX_HELD = 1_000_000
"""Maximum number of messages of a queue that rest or wait behind a resting message. At the maximum, the queue
delivers nothing until some messages are due.
"""

GRID = 1000 / 16
"""Number of times per second at which messages that rest alone are released."""

CORRECTED = 100
"""Number of released keys examined together that are resting again, because a message of theirs came back."""

FREED = 10_000
"""Numbers of a deleted queue freed per step."""

LOOKED_THROUGH = 1000
"""Numbers examined per step if most of them belong to messages that no longer rest."""

RestingKey = bytes | float
"""A key; for messages that rest alone, the due time (:func:`alone`), shared by the messages of 16 ms."""

NotedRetry = tuple[float, int]
"""Due time of a message, and its number of returns."""

HEADER = "x-jumpmq-retry"
"""Header of a message on the way to its queue's new home, with the due time and the number of returns.

The new home removes the header. Of several, the last one counts, as publishers may send headers of this name.
"""

NAMED = HEADER.encode()


def alone(due: float) -> float:
    """Return the key of a message that rests alone; the messages of 16 ms are released together."""
    return ceil(due * GRID) / GRID


class _Key:
    """Messages resting together.

    Attributes:
        due: due time, by :mod:`~jumpmq.queues.clock`.
        first: number of the message that came back last; the others wait for it.
        held: numbers of the held messages, a heap.
        passing: number up to which messages are delivered, while the others return in steps.
        since: value of ``Resting._hastenings`` when a message of the key last came back.
    """

    __slots__ = ("due", "first", "held", "passing", "since")

    def __init__(self, due: float, first: int, since: int) -> None:
        self.due, self.first, self.since = due, first, since
        self.held: list[int] = []
        self.passing = 0


class _Hastened(NamedTuple):
    """Keys released together, except keys of which a message has come back since.

    Attributes:
        before: value of ``Resting._hastenings`` before the release.
        heap: the keys, as in :attr:`Resting._by_due`.
    """

    before: int
    heap: "_ByDue"


_ByDue = list[tuple[float, int, RestingKey]]
"""A heap of keys, each once, by its due time or an earlier time."""


class Resting:
    """Resting messages of a queue.

    Args:
        record: records a message's due time and number of returns, by number; None deletes the record.

    Attributes:
        held: the held messages, by number.
        keys: number of resting keys.
    """

    def __init__(self, record: Callable[[int, NotedRetry | None], None]) -> None:
        self.held = ByNumber[Message]()
        self.keys = 0
        self._record = record
        self._keys: dict[RestingKey, _Key] = {}
        self._by_due: _ByDue = []  # the other keys
        self._hastened: deque[_Hastened] = deque()
        self._hastenings = 0  # number of releases of all messages
        self._pushed = 0  # distinguishes entries with equal times
        self._noted = ByNumber[NotedRetry]()  # recorded data
        self._has_rested = False  # True if ready messages have to rest as before a restart
        # numbers of messages with bodies possibly in memory, and of some departed messages
        self._to_page: deque[int] = deque()

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
        """Time at which the next message is due, or an earlier time; None if no message rests."""
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

    def _entry(self, name: RestingKey) -> tuple[float, int, RestingKey]:
        self._pushed += 1
        return self._keys[name].due, self._pushed, name

    def note(self, seq: int, noted: NotedRetry, *, recorded: bool) -> None:
        """Note the due time of a message that is not held.

        Args:
            recorded: True if the note has to survive a restart.
        """
        self._noted[seq] = noted
        if recorded:
            self._record(seq, noted)

    def rest_noted(self) -> None:
        """From now on a noted message rests instead of being delivered before its due time."""
        self._has_rested = True

    def noted(self, message: Message) -> NotedRetry | None:
        """Return the due time and the number of returns of a message; None if it has not rested."""
        return self._noted.get(message.seq)

    def tries(self, message: Message) -> int:
        """Number of times a message was returned and rested."""
        noted = self._noted.get(message.seq)
        return 0 if noted is None else noted[1]

    def waiting_for(self, key: RestingKey) -> tuple[int, float] | None:
        """Return the number of the message that a key waits for, and its due time; None for a key that does not
        rest.
        """
        found = self._keys.get(key)
        return None if found is None else (found.first, found.due)

    def due_of(self, seq: int) -> float:
        """Return the due time of a single message."""
        noted = self._noted.get(seq)
        return 0.0 if noted is None else noted[0]

    def rest(self, message: Message, key: RestingKey, due: float, tries: int, *, recorded: bool) -> bool:
        """Delay a message and the message's key. Return True if room is available.

        Args:
            tries: number of returns.
            recorded: True if the note has to survive a restart, together with the message.
        """
        if self.is_full or (self.keys >= MAX_KEYS and isinstance(key, bytes) and key not in self._keys):
            return False
        self.note(message.seq, (due, tries), recorded=recorded)
        self._put(message, key, due)
        return True

    def _put(self, message: Message, key: RestingKey, due: float) -> None:
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = _Key(due, message.seq, self._hastenings)
            self.keys += isinstance(key, bytes)
            heappush(self._by_due, self._entry(key))
        # The latest due time of a message is that of the key; after a release of all keys, earlier due times no longer
        # count.
        elif due > found.due or found.since < self._hastenings:
            found.due, found.first, found.since = due, message.seq, self._hastenings
        # The key rests again: messages released before, and not delivered yet, are held, too.
        found.passing = 0
        self._hold(found, message)

    def _hold(self, key: _Key, message: Message) -> None:
        seq = message.seq
        heappush(key.held, seq)
        self.held[seq] = message
        self._to_page.append(seq)
        # Departed messages stay in the list: without a bound, the list would grow as long as messages rest.
        if len(self._to_page) > 2 * len(self.held) + LOOKED_THROUGH:
            some = [self._to_page.popleft() for _ in range(LOOKED_THROUGH)]
            self._to_page += [seq for seq in some if seq in self.held]

    def divert(
        self, messages: list[Message], keys: list[RestingKey] | None, now: float
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
        """Remove and return up to ``count`` messages that are due."""
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
                if self._keys[heap[0][2]].since > before:  # it rests again
                    heappush(self._by_due, self._entry(heappop(heap)[2]))
                    continue
            elif self._keys[heap[0][2]].due > due:
                break  # the next step continues
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
        # The heap is set aside as a whole: one step for any number of keys.
        if self._by_due:
            self._hastened.append(_Hastened(self._hastenings, self._by_due))
            self._hastenings += 1
            self._by_due = []
        return len(self.held)

    def forget(self, messages: Iterable[Message]) -> None:
        """Forget messages that have left the queue."""
        if len(self._noted):
            for message in messages:
                if self._noted.pop(message.seq) is not None:
                    self._record(message.seq, None)

    def forget_others(self) -> Iterator[None]:
        """Forget, in steps, the notes of all messages that are not held: they have left the queue."""
        for seqs in self._noted.tables():
            for seq in seqs:
                if seq not in self.held and self._noted.pop(seq) is not None:
                    self._record(seq, None)
            yield

    def leave(self, drop: Callable[[list[Message]], None]) -> Iterator[None]:
        """Forget everything, in steps, for a deleted queue. The object must not be used afterwards.

        Args:
            drop: called with the held messages.
        """
        for seqs in self.held.tables():
            drop([message for seq in seqs if (message := self.held.pop(seq)) is not None])
            yield
        numbers = [key.held for key in self._keys.values()]
        self._keys.clear()
        while self._to_page or numbers:  # freeing a million numbers takes a while, too
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


def carrying(properties: bytes, noted: NotedRetry | None) -> bytes:
    """Return a property list with a note for the queue's new home; None adds no note."""
    text = b"" if noted is None else f"{noted[0]!r} {noted[1]}".encode()
    return with_entries(properties, bytes((len(NAMED),)) + NAMED + b"S" + len(text).to_bytes(4) + text)


def carried(octets: bytes) -> tuple[bytes, NotedRetry | None]:
    """Return a property list without the note of :func:`carrying`, and the note."""
    properties = Properties.parse(octets)
    headers = properties.headers or []
    place = max((place for place, field in enumerate(headers) if field.name == HEADER), default=None)
    if place is None:
        return octets, None
    noted = _read(headers.pop(place))
    properties.headers = headers or None
    return properties.encode(), noted


def _read(field: Field) -> NotedRetry | None:
    """Parse a note. A peer of an earlier release may pass on any value sent by a publisher."""
    due, _, tries = str(field.value).partition(" ")
    try:
        return float(due), int(tries)
    except ValueError:
        return None
