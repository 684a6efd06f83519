"""The figures of several homes, put together by the one that answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import Any, Protocol

from jumpmq.broker.errors import HomeUnreachable
from jumpmq.broker.figures.home import HomeFigures
from jumpmq.broker.figures.values import (
    LEVELS_OF_QUEUES,
    OF_QUEUES,
    ChannelFigures,
    ChannelId,
    ConnectionFigures,
    ConnectionId,
    ConsumerFigures,
    ConsumerGroupFigures,
    ConsumerId,
    Counts,
    ExchangeId,
    GroupOffsetFigures,
    HomeState,
    NodeFigures,
    PublisherFigures,
    QueueCounts,
    QueueFenceFigures,
    QueueFigures,
    ReaderFigures,
    RingTrafficFigures,
)
from jumpmq.nodes.management.merged_groups import merged_groups
from jumpmq.topology import ConsistentHashExchange
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import ModulusHashExchange
from jumpmq.topology.tally import Tally

AT_ONCE = 250
"""Figures that are given together, as :class:`HomeFigures` does."""

ASKED_AT_ONCE = 500
"""Queues that a home is asked for at once."""

QueueRef = tuple[str, str, int]
"""Virtual host, name and id of a queue."""


class OtherHome(Protocol):
    """Another home, as far as it tells figures."""

    @property
    def home(self) -> int:
        """Its number."""

    def read(self, figures: str, *arguments: Any) -> AsyncIterator[list[Any]]:
        """What a function of its :class:`HomeFigures` returns, in parts; a single value is a part of one.

        Args:
            arguments: as JSON has them; a :data:`QueueRef` stands for a queue.

        Raises:
            HomeUnreachable: it does not answer.
        """


class MergedFigures:
    """As :class:`HomeFigures`, of all homes. What a home that is down would tell is left out, but for its queues, which
    are shown as down.

    What is told without waiting (:meth:`exchange` to :meth:`node`) is of other homes as of the last :meth:`refresh`.

    Args:
        own: of this process.
        others: all homes but this one, by number.
    """

    def __init__(self, own: HomeFigures, others: Mapping[int, OtherHome]) -> None:
        self._own = own
        self._others = others
        self._found: dict[int, HomeState] = {}  # of the others that answered, when they were last asked

    @property
    def _states(self) -> dict[int, HomeState]:
        return self._found

    async def refresh(self) -> None:
        """Ask the other homes how they are."""
        found = await asyncio.gather(*(self._list(other, "state") for other in self._others.values()))
        self._found = {state.home: state for (state,) in filter(None, found)}

    def of(self, others: Mapping[int, OtherHome]) -> MergedFigures:
        """The same of this home and of some others only, such as those of its node."""
        return _OfSome(self, self._own, others)

    # --- queues and their consumers ---

    async def queue_counts(self, vhost: str) -> AsyncIterator[list[QueueCounts]]:
        async for part in self._own.queue_counts(vhost):
            yield part
        async for part in self._from_others("queue_counts", vhost):
            yield part

    async def queue(self, definition: QueueDefinition) -> QueueFigures | None:
        return (await self.queues([definition]))[0]

    async def queues(self, definitions: Iterable[QueueDefinition]) -> list[QueueFigures | None]:
        wanted = list(definitions)
        found: list[QueueFigures | None] = await self._by_home("queues", wanted, _down)
        return found

    async def counts(self, definitions: Iterable[QueueDefinition]) -> list[Counts | None]:
        found: list[Counts | None] = await self._by_home("counts", list(definitions), lambda definition: None)
        return found

    async def consumers_of(self, definition: QueueDefinition, most: int | None = None) -> list[ConsumerFigures]:
        other = self._others.get(definition.home)
        if other is None:
            return await self._own.consumers_of(definition, most)
        return await self._list(other, "consumers_of", _ref(definition), most)

    async def consumers(self, vhosts: Iterable[str]) -> list[ConsumerFigures]:
        names = list(vhosts)
        return await self._own.consumers(names) + await self._of_others("consumers", names)

    async def consumer_counts(self) -> AsyncIterator[list[tuple[ConsumerId, Counts]]]:
        async for part in self._own.consumer_counts():
            yield part
        async for part in self._from_others("consumer_counts"):
            yield part

    async def consumer_count(self, vhosts: Iterable[str]) -> int:
        names = list(vhosts)
        others: list[int] = await self._of_others("consumer_count", names)
        return await self._own.consumer_count(names) + sum(others)

    async def consumer_groups(self, vhosts: Iterable[str]) -> list[ConsumerGroupFigures]:
        names = list(vhosts)
        return merged_groups(await self._own.consumer_groups(names) + await self._of_others("consumer_groups", names))

    async def fences(self, vhosts: Iterable[str]) -> list[QueueFenceFigures]:
        names = list(vhosts)
        return await self._own.fences(names) + await self._of_others("fences", names)

    async def group_offsets(self, vhosts: Iterable[str]) -> list[GroupOffsetFigures]:
        names = list(vhosts)
        return await self._own.group_offsets(names) + await self._of_others("group_offsets", names)

    async def readers(self) -> list[ReaderFigures]:
        return await self._own.readers() + await self._of_others("readers")

    async def ring_traffic(self, vhost: str | None = None, name: str | None = None) -> list[RingTrafficFigures]:
        return await self._own.ring_traffic(vhost, name) + await self._of_others("ring_traffic", vhost, name)

    async def unread(self, vhost: str) -> list[tuple[str, int]]:
        return await self._own.unread(vhost) + await self._of_others("unread", vhost)

    # --- connections and channels ---

    async def connections(self) -> list[ConnectionFigures]:
        return await self._own.connections() + await self._of_others("connections")

    async def owner(self, identity: str) -> ConnectionFigures | None:
        return await self._own.owner(identity) or await self._first("owner", identity)

    async def connections_named(self, name: str) -> list[ConnectionFigures]:
        return await self._own.connections_named(name) + await self._of_others("connections_named", name)

    async def channels(self) -> list[ChannelFigures]:
        return await self._own.channels() + await self._of_others("channels")

    async def channels_of(self, connection: ConnectionId) -> list[ChannelFigures]:
        return await self._own.channels_of(connection) or await self._of_others("channels_of", connection)

    async def channels_named(self, name: str) -> list[ChannelFigures]:
        return await self._own.channels_named(name) + await self._of_others("channels_named", name)

    async def consumers_of_channel(self, connection: ConnectionId, number: int) -> list[ConsumerFigures]:
        here = await self._own.consumers_of_channel(connection, number)
        return here + await self._of_others("consumers_of_channel", connection, number)

    async def publishers(self, vhost: str, exchange: str) -> list[PublisherFigures]:
        others = await self._of_others("publishers", vhost, exchange)
        return await self._own.publishers(vhost, exchange) + others

    async def connection_counts(self) -> AsyncIterator[list[tuple[ConnectionId, Counts]]]:
        async for part in self._own.connection_counts():
            yield part
        async for part in self._from_others("connection_counts"):
            yield part

    async def channel_counts(self) -> AsyncIterator[list[tuple[ChannelId, Counts]]]:
        async for part in self._own.channel_counts():
            yield part
        async for part in self._from_others("channel_counts"):
            yield part

    # --- everything else ---

    def exchange(self, vhost: str, name: str) -> Counts:
        wanted = vhost, name
        others = [counts for state in self._states.values() for one, counts in state.exchanges if one == wanted]
        return _sum([self._own.exchange(vhost, name), *others])

    def missing(self, exchange: ConsistentHashExchange | ModulusHashExchange) -> int:
        wanted = exchange.vhost, exchange.name
        others = (count for state in self._states.values() for one, count in state.missing if one == wanted)
        return self._own.missing(exchange) + sum(others)

    async def exchange_counts(self) -> AsyncIterator[list[tuple[ExchangeId, Counts]]]:
        await self.refresh()
        others: dict[ExchangeId, list[Counts]] = {}
        for state in self._states.values():
            for one, counts in state.exchanges:
                others.setdefault(one, []).append(counts)
        async for part in self._own.exchange_counts():
            yield [(one, _sum([counts, *others.get(one, ())])) for one, counts in part]

    def churn(self) -> Counts:
        return _sum([self._own.churn(), *(state.churn for state in self._states.values())])

    def tallies(self) -> dict[str, Tally]:
        found = self._own.tallies()
        for state in self._states.values():
            for vhost, tally in state.tallies.items():
                if vhost in found:
                    found[vhost].add(tally)
        return found

    def past_tally(self) -> Tally:
        found = Tally()
        for tally in (self._own.past_tally(), *(state.past_tally for state in self._states.values())):
            found.add(tally)
        return found

    def past_queues(self, vhost: str) -> Counts:
        others = [state.past_queues[vhost] for state in self._states.values() if vhost in state.past_queues]
        return _sum([self._own.past_queues(vhost), *others])

    async def by_kind(self) -> dict[str, Tally]:
        found = await self._own.by_kind()
        for others in await self._of_others("by_kind"):
            for kind, tally in others.items():
                found.setdefault(kind, Tally()).add(tally)
        return found

    def states(self) -> list[HomeState]:
        """Each home that answered when it was last asked, at a glance, this one first."""
        return [self._own.state(), *self._states.values()]

    def down(self) -> list[int]:
        """The homes that did not answer when they were last asked."""
        return sorted(self._others.keys() - self._states)

    def node(self) -> NodeFigures:
        """This node: what its homes use and may use together. All are on one disk."""
        return _together([one for one in self._nodes() if one.name == self._own.node().name])

    def nodes(self) -> dict[str, NodeFigures]:
        """The nodes that answered when they were last asked, by name."""
        found: dict[str, list[NodeFigures]] = {}
        for one in self._nodes():
            found.setdefault(one.name, []).append(one)
        return {name: _together(homes) for name, homes in found.items()}

    def _nodes(self) -> list[NodeFigures]:
        """By home, this one first."""
        return [self._own.node(), *(state.node for state in self._states.values())]

    # --- asking ---

    async def _list(self, other: OtherHome, figures: str, *arguments: Any) -> list[Any]:
        """All parts; nothing of a home that is down."""
        try:
            return [one async for part in other.read(figures, *arguments) for one in part]
        except HomeUnreachable:
            return []

    async def _of_others(self, figures: str, *arguments: Any) -> list[Any]:
        found = await asyncio.gather(*(self._list(other, figures, *arguments) for other in self._others.values()))
        return [one for part in found for one in part]

    async def _first(self, figures: str, *arguments: Any) -> Any:
        return next((one for one in await self._of_others(figures, *arguments) if one is not None), None)

    async def _from_others(self, figures: str, *arguments: Any) -> AsyncIterator[list[Any]]:
        for other in self._others.values():
            try:
                async for part in other.read(figures, *arguments):
                    yield part
            except HomeUnreachable:
                continue

    async def _by_home(self, figures: str, definitions: list[QueueDefinition], missing: Any) -> list[Any]:
        """What the homes of queues tell of them, in the order given.

        Args:
            missing: makes what is told of a queue whose home is down.
        """
        places: dict[int, list[int]] = {}
        for place, definition in enumerate(definitions):
            places.setdefault(definition.home if definition.home in self._others else 0, []).append(place)
        found: list[Any] = [None] * len(definitions)

        async def ask(home: int, run: list[int]) -> None:
            wanted = [definitions[place] for place in run]
            if not home:
                told: Iterable[Any] = await getattr(self._own, figures)(wanted)
            else:
                told = await self._told(self._others[home], figures, wanted, missing)
            for place, one in zip(run, told, strict=True):
                found[place] = one

        await asyncio.gather(*(ask(home, run) for home, run in places.items()))
        return found

    async def _told(self, other: OtherHome, figures: str, wanted: list[QueueDefinition], missing: Any) -> list[Any]:
        told: list[Any] = []
        for run in _runs(wanted):
            try:
                told += [one async for part in other.read(figures, [_ref(one) for one in run]) for one in part]
            except HomeUnreachable:
                return told + [missing(one) for one in wanted[len(told) :]]
        return told


class _OfSome(MergedFigures):
    """Of some homes: how the others are is known by what all have told."""

    def __init__(self, whole: MergedFigures, own: HomeFigures, others: Mapping[int, OtherHome]) -> None:
        super().__init__(own, others)
        self._whole = whole  # of all homes

    @property
    def _states(self) -> dict[int, HomeState]:
        return {home: state for home, state in self._whole._states.items() if home in self._others}

    async def refresh(self) -> None:
        await self._whole.refresh()


def _together(homes: list[NodeFigures]) -> NodeFigures:
    """A node, of its homes."""
    held: dict[str, int] = {}
    links: dict[int, tuple[int, int]] = {}
    for one in homes:
        for kind, octets in one.held.items():
            held[kind] = held.get(kind, 0) + octets
        for home, unsent, sent in one.links:
            before = links.get(home, (0, 0))
            links[home] = before[0] + unsent, before[1] + sent
    sums = ("resident", "memory_limit", "losses", "files", "files_limit", "connections", "connections_limit")
    return homes[0]._replace(
        **{name: sum(getattr(one, name) for one in homes) for name in (*sums, "blocked", "cpu")},
        held=held,
        links=[(home, *octets) for home, octets in sorted(links.items())],
        memory_alarm=any(one.memory_alarm for one in homes),
        disk_alarm=any(one.disk_alarm for one in homes),
        commit_waiting=max(one.commit_waiting for one in homes),
    )


def _runs(items: list[QueueDefinition]) -> Iterator[list[QueueDefinition]]:
    for start in range(0, len(items), ASKED_AT_ONCE):
        yield items[start : start + ASKED_AT_ONCE]


def _ref(definition: QueueDefinition) -> QueueRef:
    return definition.vhost, definition.name, definition.id


def _sum(counts: Sequence[Counts]) -> Counts:
    total, *others = counts
    for one in others:
        total = tuple(map(add, total, one))
    return total


NO_COUNTS = (0,) * len((*OF_QUEUES, *LEVELS_OF_QUEUES))


def _down(definition: QueueDefinition) -> QueueFigures:
    """What is shown of a queue whose home is down."""
    return QueueFigures(
        id=definition.id,
        type=definition.type,
        node=definition.node,
        append_only=False,
        counts=NO_COUNTS,
        consumers=0,
        memory=0,
        last_seq=0,
        messages=None,
        head_timestamp=None,
        exclusive_consumer_tag=None,
        single_active_consumer_tag=None,
        automatic=False,
        exhausted=False,
        max_length=None,
        overflow="drop-head",
        status={},
        state="down",
    )
