"""What is known of a client that goes to another process of the broker, before it has opened its virtual host."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Protocol

from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.tokens import scopes_of, user_of
from jumpmq.topology import VirtualHost


class HandsOver(Protocol):
    """Gives clients to other homes."""

    def home_of(self, vhost: VirtualHost) -> int | None:
        """The home that the clients of a virtual host go to; None where they may stay here."""

    def give(self, home: int, client: int, known: bytes) -> bool:
        """Give a client to a home, by its descriptor, which stays open here; returns whether it is there."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A client that is logged in, and has asked for a virtual host.

    Attributes:
        vhost: which.
        user: name, scopes of a token, and when that expires.
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

    @staticmethod
    def told(user: Principal) -> tuple[str, list[str] | None, float | None]:
        """A user, as plain values."""
        return user.name, None if user.granted is None else list(scopes_of(user.granted)), user.until

    @property
    def principal(self) -> Principal:
        """The user."""
        name, scopes, until = self.user
        return Principal(name, None if scopes is None else user_of(name, scopes), until)

    def packed(self) -> bytes:
        """As octets, for a process of the same broker."""
        return pickle.dumps(self)

    @staticmethod
    def unpacked(octets: bytes) -> Handed:
        """From octets that come from such a process."""
        found: Handed = pickle.loads(octets)
        return found
