"""Statistics of several homes, merged by the answering home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import add
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from jumpmq.broker.errors import HomeUnreachable
from jumpmq.broker.figures.home import HomeFigures
from jumpmq.broker.figures.values import (
    ConsumerFigures,
    Counts,
    ExchangeId,
    HomeState,
    NodeFigures,
    ObjectCounts,
    QueueFigures,
)
from jumpmq.nodes.management.merged_groups import merged_groups
from jumpmq.topology import ConsistentHashExchange
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import ModulusHashExchange
from jumpmq.topology.tally import Tally

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")

AT_ONCE = 250
"""Number of statistics returned together, as by :class:`HomeFigures`."""

ASKED_AT_ONCE = 500
"""Number of queues in a request to a home."""

QueueRef = tuple[str, str, int]
"""Virtual host, name and id of a queue."""


class OtherHome(Protocol):
    """Remote home, as a source of statistics."""

    @property
    def home(self) -> int:
        """Number of the home."""

    def read(self, figures: str, *arguments: Any) -> AsyncIterator[list[Any]]:
        """Yield the result of a method of the home's :class:`HomeFigures`, in parts; a single value is a part with one
        item.

        Args:
            arguments: JSON values; a :data:`QueueRef` stands for a queue.

        Raises:
            HomeUnreachable: the home does not answer.
        """

    def object_counts(self, vhosts: list[str]) -> AsyncIterator[HomeState | ObjectCounts]:
        """Yield the state of the home, then the counters of its objects, as :meth:`HomeFigures.object_counts`.

        Raises:
            HomeUnreachable: the home does not answer.
        """


def _listed(
    figures: Callable[Concatenate[HomeFigures, P], Coroutine[Any, Any, list[T]]],
    merge: Callable[[list[T]], list[T]] = lambda found: found,
) -> Callable[Concatenate[MergedFigures, P], Coroutine[Any, Any, list[T]]]:
    """Merge the lists of all homes, with the local home's first; ``merge`` combines items of several homes."""

    async def merged(self: MergedFigures, /, *given: P.args, **named: P.kwargs) -> list[T]:
        assert not named, "other homes are asked by position"
        here, others = await self.of_all(figures, given)
        return merge([one for part in (here, *others) for one in part])

    return merged


def _total(
    figures: Callable[Concatenate[HomeFigures, P], Coroutine[Any, Any, int]],
) -> Callable[Concatenate[MergedFigures, P], Coroutine[Any, Any, int]]:
    """Return the sum over all homes."""

    async def merged(self: MergedFigures, /, *given: P.args, **named: P.kwargs) -> int:
        here, others = await self.of_all(figures, given)
        return sum([here, *(one for part in others for one in part)])

    return merged


