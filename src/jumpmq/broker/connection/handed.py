"""What is known of a client that goes to another process of the broker, before it has opened its virtual host."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Protocol

from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.tokens import heard
from jumpmq.topology import VirtualHost


class HandsOver(Protocol):
    """Gives clients to other homes."""

    def home_of(self, vhost: VirtualHost) -> int | None:
        """The home that the clients of a virtual host go to; None where they may stay here."""

    def give(self, home: int, client: int, known: bytes) -> bool:
        """Give a client to a home, by its descriptor, which stays open here; returns whether it is there."""


class _KeepsAll:
    """Gives no client away: a broker of one process, and nodes of one process each."""

    def home_of(self, vhost: VirtualHost) -> int | None:
        return None

    def give(self, home: int, client: int, known: bytes) -> bool:
        return False


KEEPS_ALL: HandsOver = _KeepsAll()


@dataclass(frozen=True, slots=True)
class Handed:
    """A client that is logged in, and has asked for a virtual host.

    Attributes:
        vhost: which.
        user: as :func:`~jumpmq.broker.security.tokens.told` puts it.
        handshake: how it introduced itself, by the names of :class:`~jumpmq.broker.connection.handshake.Handshake`.
        negotiated: frame_max, channel_max and heartbeat.
        since: when it came, seconds since the epoch.
        rest: what it has sent behind ``connection.open``.
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
        return heard(*self.user)

    def packed(self) -> bytes:
        """As octets, for a process of the same broker."""
        return pickle.dumps(self)

    @staticmethod
    def unpacked(octets: bytes) -> Handed:
        """From octets that come from such a process."""
        found: Handed = pickle.loads(octets)
        return found
