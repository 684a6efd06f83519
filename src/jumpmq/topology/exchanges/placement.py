"""Snapshots of how hash exchanges place keys. The exchange's own placement changes with its bindings; a snapshot
stays.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.messages import Message, any_copies, hash_keys, routing_keys
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import MISSING, HashRing, moduli, modulus
from jumpmq.hashing.functions import NUMBERS, HashFunction
from jumpmq.topology.envelope import Envelope


class Placement(ABC):
    """The destinations of all keys.

    Attributes:
        names: names of the destinations, in the order of their numbers.
    """

    names: list[str]

    @abstractmethod
    def places(self, messages: list[Message]) -> list[int]:
        """Return the destinations of messages, as indexes into ``names``; -1 for none."""

    @abstractmethod
    def place(self, key: bytes) -> int:
        """Return the destination of a key."""

    @abstractmethod
    def moved(self, after: "Placement") -> tuple[set[str], set[str]]:
        """Compare with a later placement: return the destinations that may have lost keys, and those that may have
        gained keys.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the placement as plain JSON."""


class RingPlacement(Placement):
    """Placement of a consistent hash exchange.

    Args:
        hashed: the hashed header or property; None for the routing key.
        ring: the ring; nobody may change the ring afterwards.
    """

    def __init__(self, hashed: tuple[str, str] | None, ring: HashRing) -> None:
        self.names = list(ring.names)
        self._hashed = hashed
        self._ring = ring

    def places(self, messages: list[Message]) -> list[int]:
        return self._ring.route_index(keys_of(messages, self._hashed)[0])

    def place(self, key: bytes) -> int:
        return self._ring.place(key)

    def moved(self, after: Placement) -> tuple[set[str], set[str]]:
        assert isinstance(after, RingPlacement)
        old, new = self._ring.runs(), after._ring.runs()
        lost = {name for name, runs in old.items() if new.get(name) != runs}
        got = {name for name, runs in new.items() if old.get(name) != runs}
        if not got:
            return lost, set(new) if lost else set()
        return set(old), set(new) if lost else got

    def state(self) -> dict[str, Any]:
        return {"hashed": self._hashed, "ring": self._ring.state()}


class ModulusPlacement(Placement):
    """Placement of a modulus hash exchange.

    Args:
        hashed: the hashed header or property; None for the routing keys.

    Attributes:
        function: the hash function.
    """

    def __init__(self, hashed: tuple[str, str] | None, names: list[str], function: HashFunction = "phash2") -> None:
        self.names = names
        self._hashed = hashed
        self.function: HashFunction = function

    def places(self, messages: list[Message]) -> list[int]:
        count = len(self.names)
        if not count:
            return [-1] * len(messages)
        if self._hashed is not None:
            return moduli(octets_of(messages, self._hashed)[0], count, NUMBERS[self.function])
        if any_copies(messages):
            return [modulus(_all_keys(message), count, self.function) for message in messages]
        return moduli(routing_keys(messages), count, NUMBERS[self.function])

    def place(self, key: bytes) -> int:
        return modulus([key], len(self.names), self.function) if self.names else -1

    def moved(self, after: Placement) -> tuple[set[str], set[str]]:
        if self.names == after.names:
            return set(), set()
        return set(self.names), set(after.names)

    def state(self) -> dict[str, Any]:
        function = {} if self.function == "phash2" else {"function": self.function}
        return {"modulus": self.names} | function | ({} if self._hashed is None else {"hashed": self._hashed})


def restored(state: Mapping[str, Any]) -> Placement:
    """Return the placement of a given ``state``.

    Raises:
        KeyError, ValueError: ``state`` is not the state of a placement.
    """
    found = state.get("hashed")
    hashed = None if found is None else (found[0], found[1])
    if "modulus" in state:
        return ModulusPlacement(hashed, list(state["modulus"]), state.get("function", "phash2"))
    return RingPlacement(hashed, HashRing.restore(state["ring"]))


def octets_of(messages: list[Message], hashed: tuple[str, str]) -> tuple[list[bytes], int]:
    """Return the octets to hash for messages with a hashed header or property, and the number of messages without it.

    Text is hashed unchanged, and a number of :func:`~jumpmq.hashing.header_key` as decimal digits. A message without
    the header or property has empty octets, as with an empty routing key.
    """
    kind, name = hashed
    is_header = kind == "header"
    place = Properties.place("headers" if is_header else name)
    keys, missing = hash_keys(messages, place, name.encode() if is_header else b"", b"")
    return [b"%d" % key if isinstance(key, int) else key for key in keys], missing


def keys_of(messages: list[Message], hashed: tuple[str, str] | None) -> tuple[list[bytes] | list[bytes | int], int]:
    """Return the hash keys of messages, and the number of missing keys. ``MISSING`` stands for a missing key."""
    if hashed is None:
        return routing_keys(messages), 0
    kind, name = hashed
    if kind == "header":
        return hash_keys(messages, Properties.place("headers"), name.encode(), MISSING)
    return hash_keys(messages, Properties.place(name), b"", MISSING)


def _all_keys(message: Message) -> list[bytes]:
    try:
        return list(Envelope.opened(message).keys)
    except AMQPError:  # damaged headers: placed by its routing key
        return [message.routing_key]