def _first(
    figures: Callable[Concatenate[HomeFigures, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[MergedFigures, P], Coroutine[Any, Any, T]]:
    """Return the statistics of the single home with any, for objects present at a single home. Other homes are asked
    if the local home has none.
    """

    async def merged(self: MergedFigures, /, *given: P.args, **named: P.kwargs) -> T:
        here = await figures(self.own, *given, **named)
        if here:
            return here
        found = await self.of_others(figures.__name__, given)
        if isinstance(here, list):
            return cast(T, [one for part in found for one in part])
        return next((one for part in found for one in part if one is not None), here)

    return merged


def _streamed(
    figures: Callable[Concatenate[HomeFigures, P], AsyncIterator[list[T]]],
) -> Callable[Concatenate[MergedFigures, P], AsyncIterator[list[T]]]:
    """Yield the parts of all homes in sequence, beginning with the local home."""

    async def merged(self: MergedFigures, /, *given: P.args, **named: P.kwargs) -> AsyncIterator[list[T]]:
        async for part in figures(self.own, *given, **named):
            yield part
        for other in self.others.values():
            try:
                async for part in other.read(figures.__name__, *given):
                    yield part
            except HomeUnreachable:
                continue

    return merged


class MergedFigures:
    """:class:`HomeFigures` for all homes: each statistic's merge rule is a row.

    A home that is down has no statistics; only its queues are listed, as down. Synchronous statistics (:meth:`exchange`
    to :meth:`node`) use the other homes' state of the last :meth:`refresh`.

    Args:
        own: statistics of this process.
        others: all other homes, by number.
    """

    queue_counts = _streamed(HomeFigures.queue_counts)

    consumers = _listed(HomeFigures.consumers)
    consumer_count = _total(HomeFigures.consumer_count)
    consumer_groups = _listed(HomeFigures.consumer_groups, merged_groups)
    fences = _listed(HomeFigures.fences)
    group_offsets = _listed(HomeFigures.group_offsets)
    readers = _listed(HomeFigures.readers)
    ring_traffic = _listed(HomeFigures.ring_traffic)
    unread = _listed(HomeFigures.unread)

    connections = _listed(HomeFigures.connections)
    owner = _first(HomeFigures.owner)
    connections_named = _listed(HomeFigures.connections_named)
    channels = _listed(HomeFigures.channels)
    channels_of = _first(HomeFigures.channels_of)
    channels_named = _listed(HomeFigures.channels_named)
    consumers_of_channel = _listed(HomeFigures.consumers_of_channel)
    publishers = _listed(HomeFigures.publishers)

    def __init__(self, own: HomeFigures, others: Mapping[int, OtherHome]) -> None:
        self.own = own
        self.others = others
        self._found: dict[int, HomeState] = {}  # last answers of peers

    @property
    def _states(self) -> dict[int, HomeState]:
        return self._found

    async def object_counts(self, vhosts: Iterable[str]) -> AsyncIterator[ObjectCounts]:
        """Yield the counters of all homes, with the local home's first; request the state of the other homes."""
        vhosts, found = list(vhosts), dict[int, HomeState]()
        async for part in self.own.object_counts(vhosts):
            yield part
        for other in self.others.values():
            try:
                async for one in other.object_counts(vhosts):
                    if isinstance(one, HomeState):
                        found[other.home] = one
                    else:
                        yield one
            except HomeUnreachable:
                continue
        self._found = found

    async def refresh(self) -> None:
        """Request the state of the other homes."""
        self._found = {state.home: state for (state,) in filter(None, await self.of_others("state", ()))}

    def of(self, others: Mapping[int, OtherHome]) -> MergedFigures:
        """Return merged statistics of this home and the given homes only, for example the homes of a node."""
        return _OfSome(self, self.own, others)

    # --- of queues, each of which is at one home ---

    async def queue(self, definition: QueueDefinition) -> QueueFigures | None:
        return (await self.queues([definition]))[0]

    async def queues(self, definitions: Iterable[QueueDefinition]) -> list[QueueFigures | None]:
        def down(definition: QueueDefinition) -> QueueFigures:
            return QueueFigures.down(definition.id, definition.type, definition.node)

        found: list[QueueFigures | None] = await self._by_home("queues", list(definitions), down)
        return found

    async def counts(self, definitions: Iterable[QueueDefinition]) -> list[Counts | None]:
        found: list[Counts | None] = await self._by_home("counts", list(definitions), lambda definition: None)
        return found

    async def consumers_of(self, definition: QueueDefinition, most: int | None = None) -> list[ConsumerFigures]:
        other = self.others.get(definition.home)
        if other is None:
            return await self.own.consumers_of(definition, most)
        return await _list(other, "consumers_of", _ref(definition), most)

    # --- by the state of each home ---

    def exchange(self, vhost: str, name: str) -> Counts:
        wanted = vhost, name
        others = [counts for state in self._states.values() for one, counts in state.exchanges if one == wanted]
        return _sum([self.own.exchange(vhost, name), *others])

    def missing(self, exchange: ConsistentHashExchange | ModulusHashExchange) -> int:
        wanted = exchange.vhost, exchange.name
        others = (count for state in self._states.values() for one, count in state.missing if one == wanted)
        return self.own.missing(exchange) + sum(others)

    async def exchange_counts(self) -> AsyncIterator[list[tuple[ExchangeId, Counts]]]:
        others: dict[ExchangeId, list[Counts]] = {}
        for state in self._states.values():
            for one, counts in state.exchanges:
                others.setdefault(one, []).append(counts)
        async for part in self.own.exchange_counts():
            yield [(one, _sum([counts, *others.get(one, ())])) for one, counts in part]

    def churn(self) -> Counts:
        return _sum([self.own.churn(), *(state.churn for state in self._states.values())])

    def tallies(self) -> dict[str, Tally]:
        found = self.own.tallies()
        for state in self._states.values():
            for vhost, tally in state.tallies.items():
                if vhost in found:
                    found[vhost].add(tally)
        return found

    def past_tally(self) -> Tally:
        found = Tally()
        for tally in (self.own.past_tally(), *(state.past_tally for state in self._states.values())):
            found.add(tally)
        return found

    def past_queues(self, vhost: str) -> Counts:
        others = [state.past_queues[vhost] for state in self._states.values() if vhost in state.past_queues]
        return _sum([self.own.past_queues(vhost), *others])

    async def by_kind(self) -> dict[str, Tally]:
        found = await self.own.by_kind()
        for (others,) in filter(None, await self.of_others("by_kind", ())):
            for kind, tally in others.items():
                found.setdefault(kind, Tally()).add(tally)
        return found

    def states(self) -> list[HomeState]:
        """Return an overview of every home that answered the last request, beginning with the local home."""
        return [self.own.state(), *self._states.values()]

    def down(self) -> list[int]:
        """Return the homes without an answer to the last request."""
        return sorted(self.others.keys() - self._states)

    def node(self) -> NodeFigures:
        """Return the statistics of this node: joint use and limits of the node's homes, all on a single disk."""
        own, *others = self._nodes()
        return _together([own, *(one for one in others if one.name == own.name)])

    def nodes(self) -> dict[str, NodeFigures]:
        """Return the nodes with an answer to the last request, by name."""
        found: dict[str, list[NodeFigures]] = {}
        for one in self._nodes():
            found.setdefault(one.name, []).append(one)
        return {name: _together(homes) for name, homes in found.items()}

    def _nodes(self) -> list[NodeFigures]:
        """Return node statistics by home, beginning with the local home."""
        return [self.own.node(), *(state.node for state in self._states.values())]

    # --- asking ---

    async def of_all(
        self, figures: Callable[Concatenate[HomeFigures, P], Coroutine[Any, Any, T]], given: tuple[Any, ...]
    ) -> tuple[T, list[list[Any]]]:
        """Return the statistics of the local home, and the items of every other home.

        Args:
            given: arguments; an iterable among them is a list at all homes.
        """
        given = tuple(one if one is None or isinstance(one, str | int | tuple) else list(one) for one in given)
        return await figures(self.own, *given), await self.of_others(figures.__name__, given)  # type: ignore[call-arg]

    async def of_others(self, figures: str, given: tuple[Any, ...]) -> list[list[Any]]:
        """Return the items of every other home; none for a home that is down."""
        return await asyncio.gather(*(_list(other, figures, *given) for other in self.others.values()))

    async def _by_home(self, figures: str, definitions: list[QueueDefinition], missing: Any) -> list[Any]:
        """Return statistics of queues from the queues' homes, in the given order.

        Args:
            missing: makes the statistics of a queue whose home is down.
        """
        places: dict[int, list[int]] = {}
        for place, definition in enumerate(definitions):
            places.setdefault(definition.home if definition.home in self.others else 0, []).append(place)
        found: list[Any] = [None] * len(definitions)

        async def ask(home: int, run: list[int]) -> None:
            wanted = [definitions[place] for place in run]
            if not home:
                items: Iterable[Any] = await getattr(self.own, figures)(wanted)
            else:
                items = await self._read(self.others[home], figures, wanted, missing)
            for place, one in zip(run, items, strict=True):
                found[place] = one

        await asyncio.gather(*(ask(home, run) for home, run in places.items()))
        return found

    async def _read(self, other: OtherHome, figures: str, wanted: list[QueueDefinition], missing: Any) -> list[Any]:
        items: list[Any] = []
        for run in _runs(wanted):
            try:
                items += [one async for part in other.read(figures, [_ref(one) for one in run]) for one in part]
            except HomeUnreachable:
                return items + [missing(one) for one in wanted[len(items) :]]
        return items


async def _list(other: OtherHome, figures: str, *arguments: Any) -> list[Any]:
    """Return all items of a home; none while down."""
    try:
        return [one async for part in other.read(figures, *arguments) for one in part]
    except HomeUnreachable:
        return []


class _OfSome(MergedFigures):
    """Merged statistics of some homes; the state of other homes is taken from the statistics of all homes."""

    def __init__(self, whole: MergedFigures, own: HomeFigures, others: Mapping[int, OtherHome]) -> None:
        super().__init__(own, others)
        self._whole = whole  # of all homes

    @property
    def _states(self) -> dict[int, HomeState]:
        return {home: state for home, state in self._whole._states.items() if home in self.others}

    async def refresh(self) -> None:
        await self._whole.refresh()


def _own(values: list[T]) -> T:
    """Take the first value: it is the same at all homes of a node, or cannot be merged."""
    return values[0]


def _added(values: list[Mapping[K, int]]) -> dict[K, int]:
    added: dict[K, int] = {}
    for one in values:
        for key, count in one.items():
            added[key] = added.get(key, 0) + count
    return added


def _added_links(values: list[list[tuple[int, int, int]]]) -> list[tuple[int, int, int]]:
    unsent = _added([{home: octets for home, octets, _ in one} for one in values])
    sent = _added([{home: octets for home, _, octets in one} for one in values])
    return [(home, unsent[home], sent[home]) for home in sorted(unsent)]


def _joined(values: list[list[tuple[str, str, int]]]) -> list[tuple[str, str, int]]:
    """Return the listeners of all homes. A home served by another node's process has no listeners of its own."""
    return list({tuple(one): one for one in chain(*values)}.values())  # JSON has turned tuples into lists


OF_NODE: dict[str, Callable[[list[Any]], Any]] = {
    "name": _own,
    "pid": _own,
    "durable": _own,
    "started_at": min,
    "resident": sum,
    "memory_limit": sum,
    "memory_alarm": any,
    "held": _added,
    "disk_free": _own,
    "disk_free_limit": _own,
    "disk_alarm": any,
    "losses": sum,
    "commit_waiting": max,
    "files": sum,
    "files_limit": sum,
    "connections": sum,
    "connections_limit": sum,
    "blocked": sum,
    "listeners": _joined,
    "links": _added_links,
    "cpu": sum,
}
"""Merge rule per field of :class:`NodeFigures` for the node's homes, all on a single disk."""

OF_PROCESS = frozenset({"resident", "files", "files_limit", "connections_limit", "cpu"})
"""Fields of :class:`NodeFigures` that homes served by the same process have in common."""


def _together(homes: list[NodeFigures]) -> NodeFigures:
    """Return a node's statistics, merged from the node's homes."""
    if len(homes) == 1:
        return homes[0]
    processes = {one.pid: one for one in reversed(homes)}.values()

    def values(name: str) -> list[Any]:
        return [getattr(one, name) for one in (processes if name in OF_PROCESS else homes)]

    return NodeFigures(**{name: merge(values(name)) for name, merge in OF_NODE.items()})


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
