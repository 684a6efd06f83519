"""Deliveries not acknowledged in time (RabbitMQ, "Delivery Acknowledgement Timeout"): their channel is closed.

Deliveries have no time of their own. A channel records its next delivery tag at each check: a delivery with a lower tag
than the tag recorded a while ago is at least as old as this record.
"""

import math
from collections import deque
from typing import TYPE_CHECKING, Protocol

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.queues.argument_checks import timeout_of
from jumpmq.queues.arguments import CONSUMER_TIMEOUT

if TYPE_CHECKING:
    from jumpmq.amqp.messages import Message
    from jumpmq.broker.channel.consumers import DeliveringQueue, Holder, Subscription
    from jumpmq.queues.consumer import Consumer


LONGEST_INTERVAL = 60.0
"""Maximum seconds between checks: RabbitMQ's interval."""


class TimedChannel(Protocol):
    """A channel, from the point of view of acknowledgement timeouts.

    Attributes:
        tags_at: times of earlier checks, by the monotonic clock, and the next delivery tag at each; None without
            deliveries.
    """

    number: int
    next_delivery_tag: int
    consumers: "dict[str, Subscription]"
    unacknowledged: Deliveries
    tags_at: deque[tuple[float, int]] | None


class Overdue:
    """Finds overdue deliveries.

    Args:
        timeout: seconds, for consumers and queues without their own timeout; 0 without a limit.

    Attributes:
        interval: seconds between checks; an overdue delivery is found up to this time later.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout or math.inf
        self.interval = min(LONGEST_INTERVAL, self._timeout / 2)

    def look(self, channel: TimedChannel, now: float) -> "tuple[Message, PreconditionFailed] | None":
        """Return an overdue delivery of a channel, with the error; None without one.

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
        own = _own_timeouts(channel)
        longest = max(self._timeout, *own) if own else self._timeout
        while len(looks) > 1 and looks[1][0] <= now - longest:
            looks.popleft()
        if not own:
            if first >= _tag_at(looks, now - self._timeout):
                return None
            _, oldest = next(iter(channel.unacknowledged.items()))
            return oldest, _refusal(channel, self._timeout)
        ends = {timeout: _tag_at(looks, now - timeout) for timeout in {self._timeout, *own}}
        for tag, message in channel.unacknowledged.before(max(ends.values())):
            timeout = _own_timeout(message)
            timeout = self._timeout if timeout is None else timeout
            if tag < ends.get(timeout, 0):
                return message, _refusal(channel, timeout)
        return None


def _tag_at(looks: deque[tuple[float, int]], at: float) -> int:
    """Return the next delivery tag at a past time; 0 before the first sample."""
    return next((tag for looked_at, tag in reversed(looks) if looked_at <= at), 0)


def _own_timeouts(channel: TimedChannel) -> set[float]:
    """Return the timeouts, in seconds, of the channel's consumers and their queues."""
    found = {_timeout_of(one, one.queue) for consumer in channel.consumers.values() for one in consumer.holders}
    return {timeout for timeout in found if timeout is not None}


def _own_timeout(message: "Message") -> float | None:
    return _timeout_of(message.consumer, message.queue)


def _timeout_of(consumer: "Holder | Consumer | None", queue: "DeliveringQueue | None") -> float | None:
    """Return the timeout in seconds, of the consumer (``x-consumer-timeout``), or else of the queue or its policy; None
    without one.
    """
    arguments = () if consumer is None else consumer.arguments
    found = next((timeout_of(field.value) for field in arguments if field.name == CONSUMER_TIMEOUT), None)
    if found is None and queue is not None:
        found = queue.limits.consumer_timeout
    return None if found is None else found / 1000


def _refusal(channel: TimedChannel, timeout: float) -> PreconditionFailed:
    return PreconditionFailed(
        f"delivery acknowledgement on channel {channel.number} timed out. "
        f"Timeout value used: {timeout * 1000:.0f} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
