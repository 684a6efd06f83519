"""Data of a client handed over to a second process before opening its virtual host."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Protocol

from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.tokens import from_values
from jumpmq.topology import VirtualHost


class HandsOver(Protocol):
    """Hands clients over to other homes."""

    def home_of(self, vhost: VirtualHost) -> int | None:
        """Return the home for clients of a virtual host; None if they may stay."""

    def give(self, home: int, client: int, known: bytes) -> bool:
        """Pass a client's descriptor to a home, without closing it here; return False if the home is absent."""


class _KeepsAll:
    """Keeps all clients: for single-process brokers, and nodes with one process."""

    def home_of(self, vhost: VirtualHost) -> int | None:
        return None

    def give(self, home: int, client: int, known: bytes) -> bool:
        return False


KEEPS_ALL: HandsOver = _KeepsAll()


@dataclass(frozen=True, slots=True)
class Handed:
    """A logged-in client that has requested a virtual host.

    Attributes:
        vhost: name of the virtual host.
        user: the user, in the form of :func:`~jumpmq.broker.security.tokens.to_values`.
        handshake: attributes of :class:`~jumpmq.broker.connection.handshake.ClientHandshake`, by name.
        negotiated: frame_max, channel_max and heartbeat.
        since: start of the connection, in seconds since the epoch.
        rest: octets received after ``connection.open``.
    """

    vhost: str
    user: tuple[str, list[str] | None, float | None]
    handshake: dict[str, Any]
    negotiated: tuple[int, int, int]
    since: float
    rest: bytes

    @property
    def principal(self) -> Principal:
        """The user."""
        return from_values(*self.user)

    def packed(self) -> bytes:
        """Encode for a process of the current broker."""
        return pickle.dumps(self)

    @staticmethod
    def unpacked(octets: bytes) -> Handed:
        """Decode octets from a process of the current broker."""
        found: Handed = pickle.loads(octets)
        return found
