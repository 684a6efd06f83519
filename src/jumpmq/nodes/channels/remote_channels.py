"""Client's side of remote channels: a channel's requests for queues at other homes.

A channel opens one remote channel at each home to which it sends a request. The home serves the remote channel like a
channel of its own clients (:mod:`jumpmq.nodes.channels.served_channels`), and numbers the deliveries. The client's
channel replaces these numbers by its own delivery tags. A delivery from another home is a message whose queue is a
:class:`~jumpmq.nodes.channels.remote_consumers.RemoteQueue`; settling the message sends the outcome to the home. The
client's home checks permissions; the other home checks the state of queues and consumers.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.group_consumer import GroupArguments
from jumpmq.broker.channel.remote import Then
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.security.tokens import to_values
from jumpmq.nodes.channels.group_members import SpreadMember
from jumpmq.nodes.channels.remote_channel import Answered, RemoteChannel, Request, down
from jumpmq.nodes.channels.remote_consumers import RemoteConsumer
from jumpmq.nodes.channels.shard_choice import ShardChoice
from jumpmq.nodes.messages.enqueue import HOLD_TIMEOUT
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import (
    ASKED,
    CLOSE,
    FRAMES,
    METHOD,
    NUMBER,
    OPEN,
    PREFETCH,
    TWO,
)
from jumpmq.nodes.transport.windows import Owed
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel

RESUME_TIMEOUT = 60.0
"""Maximum time in seconds for which a consumer waits for a lost home to return, before the consumer is cancelled."""


class ChannelLinks:
    """All remote channels of the process's clients.

    Args:
        is_ready: tells whether a home has restored its queues.
        comes_back: tells whether another node will soon serve a home without a link. Requests for its queues then wait,
            and its consumers are opened again.

    Attributes:
        is_ready, comes_back: the arguments.
        consumers: number of open consumers, by the id of the queue.
        shard_choice: chooses shards for consumers, also for consumers of other homes.
        members: members of consumer groups with parts at all homes.
    """

    def __init__(
        self, links: Links, turns: Turns, is_ready: Callable[[int], bool], comes_back: Callable[[int], bool]
    ) -> None:
        self.links = links
        self._turns = turns
        self.comes_back = comes_back
        self.is_ready = is_ready
        self._awaited: dict[int, list[Waiting]] = {}  # waits for homes to return
        self.consumers: Counter[int] = Counter()
        self.shard_choice = ShardChoice(links, turns, self.consumers)
        self._numbers = itertools.count(1)  # of remote channels
        self._remotes: dict[int, RemoteChannel] = {}  # by number
        self._owed: WeakValueDictionary[tuple[str, int], Owed] = WeakValueDictionary()  # by client and home
        self.members: set[SpreadMember] = set()
        links.handlers[FRAMES] = self._take
        links.on_down.append(self._down)
        links.on_up.append(self._up)

    def of(self, channel: "Channel") -> "_OfChannel":
        """Return the remote channels of a channel, all still closed."""
        return _OfChannel(self, channel)

    def open(self, channel: "Channel", link: Link) -> RemoteChannel:
        """Open a remote channel."""
        number = next(self._numbers)
        client = channel.connection
        owed = self._owed.setdefault((client.identity, link.peer), Owed())
        remote = self._remotes[number] = RemoteChannel(self, channel, link, number, owed)
        user, scopes, until = to_values(client.user)
        opened = {
            "number": number,
            "channel": channel.number,
            "identity": client.identity,
            "name": client.name,
            "user": user,
            "scopes": scopes,
            "until": until,
            "vhost": client.vhost.name,
            "peer": [client.peer_host, client.peer_port],
            "node": client.node,
            "provided_name": client.provided_name,
        }
        remote.send(OPEN, json.dumps(opened).encode())
        return remote

    def close(self, remote: RemoteChannel) -> None:
        """Close a remote channel."""
        for consumer in list(remote.consumers.values()):
            remote.forget(consumer)
        remote.make_room()
        remote.send(CLOSE, NUMBER.pack(remote.number))
        remote.gone = True
        self._remotes.pop(remote.number, None)

    def _take(self, link: Link, payload: memoryview) -> None:
        remote = self._remotes.get(NUMBER.unpack_from(payload)[0])
        if remote is not None:
            remote.take(payload)

    def wait_for(self, home: int, seconds: float = HOLD_TIMEOUT) -> Waiting:
        """Wait until a home has restored its queues, at most the given number of seconds."""
        waiting = Waiting(lambda: None)
        self._awaited.setdefault(home, []).append(waiting)
        asyncio.get_running_loop().call_later(seconds, self._give_up, home, waiting)
        return waiting

    def _give_up(self, home: int, waiting: Waiting) -> None:
        """Stop waiting for a home that has not returned."""
        if waiting in (awaited := self._awaited.get(home, [])):
            awaited.remove(waiting)
            waiting.end()

    def ready(self, link: Link) -> None:
        """End the waits for a home that has restored its queues."""
        for waiting in self._awaited.pop(link.peer, ()):
            waiting.end()

    def resume(self, consumer: RemoteConsumer) -> None:
        """Reopen a consumer of a lost home, once another node has loaded the queues of the home."""

        def resume() -> None:
            with self._turns.turn():
                consumer.resume()

        self.wait_for(consumer.declared.definition.home, RESUME_TIMEOUT).on_end(resume)

    def _up(self, link: Link) -> None:
        for member in list(self.members):
            member.home_up(link.peer)

    def _down(self, link: Link) -> None:
        for remote in [one for one in self._remotes.values() if one.link is link]:
            del self._remotes[remote.number]
            remote.lose()


class _OfChannel:
    """See :class:`~jumpmq.broker.channel.remote.RemoteChannels`."""

    shares_groups = True

    def __init__(self, ends: ChannelLinks, channel: "Channel") -> None:
        self._ends = ends  # all remote channels of the process
        self._channel = channel  # the client's channel
        self._remotes: dict[int, RemoteChannel] = {}  # by home

    def ask(self, queue: DeclaredQueue, method: m.Method, then: Then) -> Waiting:
        return self._ask(queue, method, lambda answer, message: then(answer))

    def _ask(self, queue: DeclaredQueue, method: m.Method, then: Answered) -> Waiting:
        home = queue.definition.home

        def ask() -> Waiting:
            remote = self.at(home)
            if remote is None:
                raise down(self._channel, queue)
            return self.ask_at(remote, method, then, queue).waiting

        if self._ends.comes_back(home) and not self._ends.is_ready(home):
            return self._ends.wait_for(home).followed_by(ask)
        return ask()

    def ask_at(
        self, remote: RemoteChannel, method: m.Method, then: Answered, queue: DeclaredQueue | None = None
    ) -> Request:
        def go_on() -> None:
            if request.raised:
                raise request.raised[0]

        request = Request(queue, then, Waiting(go_on))
        remote.requests.append(request)
        channel = self._channel
        head = ASKED.pack(remote.number, channel.consumer_prefetch, channel.prefetch)
        remote.send(METHOD, head, method.encode())
        return request

    def at(self, home: int) -> RemoteChannel | None:
        remote = self._remotes.get(home)
        if remote is None or remote.gone:
            link = self._ends.links.to(home)
            if link is None:
                return None
            remote = self._remotes[home] = self._ends.open(self._channel, link)
        return remote

    @property
    def up(self) -> list[int]:
        return self._ends.links.homes

    def close_unused(self, home: int) -> None:
        remote = self._remotes.get(home)
        if remote is not None and not (remote.gone or remote.consumers or remote.requests):
            self._ends.close(remote)

    def follow(self, member: SpreadMember) -> None:
        self._ends.members.add(member)

    def follow_no_more(self, member: SpreadMember) -> None:
        self._ends.members.discard(member)

    def join(self, method: m.BasicConsume, membership: GroupArguments) -> Waiting | None:
        return SpreadMember(self._channel, self, method, membership).begin()

    def consume(self, queue: DeclaredQueue, method: m.BasicConsume) -> Waiting:
        channel = self._channel

        def consumes(answer: m.Method, message: Message | None) -> None:
            remote = self._remotes[queue.definition.home]
            consumer = RemoteConsumer(channel, remote, queue, remote.queue(queue), method, self._resume)
            remote.add(consumer)
            channel.add(consumer)
            if not method.no_wait:
                channel.send(m.BasicConsumeOk(consumer.tag))

        return self._ask(queue, replace(method, no_wait=False), consumes)

    def _resume(self, consumer: RemoteConsumer, method: m.BasicConsume) -> None:
        """Open a consumer again; unsettled messages are delivered again."""
        if self._channel.closed or self._channel.consumers.get(consumer.tag) is not consumer:
            return
        queue = consumer.declared
        remote = self.at(queue.definition.home)
        if remote is None:
            consumer.cancelled()
            return

        def consumes(answer: m.Method, message: Message | None) -> None:
            consumer.remote, consumer.queue = remote, remote.queue(queue)
            remote.add(consumer)

        request = self.ask_at(remote, replace(method, no_wait=False), consumes, queue)
        request.waiting.on_end(lambda: consumer.cancelled() if request.raised else None)

    def choose(self, exchange: str, then: Callable[[str], Waiting | None]) -> Waiting | None:
        return self._ends.shard_choice.choose(self._channel, exchange, then)

    def get(
        self, queue: DeclaredQueue, method: m.BasicGet, then: Callable[[m.BasicGetOk, Message], None], empty: Then
    ) -> Waiting:
        def answered(answer: m.Method, message: Message | None) -> None:
            if message is not None and isinstance(answer, m.BasicGetOk):
                message.queue = self._remotes[queue.definition.home].queue(queue)
                then(answer, message)
            else:
                empty(answer)

        return self._ask(queue, method, answered)

    def cancel(self, tag: str, then: Callable[[], None]) -> Waiting | None:
        consumer = self._channel.consumers.get(tag)
        if isinstance(consumer, SpreadMember):
            return consumer.cancel(then)
        if not isinstance(consumer, RemoteConsumer):
            return None

        def cancelled(answer: m.Method) -> None:
            consumer.leave()
            then()

        return self.ask(consumer.declared, m.BasicCancel(tag, False), cancelled)

    @property
    def opened(self) -> Collection[int]:
        return self._remotes

    def queue(self, vhost: VirtualHost, name: str, connection: str) -> DeclaredQueue | None:
        found = vhost.declared.get(name)
        if found is None or found.contents is not None:
            return None
        return vhost.declared_queue(name, connection)

    def set_prefetch(self) -> None:
        for remote in self._remotes.values():
            remote.send(PREFETCH, TWO.pack(remote.number, self._channel.prefetch))

    def make_room(self) -> None:
        for remote in self._remotes.values():
            remote.make_room()

    def consumers_of(self, queue: DeclaredQueue) -> int:
        return self._ends.consumers[queue.id]

    def close(self) -> None:
        for remote in self._remotes.values():
            if not remote.gone:
                self._ends.close(remote)
