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

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from jumpmq.amqp.fields import Field
from jumpmq.amqp.frames import with_entries
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties

MAX_KEYS = 100_000
"""Maximum number of resting keys of a queue; a message of a further key returns at once."""

MAX_HELD = 1_000_000
"""Maximum number of messages of a queue that rest or wait behind a resting message; at the maximum, the queue delivers
nothing until some are due.
"""

Key = bytes | float
"""A key; for messages resting alone, the due time: messages returned together need no object per message."""

Noted = tuple[float, int]
"""When a message is due, and how often it came back."""

HEADER = "x-jumpmq-retry"
"""Header of a message on the way to its queue's new home: until when it rests, and how often it came back.

Removed on arrival; of several the last counts, as publishers may send headers of this name.
"""

NAMED = HEADER.encode()


class _Key:
    """Messages resting together.

    Attributes:
        due: when it goes on, by :mod:`~jumpmq.queues.clock`.
        first: number of the message that came back last, for which the others wait.
        messages: those that are held, in any order.
        passing: up to which number messages are delivered, while the others return in steps.
    """

    __slots__ = ("due", "first", "messages", "passing")

    def __init__(self, due: float, first: int) -> None:
        self.due, self.first = due, first
        self.messages: list[Message] = []
        self.passing = 0


class Resting:
    """Resting messages of a queue.

    Args:
        record: notes of a message, by its number, until when it rests and how often it came back; None forgets it.

    Attributes:
        held: the messages, by number.
        keys: how many keys rest.
    """

    def __init__(self, record: Callable[[int, Noted | None], None]) -> None:
        self.held: dict[int, Message] = {}
        self.keys = 0
        self._record = record
        self._keys: dict[Key, _Key] = {}
        self._heap: list[tuple[float, int, Key]] = []  # those of keys; one whose key is due at another time is void
        self._pushed = 0  # tells entries of the heap apart
        self._noted: dict[int, Noted] = {}  # what is recorded
        self._has_rested = False  # whether messages are ready that are to rest as they did before a restart
        self._to_page: list[int] = []  # numbers of messages whose bodies may be in memory

    def restore(self, noted: dict[int, list[Any]]) -> None:
        """Load recorded retries."""
        self._noted = {seq: (float(due), int(tries)) for seq, (due, tries) in noted.items()}
        self.rest_noted()

    @property
    def is_full(self) -> bool:
        """True if no more messages can be held."""
        return len(self.held) >= MAX_HELD

    @property
    def in_use(self) -> bool:
        """True if messages may be resting."""
        return bool(self._keys or self._noted)

    @property
    def next_due(self) -> float | None:
        """When the next goes on; None where nothing rests."""
        while self._heap:
            due, _, key = self._heap[0]
            found = self._keys.get(key)
            if found is not None and found.due == due:
                return due
            heappop(self._heap)
        return None

    def note(self, seq: int, noted: Noted, *, recorded: bool) -> None:
        """Note until when a message rests that is not held.

        Args:
            recorded: whether that is to be known after a restart.
        """
        self._noted[seq] = noted
        if recorded:
            self._record(seq, noted)

    def rest_noted(self) -> None:
        """Have noted messages rest when they would be delivered."""
        self._has_rested = True

    def noted(self, message: Message) -> Noted | None:
        """When a message is due, and how often it came back; None if it has not rested."""
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
        return self._noted.get(seq, (0.0, 0))[0]

    def rest(self, message: Message, key: Key, due: float, tries: int, *, recorded: bool) -> bool:
        """Delay a message and the message's key. Return True if room is available.

        Args:
            tries: how often it came back.
            recorded: whether that is to be known after a restart, as the message is there then.
        """
        if (key not in self._keys and len(self._keys) >= MAX_KEYS) or self.is_full:
            return False
        self._noted[message.seq] = noted = (due, tries)
        if recorded:
            self._record(message.seq, noted)
        self._put(message, key, due)
        return True

    def _put(self, message: Message, key: Key, due: float) -> None:
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = _Key(due, message.seq)
            self.keys += isinstance(key, bytes)
            self._push(due, key)
        elif due > found.due:
            found.due, found.first = due, message.seq
            self._push(due, key)
        found.passing = 0
        self._hold(found, message)

    def _push(self, due: float, key: Key) -> None:
        self._pushed += 1
        heappush(self._heap, (due, self._pushed, key))

    def _hold(self, key: _Key, message: Message) -> None:
        key.messages.append(message)
        self.held[message.seq] = message
        self._to_page.append(message.seq)

    def divert(
        self, messages: list[Message], keys: list[Key] | None, now: float
    ) -> tuple[list[Message], list[Message]]:
        """Split messages taken for delivery into deliverable and held messages.

        Args:
            keys: theirs; None where each rests alone.
        """
        alive: list[Message] = []
        kept: list[Message] = []
        for place, message in enumerate(messages):
            noted = self._noted.get(message.seq)
            found = None if keys is None else self._keys.get(keys[place])
            if noted is not None and self._has_rested and noted[0] > now:
                self._put(message, noted[0] if keys is None else keys[place], noted[0])
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
        while len(found) < count and (due := self.next_due) is not None and due <= now:
            _, _, name = heappop(self._heap)
            key = self._keys[name]
            room = count - len(found)
            if len(key.messages) <= room:
                del self._keys[name]
                self.keys -= isinstance(name, bytes)
                some = key.messages
            else:
                key.messages.sort(key=lambda message: message.seq)
                some, key.messages = key.messages[:room], key.messages[room:]
                key.passing = some[-1].seq
                self._push(key.due, name)
            for message in some:
                del self.held[message.seq]
            found += some
        return found

    def hasten(self) -> int:
        """Release all resting messages now; return the number of held messages."""
        for key in self._keys.values():
            key.due = 0.0
        self._has_rested = False
        self._heap = [(0.0, number, name) for number, name in enumerate(self._keys)]
        heapify(self._heap)
        self._pushed = len(self._heap)
        return len(self.held)

    def forget(self, messages: Iterable[Message]) -> None:
        """Messages are gone from the queue."""
        if self._noted:
            for message in messages:
                if self._noted.pop(message.seq, None) is not None:
                    self._record(message.seq, None)

    def forget_others(self) -> None:
        """All messages are gone from the queue that are not held."""
        for seq in [seq for seq in self._noted if seq not in self.held]:
            del self._noted[seq]
            self._record(seq, None)

    def leave(self) -> list[Message]:
        """The queue is gone: forget what is recorded, and return what is held. To be used no more."""
        for seq in self._noted:
            self._record(seq, None)
        return list(self.held.values())

    def to_page(self, count: int) -> list[Message]:
        """Return up to ``count`` messages with bodies possibly in memory, without repetition."""
        some, self._to_page = self._to_page[:count], self._to_page[count:]
        return [self.held[seq] for seq in some if seq in self.held]

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
