"""What a channel does at the homes of queues that are not here, see :mod:`jumpmq.nodes.channels.remote_channels`."""

from collections.abc import Callable
from typing import Any, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.group_consumer import Membership
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.topology.declared import DeclaredQueue

Then = Callable[[Any], None]
"""Acts on the method that answers a request."""


class RemoteChannels(Protocol):
    """The remote channels of a client's channel, one at each home that it has asked for something."""

    def ask(self, queue: DeclaredQueue, method: m.Method, then: Then) -> Waiting:
        """Have a method that names the queue acted on at its home; the wait ends when that has answered.

        Raises:
            NotFound: the home is down.
        """

    def consume(self, queue: DeclaredQueue, method: m.BasicConsume) -> Waiting:
        """The same for ``basic.consume``, whose tag and queue are filled in: the consumer is added to the channel."""

    def join(self, method: m.BasicConsume, membership: Membership) -> Waiting | None:
        """The same for a member of a consumer group of an exchange, at all homes that are up.

        Raises:
            AMQPError: what it wants to consume is refused here.
        """

    def get(
        self, queue: DeclaredQueue, method: m.BasicGet, then: Callable[[m.BasicGetOk, Message], None], empty: Then
    ) -> Waiting:
        """The same for ``basic.get``.

        Args:
            then: takes the message, which settles itself at its home as any other; its body is complete.
        """

    def cancel(self, tag: str, then: Callable[[], None]) -> Waiting | None:
        """Cancel a consumer; deliveries that are under way come before ``then``. None where it is none of these."""

    def set_prefetch(self) -> None:
        """The prefetch of the whole channel has changed."""

    def make_room(self) -> None:
        """The client reads again, if it did not."""

    def consumers_of(self, queue: DeclaredQueue) -> int:
        """How many consumers of a queue elsewhere the clients of this home have."""

    def close(self) -> None:
        """The channel is closed: what it holds unacknowledged goes back."""
