"""Identification of duplicates: the header ``x-deduplication-header``, and a table of seen identities.

Source: ``RabbitMQMessageDeduplication.Common`` of noxdafox's plugin.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

from jumpmq.amqp.fields import INTEGER_TYPES, Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import headers_of
from jumpmq.queues.memory import MemoryAccount

HEADER = "x-deduplication-header"
_NAMED = b"\x16x-deduplication-header"
"""The header's encoded name in a field table."""

DIGEST = 16
"""Octets of an identity's digest: two of a billion identities collide with a probability of 10^-21."""

OCTETS = 170
"""Octets of memory that an entry of :class:`Seen` takes (measured)."""

_CACHED = 512
"""Maximum octets of properties whose identity is cached: the identity of a run is requested several times."""


def is_identified(message: Message) -> bool:
    """True if a message carries an identity."""
    return _NAMED in message.properties and identity_of(message) is not None


def identity_of(message: Message) -> bytes | None:
    """Return the identity of a message as a digest; None without an identity.

    Equal integers of different widths have the same identity, and so have equal text and octets. A list or table is no
    identity.
    """
    octets = message.properties
    if _NAMED not in octets:
        return None
    return _remembered(octets) if len(octets) <= _CACHED else _read(octets)


def _read(octets: bytes) -> bytes | None:
    found = next((field for field in headers_of(octets) if field.name == HEADER), None)
    return None if found is None else _digest(found)


_remembered = lru_cache(8192)(_read)


def _digest(field: Field) -> bytes | None:
    value = field.value
    if field.type in "AF":
        return None
    if field.type in "Sx":
        shown = b"S" + (value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape"))
    elif field.type in INTEGER_TYPES:
        shown = b"I%d" % value
    else:
        shown = f"{'d' if field.type == 'f' else field.type}{value!r}".encode()
    return blake2b(shown, digest_size=DIGEST).digest()


def milliseconds_of(message: Message, name: str) -> int | None:
    """Return a header's milliseconds, at least 1; None without a valid header."""
    if name.encode() not in message.properties:
        return None
    for field in headers_of(message.properties):
        if field.name == name and field.type in INTEGER_TYPES and field.value > 0:
            return int(field.value)
    return None


class Seen:
    """Seen identities, with the number of the message carrying the identity.

    Attributes:
        duplicates: number of messages dropped since the broker's start.
    """

    __slots__ = ("_account", "_identities", "_numbers", "duplicates")

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account  # for entries, as ``ready``
        self._numbers: dict[bytes, int] = {}
        # By number: a message that leaves may have no other data in memory.
        self._identities: dict[int, bytes] = {}
        self.duplicates = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def new(self, messages: list[Message]) -> list[Message]:
        """Return the messages without duplicates of seen messages or among themselves; the duplicates are counted."""
        found, among = [], set[bytes]()
        for message in messages:
            identity = identity_of(message)
            if identity is not None:
                if identity in self._numbers or identity in among:
                    self.duplicates += 1
                    continue
                among.add(identity)
            found.append(message)
        return found

    def add(self, identity: bytes, number: int) -> None:
        """Record an identity as seen in the message of this number, and in no earlier message any more."""
        before = self._numbers.get(identity)
        if before is None:
            self._account.charge("ready", OCTETS)
        else:
            # Otherwise the departure of the earlier message would forget the identity.
            del self._identities[before]
        self._numbers[identity] = number
        self._identities[number] = identity

    def note(self, messages: Iterable[Message]) -> None:
        """Record messages of a queue, by number."""
        for message in messages:
            if (identity := identity_of(message)) is not None:
                self.add(identity, message.seq)

    def forget(self, messages: Iterable[Message]) -> None:
        """Forget messages removed from the queue."""
        for message in messages:
            identity = self._identities.pop(message.seq, None)
            if identity is not None:
                del self._numbers[identity]
                self._account.charge("ready", -OCTETS)

    def clear(self) -> None:
        """Forget all messages."""
        self._account.charge("ready", -OCTETS * len(self._numbers))
        self._numbers.clear()
        self._identities.clear()

    def shown(self) -> dict[str, int]:
        """Return statistics by the names of noxdafox's plugin, with the number of dropped messages."""
        count = len(self._numbers)
        return {"entries": count, "bytes": count * OCTETS, "duplicates": self.duplicates}
