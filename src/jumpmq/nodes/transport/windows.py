"""Flow control of deliveries from another home to a client: a shared window for all remote channels at the home.

For a client that does not read, at most :data:`WINDOW` octets from each other home are in flight, over all channels of
the client. The client's home acknowledges octets once the client has received them (:class:`Owed`); the queues' home
delivers while the window has room (:class:`SendWindow`). Both ends also count per remote channel, so that the octets of
a closed channel leave the total.
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
        congested: True while deliveries to the client are paused.
    """

    def __init__(self) -> None:
        self.congested = False
        self._channels: dict[Served, int] = {}  # octets in flight per channel; the first channel is served next
        self._under_way = 0  # octets in flight of all channels

    def enter(self, channel: Served) -> None:
        """Add an opened remote channel."""
        self._channels[channel] = 0

    def leave(self, channel: Served) -> bool:
        """Remove a closed remote channel; return True if no channels are left."""
        self._release(self._channels.pop(channel, 0))
        return not self._channels

    def abandon(self) -> None:
        """Forget all channels before they are closed: none is served any more."""
        self._channels.clear()

    def send(self, channel: Served, octets: int) -> None:
        """Add the octets sent on a channel."""
        if channel in self._channels:
            self._channels[channel] += octets
            self._under_way += octets
            self.congested = self.congested or self._under_way > WINDOW

    def credit(self, channel: Served, octets: int) -> None:
        """Subtract octets that the client has received."""
        self._channels[channel] -= octets
        self._release(octets)

    def _release(self, octets: int) -> None:
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
    """Octets received by a client's remote channels at another home, and not yet acknowledged to the home.

    Attributes:
        by_channel: octets owed per channel; channels without a debt are absent.
    """

    def __init__(self) -> None:
        self.by_channel: dict[Debtor, int] = {}
        self._octets = 0  # owed by all channels

    def add(self, channel: Debtor, octets: int) -> bool:
        """Add received octets to the debt; return True if the debt is large enough to be acknowledged."""
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
