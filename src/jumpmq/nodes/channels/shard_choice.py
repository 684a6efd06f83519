"""Choice of a shard of a sharded exchange for a consumer, made by a single home of the node for all clients.

The running home of the node with the lowest number is the *chooser*. A choice takes these steps:

1. A channel of another home sends a request to the chooser (``CHOOSE``).
2. The chooser asks all homes of the node for the number of their clients' consumers per shard of the exchange
   (``COUNT``, ``COUNTED``).
3. The chooser gives each request a shard with the fewest consumers, and answers (``CHOSEN``). Requests that arrive
   during a round wait for the next round.

Two rules make the counts exact:

- Only the client's home counts a consumer, from the moment when the consumer is given a shard (:attr:`_given`). The
  home counts the consumer before it answers the next ``COUNT``, which follows ``CHOSEN`` on the same link.
- A home takes a consumer off its count before it sends the client ``basic.cancel-ok`` or ``connection.close-ok``. A
  choice made after that does not count the consumer.

Consumers whose clients are at other nodes are counted by the home of the shard.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumpmq.broker.channel.waiting import Waiting
from jumpmq.nodes.channels.served_channels import client_home
from jumpmq.nodes.transport.records import CHOOSE, CHOSEN, COUNT, COUNTED

if TYPE_CHECKING:
    from jumpmq.broker.channel.remote import LinkedChannel
    from jumpmq.broker.commit.turns import Turns
    from jumpmq.nodes.transport.link import Link
    from jumpmq.nodes.transport.links import Links
    from jumpmq.topology import Topology
    from jumpmq.topology.declared import DeclaredQueue

Name = tuple[str, str]
"""Virtual host and exchange."""

Shard = str | None
"""Name of the chosen shard; None where the exchange has none."""


@dataclass(eq=False, slots=True)
class _Request:
    """A ``basic.consume`` of a client here, which waits for a shard.

    Attributes:
        chooser: the home that received the request.
    """

    name: Name
    waiting: Waiting
    channel: LinkedChannel
    chooser: int = 0
    shard: Shard = None


@dataclass(eq=False, slots=True)
class _Round:
    """Choice for all requests made before the start of the round.

    Attributes:
        asked: the requesting home and the callback of each request.
        later: requests for the next round.
        silent: homes that have not sent their counts.
        counts: consumers, by the id of the shard.
    """

    number: int
    asked: list[tuple[int, Callable[[DeclaredQueue | None], None]]]
    later: list[tuple[int, Callable[[DeclaredQueue | None], None]]] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    counts: Counter[int] = field(default_factory=Counter)
    timer: asyncio.TimerHandle | None = None


class ShardChoice:
    """Requests shard choices for clients here, and makes choices for other homes of the node.

    Args:
        consumers: number of local clients' consumers at other homes, by the id of the queue.
    """

    def __init__(self, links: Links, turns: Turns, consumers: Counter[int]) -> None:
        self._links = links  # to all peers
        self._turns = turns  # those of the broker
        self._consumers = consumers
        self._topology: Topology | None = None  # None before the queues are restored
        self._numbers = itertools.count(1)  # of requests, and of rounds
        self._requests: dict[int, _Request] = {}  # of clients here
        self._given: dict[LinkedChannel, int] = {}  # shards, by id, that channels here are about to consume from
        self._rounds: dict[Name, _Round] = {}  # while this home is the chooser
        links.handlers[CHOOSE] = self._asked
        links.handlers[CHOSEN] = self._chosen
        links.handlers[COUNT] = self._count
        links.handlers[COUNTED] = self._counted
        links.on_down.append(self._down)

    def serve(self, topology: Topology) -> None:
        """Start serving, as the queues are ready."""
        self._topology = topology

    def choose(self, channel: LinkedChannel, exchange: str, then: Callable[[str], Waiting | None]) -> Waiting | None:
        """See :meth:`jumpmq.broker.channel.remote.RemoteChannels.choose`."""
        if not self._others():
            return None
        request = _Request((channel.connection.vhost.name, exchange), Waiting(lambda: None), channel)

        def is_counted() -> Waiting | None:
            self._given.pop(channel, None)  # from now on the queue counts it; a refused channel is closed
            return None

        def go_on() -> Waiting | None:
            more = then(exchange if request.shard is None else request.shard)
            if more is not None:
                return more.followed_by(is_counted)
            return is_counted()

        request.waiting.go_on = go_on
        self._ask(request)
        return request.waiting

    def _ask(self, request: _Request) -> None:
        home = request.chooser = min(self._links.home, *self._others())
        link = self._links.to(home)
        if link is None:
            self._enter(request.name, self._links.home, lambda shard: self._end(request, shard))
            return
        number = next(self._numbers)
        self._requests[number] = request
        link.send(CHOOSE, json.dumps([number, *request.name]).encode())

    def _end(self, request: _Request, shard: DeclaredQueue | None) -> None:
        if shard is not None:
            request.shard = shard.name
            if not request.channel.closed:
                self._given[request.channel] = shard.id
        request.waiting.end()

    def _chosen(self, link: Link, payload: memoryview) -> None:
        number, shard = json.loads(bytes(payload))
        request = self._requests.pop(number, None)
        if request is not None:
            vhost = self._served.vhosts.get(request.name[0])
            self._end(request, vhost.declared.get(shard) if vhost is not None and shard is not None else None)

    # --- the chooser ---

    @property
    def _served(self) -> Topology:
        assert self._topology is not None, "asked before queues are there"
        return self._topology

    def _others(self) -> list[int]:
        """Return the node's linked other homes."""
        topology = self._served
        return [home for home in self._links.homes if topology.homes.get(home) == topology.node]

    def _asked(self, link: Link, payload: memoryview) -> None:
        number, vhost, exchange = json.loads(bytes(payload))

        def answer(shard: DeclaredQueue | None) -> None:
            if self._links.to(link.peer) is link:
                link.send(CHOSEN, json.dumps([number, shard and shard.name]).encode())

        if self._topology is None:
            answer(None)
        else:
            self._enter((vhost, exchange), link.peer, answer)

    def _enter(self, name: Name, home: int, answer: Callable[[DeclaredQueue | None], None]) -> None:
        """Add a request to the next round of an exchange."""
        if (running := self._rounds.get(name)) is not None:
            running.later.append((home, answer))
        else:
            self._begin(name, [(home, answer)])

    def _begin(self, name: Name, asked: list[tuple[int, Callable[[DeclaredQueue | None], None]]]) -> None:
        number = next(self._numbers)
        begun = self._rounds[name] = _Round(number, asked)
        for home in self._others():
            if (link := self._links.to(home)) is not None:
                begun.silent.add(home)
                link.send(COUNT, json.dumps([number, *name]).encode())
        if begun.silent:
            patience = self._links.timing.count_patience
            begun.timer = asyncio.get_running_loop().call_later(patience, self._too_late, name, begun)
        else:
            self._decide(name, begun)

    def _counted(self, link: Link, payload: memoryview) -> None:
        number, vhost, exchange, counts = json.loads(bytes(payload))
        begun = self._rounds.get((vhost, exchange))
        if begun is not None and begun.number == number and link.peer in begun.silent:
            begun.counts.update({int(queue): count for queue, count in counts.items()})
            self._answered((vhost, exchange), begun, link.peer)

    def _answered(self, name: Name, begun: _Round, home: int) -> None:
        begun.silent.discard(home)
        if not begun.silent:
            self._decide(name, begun)

    def _too_late(self, name: Name, begun: _Round) -> None:
        if self._rounds.get(name) is begun:
            with self._turns.turn():
                self._decide(name, begun)

    def _decide(self, name: Name, begun: _Round) -> None:
        if begun.timer is not None:
            begun.timer.cancel()
        begun.counts.update(self._counts(name))
        shards = spread(self._shards(name), begun.counts, [home for home, _ in begun.asked])
        for (_, answer), shard in zip(begun.asked, shards, strict=True):
            answer(shard)
        del self._rounds[name]
        if begun.later:
            self._begin(name, begun.later)

    def _down(self, link: Link) -> None:
        for name, begun in list(self._rounds.items()):
            if link.peer in begun.silent:
                self._answered(name, begun, link.peer)
        for number, request in list(self._requests.items()):
            if request.chooser == link.peer:
                del self._requests[number]
                self._ask(request)

    # --- counts ---

    def _shards(self, name: Name) -> list[DeclaredQueue]:
        vhost = self._served.vhosts.get(name[0])
        return [] if vhost is None else self._served.sharding.local_shards(vhost, name[1])

    def _count(self, link: Link, payload: memoryview) -> None:
        number, vhost, exchange = json.loads(bytes(payload))
        counts = self._counts((vhost, exchange)) if self._topology is not None else {}
        link.send(COUNTED, json.dumps([number, vhost, exchange, counts]).encode())

    def _counts(self, name: Name) -> Counter[int]:
        """Return the consumers counted by this home, by the id of the shard."""
        found: Counter[int] = Counter()
        others = set(self._others())
        for shard in self._shards(name):
            if shard.contents is None:
                count = self._consumers[shard.id]
            else:
                count = sum(client_home(consumer) not in others for consumer in shard.contents.consumers)
            if count:
                found[shard.id] = count
        for channel, shard_id in list(self._given.items()):
            if channel.closed:  # closed before its consumer was registered
                del self._given[channel]
            else:
                found[shard_id] += 1
        return found


def spread(shards: list[DeclaredQueue], counts: Counter[int], homes: Iterable[int]) -> list[DeclaredQueue | None]:
    """Return a shard for each request: a shard with the fewest consumers. Among these, a shard at the requesting home
    is preferred, then the first.

    Args:
        shards: all shards, in order.
        counts: consumers by the id of the shard; updated with the choices.
        homes: the requesting homes.
    """
    given: list[DeclaredQueue | None] = []
    fewest: dict[int, deque[tuple[int, DeclaredQueue]]] = {}  # by home, with their positions
    for home in homes:
        if not fewest and shards:
            least = min(counts[shard.id] for shard in shards)
            for place, shard in enumerate(shards):
                if counts[shard.id] == least:
                    fewest.setdefault(shard.definition.home, deque()).append((place, shard))
        if not fewest:
            given.append(None)
            continue
        at = home if home in fewest else min(fewest, key=lambda one: fewest[one][0][0])
        _, chosen = fewest[at].popleft()
        if not fewest[at]:
            del fewest[at]
        counts[chosen.id] += 1
        given.append(chosen)
    return given
