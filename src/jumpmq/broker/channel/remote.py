"""Queues of other workers or nodes, as a client's channel asks for them.

:meth:`VirtualHost.queue` refuses a name whose queue has its contents at another home. A channel looks there first, and
has the method acted on at the queue's home by a remote channel, which is a channel of that home for the client; the
answer ends a :class:`~jumpmq.broker.channel.waiting.Waiting`. A broker of one process has :func:`no_remote`.
"""

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotFound
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.group_consumer import Membership
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel

Then = Callable[[Any], None]
"""Acts on the method that answers a request."""


class RemoteChannels(Protocol):
    """The remote channels of a client's channel, one at each home that it has asked for something.

    Attributes:
        opened: those that are open, by home.
        shares_groups: whether a consumer group of an exchange has members at several homes.
    """

    @property
    def opened(self) -> Collection[int]: ...
    @property
    def shares_groups(self) -> bool: ...

    def queue(self, vhost: VirtualHost, name: str, connection: str) -> DeclaredQueue | None:
        """The queue of that name, if its home is another.

        Args:
            connection: identity of the client's connection.

        Raises:
            ResourceLocked: it is another connection's.
        """

    def ask(self, queue: DeclaredQueue, method: m.Method, then: Then) -> Waiting:
        """Have a method that names the queue acted on at its home; the wait ends when that has answered.

        Raises:
            NotFound: the home is down.
        """

    def consume(self, queue: DeclaredQueue, method: m.BasicConsume) -> Waiting:
        """The same for ``basic.consume``, whose tag and queue are filled in: the consumer is added to the channel."""

    def choose(self, exchange: str, then: Callable[[str], Waiting | None]) -> Waiting | None:
        """Have the shard of a sharded exchange chosen that a consumer gets, where the consumers of all homes of the
        node are known; None if no other home of the node is up.

        Args:
            then: consumes from the shard of that name; of the exchange's, where it has no shards any more.
        """

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

    def consumers_of(self, queue: DeclaredQueue) -> float:
        """Number of consumers of a queue of another home that clients of this home have."""

    def close(self) -> None:
        """The channel is closed: what it holds unacknowledged goes back."""


class _NoRemote:
    """The remote channels of a channel whose queues are all in this process."""

    opened = ()
    shares_groups = False

    def queue(self, vhost: VirtualHost, name: str, connection: str) -> DeclaredQueue | None:
        return None

    def ask(self, queue: DeclaredQueue, method: m.Method, then: Then) -> Waiting:
        raise _absent(queue)

    def consume(self, queue: DeclaredQueue, method: m.BasicConsume) -> Waiting:
        raise _absent(queue)

    def choose(self, exchange: str, then: Callable[[str], Waiting | None]) -> Waiting | None:
        return None

    def join(self, method: m.BasicConsume, membership: Membership) -> Waiting | None:
        raise NotFound(f"no queue '{method.queue}' at another home")

    def get(
        self, queue: DeclaredQueue, method: m.BasicGet, then: Callable[[m.BasicGetOk, Message], None], empty: Then
    ) -> Waiting:
        raise _absent(queue)

    def cancel(self, tag: str, then: Callable[[], None]) -> Waiting | None:
        return None

    def set_prefetch(self) -> None:
        pass

    def make_room(self) -> None:
        pass

    def consumers_of(self, queue: DeclaredQueue) -> float:
        return inf

    def close(self) -> None:
        pass


_NO_REMOTE = _NoRemote()


def no_remote(channel: "Channel") -> RemoteChannels:
    """The remote channels of a channel of a broker of one process: none."""
    return _NO_REMOTE


def _absent(queue: DeclaredQueue) -> NotFound:
    return NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' is at no other home")
