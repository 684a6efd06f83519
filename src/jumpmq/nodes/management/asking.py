"""Statistics exchanged between homes: question, and answer in lines of JSON for some items at a time.

Every second a home requests the state and all counters of every other home, in one request to :data:`COUNTS_PATH`.
A home of an earlier release does not know this path: its state, and each kind of counters, are requested one by one at
:data:`PATH`, as all further statistics are.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from jumpmq.broker.errors import HomeUnreachable
from jumpmq.broker.figures.home import HomeFigures
from jumpmq.broker.figures.plain import dump, reader
from jumpmq.broker.figures.values import (
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
    ObjectCounts,
    PublisherFigures,
    QueueCounts,
    QueueFenceFigures,
    QueueFigures,
    ReaderFigures,
    RingTrafficFigures,
)
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.nodes.management.client import HomeAnswer, HomeClient
from jumpmq.nodes.management.clients import HomeClients
from jumpmq.topology.tally import Tally

PATH, COUNTS_PATH = "/home/figures", "/home/counts"

TYPES: dict[str, Any] = {
    "queue_counts": QueueCounts,
    "queues": QueueFigures | None,
    "counts": Counts | None,
    "consumers_of": ConsumerFigures,
    "consumers": ConsumerFigures,
    "consumer_counts": tuple[ConsumerId, Counts],
    "consumer_count": int,
    "consumer_groups": ConsumerGroupFigures,
    "group_offsets": GroupOffsetFigures,
    "fences": QueueFenceFigures,
    "readers": ReaderFigures,
    "ring_traffic": RingTrafficFigures,
    "unread": tuple[str, int],
    "connections": ConnectionFigures,
    "owner": ConnectionFigures | None,
    "connections_named": ConnectionFigures,
    "channels": ChannelFigures,
    "channels_of": ChannelFigures,
    "channels_named": ChannelFigures,
    "consumers_of_channel": ConsumerFigures,
    "publishers": PublisherFigures,
    "connection_counts": tuple[ConnectionId, Counts],
    "channel_counts": tuple[ChannelId, Counts],
    "exchange_counts": tuple[ExchangeId, Counts],
    "by_kind": dict[str, Tally],
    "state": HomeState,
}
"""Statistics available to other homes: functions of :class:`HomeFigures`, with their result types."""

AT_ONCE = 250
"""Number of statistics written together."""

JOINED = 1 << 16
"""Octets of an answer sent together. An answer with less has a length, and takes a third of the work of a stream."""

ANSWER_TIMEOUT = 5.0
"""Maximum time for a home to return statistics, in seconds; a slower home counts as down for statistics."""

ASKED_AGAIN = 60.0
"""Seconds until a home without :data:`COUNTS_PATH` is asked there again: the home may have been upgraded."""


class QueueRef(NamedTuple):
    """Reference to a queue in a request."""

    vhost: str
    name: str
    id: int


class AskedHome:
    """Remote home: :class:`jumpmq.nodes.management.merged.OtherHome`.

    Args:
        earlier: homes of an earlier release, without :data:`COUNTS_PATH`, each with the time of the next question
            there, by the loop's clock.
    """

    def __init__(self, client: HomeClient, earlier: dict[int, float]) -> None:
        self._client = client
        self._earlier = earlier

    @property
    def home(self) -> int:
        return self._client.home

    async def read(self, figures: str, *arguments: Any) -> AsyncIterator[list[Any]]:
        read = reader(TYPES[figures])
        async with await self._ask(PATH, [figures, *arguments]) as answer:
            self._require(answer)
            async for line in answer.lines():
                yield [read(one) for one in json.loads(line)]

    async def object_counts(self, vhosts: list[str]) -> AsyncIterator[HomeState | ObjectCounts]:
        now = asyncio.get_running_loop().time()
        if self._earlier.get(self.home, now) <= now:
            async with await self._ask(COUNTS_PATH, vhosts) as answer:
                if answer.status != 404:
                    self._earlier.pop(self.home, None)
                    self._require(answer)
                    kinds = iter((HomeState,))
                    async for line in answer.lines():
                        yield reader(next(kinds, ObjectCounts))(json.loads(line))
                    return
                await answer.whole()
                self._earlier[self.home] = now + ASKED_AGAIN
        async for one in self._one_by_one(vhosts):
            yield one

    async def _one_by_one(self, vhosts: list[str]) -> AsyncIterator[HomeState | ObjectCounts]:
        """Yield the same of a home of an earlier release, with a request for each kind of counters."""
        state: HomeState
        async for (state,) in self.read("state"):
            yield state
            yield ObjectCounts(deleted=tuple(one for one in state.past_queues.items() if one[0] in vhosts))
        for vhost in vhosts:
            async for part in self.read("queue_counts", vhost):
                yield ObjectCounts(queues=tuple(part))
        for kind in ("connections", "channels", "consumers"):
            async for part in self.read(f"{kind[:-1]}_counts"):
                yield ObjectCounts()._replace(**{kind: tuple(part)})

    async def _ask(self, path: str, question: list[Any]) -> HomeAnswer:
        body = dump(question)
        return await self._client.ask("POST", path.encode(), body=body, is_repeatable=True, patience=ANSWER_TIMEOUT)

    def _require(self, answer: HomeAnswer) -> None:
        if answer.status != 200:
            raise HomeUnreachable(self.home, f"status {answer.status}")


class AskedHomes(Mapping[int, AskedHome]):
    """All other homes, by number."""

    def __init__(self, clients: HomeClients) -> None:
        self._clients = clients
        self._earlier: dict[int, float] = {}  # homes of an earlier release

    def __getitem__(self, home: int) -> AskedHome:
        return AskedHome(self._clients[home], self._earlier)

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def routes(figures: HomeFigures, slices: Slices) -> list[Route]:
    """Return the routes for a home's statistics."""

    async def tell(request: Request) -> Response:
        name, *arguments = json.loads(await request.body())
        if name == "consumers_of":
            arguments[0] = QueueRef(*arguments[0])
        elif name in ("queues", "counts"):
            arguments[0] = [QueueRef(*one) for one in arguments[0]]
        assert name in TYPES
        told = getattr(figures, name)(*arguments)
        return await _answer(_lines(told, slices))

    async def tell_counts(request: Request) -> Response:
        return await _answer(_counts(figures, json.loads(await request.body())))

    return [Route(COUNTS_PATH, tell_counts, methods=["POST"]), Route(PATH, tell, methods=["POST"])]


async def _lines(told: Any, slices: Slices) -> AsyncIterator[bytes]:
    if inspect.isasyncgen(told):
        async for part in told:
            yield dump(part) + b"\n"
        return
    value = await told if inspect.isawaitable(told) else told
    found = value if isinstance(value, list) else [value]
    for start in range(0, len(found), AT_ONCE):
        yield dump(found[start : start + AT_ONCE]) + b"\n"
        await slices.next()


async def _counts(figures: HomeFigures, vhosts: list[str]) -> AsyncIterator[bytes]:
    yield dump(figures.state()) + b"\n"
    async for part in figures.object_counts(vhosts):
        yield dump(part) + b"\n"


async def _answer(lines: AsyncIterator[bytes]) -> Response:
    parts = _joined(lines)
    first = await anext(parts, b"")
    if len(first) < JOINED:
        return Response(first, media_type="application/json")
    return StreamingResponse(_after(first, parts), media_type="application/json")


async def _after(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part


async def _joined(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield lines together: :data:`JOINED` octets or more at a time, and less only at the end."""
    part = bytearray()
    async for line in lines:
        part += line
        if len(part) >= JOINED:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)
