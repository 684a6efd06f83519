"""Flow control of deliveries from a remote home to a client: a shared window for all remote channels at the home.

A client that does not read has so no more waiting for it than :data:`WINDOW` from each home, however many channels it
has. Its home lets go of what has gone on to it (:class:`Owed`); the home of the queues delivers while there is room
(:class:`SendWindow`). Both count by remote channel too, so that one that is closed takes with it what it had under way.
"""

from typing import Protocol

WINDOW = 1 << 20
"""Octets of frames in flight to a client before deliveries are paused."""


class Served(Protocol):
    """A remote channel at the home of the queues."""

    def serve(self) -> None:
        """Deliver messages, as the window has room."""


class SendWindow:
    """Octets in flight to a client.

    Attributes:
        congested: whether the client gets no more deliveries for now.
    """

    def __init__(self) -> None:
        self.congested = False
        self._channels: dict[Served, int] = {}  # octets of each, the next one to be served first
        self._under_way = 0  # octets of all

    def enter(self, channel: Served) -> None:
        """Add an opened remote channel."""
        self._channels[channel] = 0

    def leave(self, channel: Served) -> bool:
        """Remove a closed remote channel; return True if no channels are left."""
        self._let_go(self._channels.pop(channel, 0))
        return not self._channels

    def abandon(self) -> None:
        """All are to be closed, and none is to be served any more."""
        self._channels.clear()

    def send(self, channel: Served, octets: int) -> None:
        """So many octets are sent."""
        if channel in self._channels:
            self._channels[channel] += octets
            self._under_way += octets
            self.congested = self.congested or self._under_way > WINDOW

    def credit(self, channel: Served, octets: int) -> None:
        """So many have gone on to the client."""
        self._channels[channel] -= octets
        self._let_go(octets)

    def _let_go(self, octets: int) -> None:
        self._under_way -= octets
        if self.congested and self._under_way <= WINDOW // 2:
            self.congested = False
            for channel in list(self._channels):
                if self.congested:
                    break
                self._channels[channel] = self._channels.pop(channel)
                channel.serve()


class Debtor(Protocol):
    """A remote channel at the client's home."""

    def make_room(self) -> None:
        """Acknowledge received octets to the peer and reduce the shared total."""


class Owed:
    """Octets received by a client's remote channels at a remote home, and not yet acknowledged to the home.

    Attributes:
        by_channel: octets of each that owes some.
    """

    def __init__(self) -> None:
        self.by_channel: dict[Debtor, int] = {}
        self._octets = 0  # of all

    def add(self, channel: Debtor, octets: int) -> bool:
        """So many octets have come; returns whether the home is to be told."""
        self.by_channel[channel] = self.by_channel.get(channel, 0) + octets
        self._octets += octets
        return self._octets >= WINDOW // 8

    def take(self, channel: Debtor) -> int:
        """Return the octets owed by a channel, and clear the debt."""
        octets = self.by_channel.pop(channel, 0)
        self._octets -= octets
        return octets

    def tell(self) -> None:
        """Acknowledge the octets of all channels."""
        for channel in list(self.by_channel):
            channel.make_room()
