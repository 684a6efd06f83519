"""How much may be under way to one client from one other home: a window for all its remote channels there.

A client that does not read has so no more waiting for it than :data:`WINDOW` from each home, however many channels it
has. Its home lets go of what has gone on to it (:class:`Owed`); the home of the queues delivers while there is room
(:class:`Window`). Both count by remote channel too, so that one that is closed takes with it what it had under way.
"""

from typing import Protocol

WINDOW = 1 << 20
"""Octets of frames that may be under way to a client before it gets no more deliveries."""


class Served(Protocol):
    """A remote channel at the home of the queues."""

    def serve(self) -> None:
        """There is room for deliveries."""


class Window:
    """What is under way to one client.

    Attributes:
        congested: whether the client gets no more deliveries for now.
    """

    def __init__(self) -> None:
        self.congested = False
        self._channels: dict[Served, int] = {}  # octets of each, the next one to be served first
        self._under_way = 0  # octets of all

    def enter(self, channel: Served) -> None:
        """One more remote channel is open."""
        self._channels[channel] = 0

    def leave(self, channel: Served) -> bool:
        """It is closed; returns whether it was the last one."""
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
        """Tell its home of what it owes, and take that from the debt of all."""


class Owed:
    """What one client's remote channels at one home have taken, and that home has not been told of.

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
        """What a channel owes, which it does no longer."""
        octets = self.by_channel.pop(channel, 0)
        self._octets -= octets
        return octets

    def tell(self) -> None:
        """Have all channels tell."""
        for channel in list(self.by_channel):
            channel.make_room()
