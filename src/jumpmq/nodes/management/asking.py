"""Statistics exchanged between homes: question, and answer in lines of JSON for some items at a time."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import StreamingResponse
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
    PublisherFigures,
    QueueCounts,
    QueueFenceFigures,
    QueueFigures,
    ReaderFigures,
    RingTrafficFigures,
)
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.nodes.management.client import HomeClient
from jumpmq.nodes.management.clients import HomeClients
from jumpmq.topology.tally import Tally

PATH = "/home/figures"

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
"""Statistics available to remote homes: functions of :class:`HomeFigures`, with their result types."""

AT_ONCE = 250
"""Number of statistics written together."""

ANSWER_TIMEOUT = 5.0
"""Maximum time for a home to return statistics, in seconds; a slower home counts as down for statistics."""


class QueueRef(NamedTuple):
    """Reference to a queue in a request."""

    vhost: str
    name: str
    id: int


class AskedHome:
    """Remote home: :class:`jumpmq.nodes.management.merged.OtherHome`."""

    def __init__(self, client: HomeClient) -> None:
        self._client = client

    @property
    def home(self) -> int:
        return self._client.home

    async def read(self, figures: str, *arguments: Any) -> AsyncIterator[list[Any]]:
        question, read = dump([figures, *arguments]), reader(TYPES[figures])
        answer = await self._client.ask(
            "POST", PATH.encode(), body=question, is_repeatable=True, patience=ANSWER_TIMEOUT
        )
        async with answer:
            if answer.status != 200:
                raise HomeUnreachable(self.home, f"status {answer.status}")
            async for line in answer.lines():
                yield [read(one) for one in json.loads(line)]


class AskedHomes(Mapping[int, AskedHome]):
    """All remote homes, by number."""

    def __init__(self, clients: HomeClients) -> None:
        self._clients = clients

    def __getitem__(self, home: int) -> AskedHome:
        return AskedHome(self._clients[home])

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def route(figures: HomeFigures, slices: Slices) -> Route:
    """Return the route for a home's statistics."""

    async def tell(request: Request) -> StreamingResponse:
        name, *arguments = json.loads(await request.body())
        if name == "consumers_of":
            arguments[0] = QueueRef(*arguments[0])
        elif name in ("queues", "counts"):
            arguments[0] = [QueueRef(*one) for one in arguments[0]]
        assert name in TYPES
        told = getattr(figures, name)(*arguments)
        return StreamingResponse(_lines(told, slices), media_type="application/json")

    return Route(PATH, tell, methods=["POST"])


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
