"""Queues of remote workers or nodes, as used by a client's channel.

:meth:`VirtualHost.queue` refuses the name of a queue at another home. A channel therefore first calls
:meth:`RemoteChannels.queue`. For a remote queue, a remote channel, opened at the queue's home for the client, runs the
method; the answer ends a :class:`~jumpmq.broker.channel.waiting.Waiting`. A broker of one process has
:func:`no_remote`.
"""

from collections.abc import Callable, Collection
from math import inf
from typing import Any, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotFound
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.client import ChannelClient
from jumpmq.broker.channel.group_consumer import GroupArguments
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.topology import Topology, VirtualHost
from jumpmq.topology.declared import DeclaredQueue

Then = Callable[[Any], None]
"""Function called with the answer to a request."""


class LinkedChannel(Protocol):
    """A client's channel, from the point of view of its requests to other homes."""

    topology: Topology
    closed: bool

    @property
    def connection(self) -> ChannelClient: ...


class RemoteChannels(Protocol):
    """Remote channels of a client's channel, one per home in use.

    Attributes:
        opened: open remote channels, by home.
        shares_groups: True if a consumer group on an exchange has members at several homes.
    """

    @property
    def opened(self) -> Collection[int]: ...
    @property
    def shares_groups(self) -> bool: ...

    def queue(self, vhost: VirtualHost, name: str, connection: str) -> DeclaredQueue | None:
        """Return a remote queue by name; None if local.

        Args:
            connection: identity of the client's connection.

        Raises:
            ResourceLocked: the queue is exclusive to another connection.
        """

    def ask(self, queue: DeclaredQueue, method: m.Method, then: Then) -> Waiting:
        """Run a method at the queue's home; the wait ends with the answer.

        Raises:
            NotFound: the home is down.
        """

    def consume(self, queue: DeclaredQueue, method: m.BasicConsume) -> Waiting:
        """Run ``basic.consume``, with tag and queue given, at the queue's home, and add the consumer to the channel."""

    def choose(self, exchange: str, then: Callable[[str], Waiting | None]) -> Waiting | None:
        """Choose the shard of a sharded exchange for a consumer, at the home that knows all consumers of the node; None
        if no other home of the node is up.

        Args:
            then: called with the name of the shard, or with the exchange's name if the exchange no longer has shards.
        """

    def join(self, method: m.BasicConsume, membership: GroupArguments) -> Waiting | None:
        """Join a consumer group of an exchange, at all reachable homes.

        Raises:
            AMQPError: this home refuses the member.
        """

    def get(
        self, queue: DeclaredQueue, method: m.BasicGet, then: Callable[[m.BasicGetOk, Message], None], empty: Then
    ) -> Waiting:
        """Run ``basic.get`` at the queue's home.

        Args:
            then: called with the message and its complete body; the message is settled at its home.
        """

    def cancel(self, tag: str, then: Callable[[], None]) -> Waiting | None:
        """Cancel a remote consumer; ``then`` is called after deliveries on their way. None for a local consumer."""

    def set_prefetch(self) -> None:
        """Send a changed prefetch of the whole channel to the homes."""

    def make_room(self) -> None:
        """Resume deliveries when the client reads again."""

    def consumers_of(self, queue: DeclaredQueue) -> float:
        """Return the number of this home's consumers of a remote queue."""

    def close(self) -> None:
        """Close the remote channels; their homes requeue unacknowledged messages."""


class _NoRemote:
    """Remote channels of a channel whose queues are all local."""

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

    def join(self, method: m.BasicConsume, membership: GroupArguments) -> Waiting | None:
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


def no_remote(channel: object) -> RemoteChannels:
    """Return the remote channels of a channel in a broker of one process: none."""
    return _NO_REMOTE


def _absent(queue: DeclaredQueue) -> NotFound:
    return NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' is at no other home")
