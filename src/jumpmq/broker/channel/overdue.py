"""Deliveries that nobody acknowledges (RabbitMQ, "Delivery Acknowledgement Timeout"): their channel is closed.

Nothing is noted of a delivery. A channel remembers where its delivery tags stood at each look, so that a tag below
what they were a while ago is at least so old.
"""

from collections import deque

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.broker.channel.channel import Channel

LONGEST_INTERVAL = 60.0
"""Seconds between looks, at most: as often as RabbitMQ looks."""


class Overdue:
    """Looks for deliveries that are older than they may be.

    Args:
        timeout: seconds.

    Attributes:
        interval: seconds between looks; a delivery may be so much older before it is found.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.interval = min(LONGEST_INTERVAL, timeout / 2)

    def look(self, channel: Channel, now: float) -> PreconditionFailed | None:
        """What there is to say of a channel with a delivery that is too old; None where there is none.

        Args:
            now: seconds by the monotonic clock.
        """
        first = channel.unacknowledged.first_tag
        if first is None:
            channel.tags_at = None
            return None
        if channel.tags_at is None:
            channel.tags_at = deque()
        looks = channel.tags_at
        looks.append((now, channel.next_delivery_tag))
        while len(looks) > 1 and looks[1][0] <= now - self._timeout:
            looks.popleft()
        at, next_tag = looks[0]
        if at > now - self._timeout or first >= next_tag:
            return None
        return PreconditionFailed(
            f"delivery acknowledgement on channel {channel.number} timed out. "
            f"Timeout value used: {self._timeout * 1000:.0f} ms. "
            "This timeout value can be configured, see consumers doc guide to learn more"
        )
