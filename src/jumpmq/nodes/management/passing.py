"""Requests forwarded to the home of their subject, with answers streamed back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.errors import HomeUnreachable
from jumpmq.broker.figures.plain import dump
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.arrow import ArrowEncoder
from jumpmq.http.plumbing.errors import RefusedByHome
from jumpmq.http.plumbing.forwarding import Bodies
from jumpmq.http.plumbing.sessions_of_readers import joined, part_of
from jumpmq.nodes.management import acting, principals
from jumpmq.nodes.management.client import HomeAnswer
from jumpmq.nodes.management.clients import HomeClients
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue

ADDRESS = b"jumpmq-address"
"""Header with the address of the client."""

NOT_PASSED = frozenset({b"connection", b"transfer-encoding", b"date", b"server", b"keep-alive"})
"""Headers of an answer that concern only the connection between the homes."""

PASSED = frozenset({b"content-type", b"accept", b"x-reason"})
"""Request headers read by the destination home."""


class Passing:
    """Forwards requests to other homes: see :class:`~jumpmq.http.plumbing.forwarding.Forwarder`.

    Attributes:
        home: number of the local home.
        clients: clients of the other homes.
    """

    def __init__(self, home: int, clients: HomeClients) -> None:
        self.home = home
        self.clients = clients

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the other homes."""
        return tuple(self.clients)

    async def forward(self, request: Request, *, at_home: bool, at_node: bool) -> Response | None:
        """See :class:`~jumpmq.http.plumbing.forwarding.Forwarder`. If this home answers, its statistics are
        refreshed first.
        """
        if at_home and (queue := self._queue_of(request)) is not None:
            try:
                return await self._pass(request, queue.definition.home)
            except HomeUnreachable:
                raise down(queue) from None
        if at_node and (home := self._home_of_node(request)) is not None:
            try:
                return await self._pass(request, home)
            except HomeUnreachable:
                name = requested.name(request, "node")
                return JSONResponse({"error": "unavailable", "reason": f"Node {name} could not be contacted"}, 503)
        if request.method in ("GET", "HEAD"):
            await requested.broker(request).figures.refresh()
        return None

    def _queue_of(self, request: Request) -> DeclaredQueue | None:
        """Return the queue named in the path, if at another home.

        Raises:
            NotFound, Unauthorized: as :func:`requested.virtual_host`.
        """
        found = requested.virtual_host(request).declared.get(requested.name(request, "queue"))
        return found if found is not None and found.definition.home in self.clients else None

    def _home_of_node(self, request: Request) -> int | None:
        """Return the home of the node named in the path, if a remote node of the cluster."""
        node, broker = requested.name(request, "node"), requested.broker(request)
        homes = () if node == broker.node else broker.topology.nodes.get(node, ())
        there = [home for home in homes if home in self.clients]
        return next((home for home in there if home in broker.running_homes), there[0] if there else None)

    async def _pass(self, request: Request, home: int) -> Response:
        scope = request.scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        body = await requested.octets(request, requested.MAX_LONG_BODY)
        headers = [one for one in scope["headers"] if one[0] in PASSED]
        return Passed(await self._ask(home, request, request.method, target, headers, body))

    async def ask(self, request: Request, home: int, target: bytes, body: object) -> HomeAnswer:
        """Forward a request with a new JSON body to a home, for the requesting user.

        Args:
            body: None without a body.

        Raises:
            HomeUnreachable: it does not answer.
        """
        if request.scope["query_string"]:
            target += b"?" + request.scope["query_string"]
        octets = b"" if body is None else dump(body)
        return await self._ask(home, request, request.method, target, [(b"content-type", b"application/json")], octets)

    async def _ask(
        self,
        home: int,
        request: Request,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> HomeAnswer:
        address = request.client.host if request.client is not None else ""
        told = [(principals.HEADER, principals.written(requested.principal(request))), (ADDRESS, address.encode())]
        return await self.clients[home].ask(method, target, [*headers, *told], body, patience=None)

    async def asked(self, request: Request, host: VirtualHost | None, bodies: Bodies) -> list[Any]:
        """Forward a request to homes concurrently, with a body per home; return the JSON of the answers.

        Raises:
            RefusedByHome: a home refuses.
            NotFound: a home is down.
        """
        asking = (self._asked(request, host, home, *one) for home, one in bodies.items())
        return await asyncio.gather(*asking)

    async def asked_of_running(self, request: Request, bodies: Bodies) -> dict[int, Any]:
        """Forward a request as by :meth:`asked`; return the answers of reachable homes, by number.

        Raises:
            RefusedByHome: a home refuses.
        """

        async def ask(home: int, body: Any) -> list[Any]:
            try:
                return [await self._json(request, home, body)]
            except HomeUnreachable:
                return []

        found = await asyncio.gather(*(ask(home, body) for home, (_, body) in bodies.items()))
        return {home: told[0] for home, told in zip(bodies, found, strict=True) if told}

    async def everywhere(self, request: Request, body: Any = None) -> dict[int, Any]:
        """Forward a request to all running other homes; return the JSON of the answers, by home.

        Raises:
            RefusedByHome: a home refuses.
        """
        return await self.asked_of_running(request, {home: ([], body) for home in self.clients})

    async def _asked(self, request: Request, host: VirtualHost | None, home: int, queues: list[str], body: Any) -> Any:
        try:
            return await self._json(request, home, body)
        except HomeUnreachable:
            raise _down(host, home, queues) from None

    async def _json(self, request: Request, home: int, body: Any) -> Any:
        async with await self.ask(request, home, request.scope["raw_path"], body) as answer:
            told = await answer.whole()
        if answer.status >= 300:
            raise RefusedByHome(Response(told, answer.status, {"Content-Type": "application/json"}))
        return json.loads(told) if told else None

    async def streamed(
        self,
        request: Request,
        host: VirtualHost,
        bodies: Bodies,
        here: StreamingResponse,
        columns: tuple[str, ...],
    ) -> Response:
        """Return a single Arrow stream: the local home's stream, followed by the answers of homes to the request.

        Headers ``JumpMQ-*`` are numbers; the answer has their sums.

        Raises:
            RefusedByHome, NotFound: as :meth:`asked`.
        """
        if not bodies:
            return here
        answers: list[HomeAnswer] = []
        try:
            for home, (queues, body) in bodies.items():
                try:
                    answer = await self.ask(request, home, request.scope["raw_path"], body)
                except HomeUnreachable:
                    raise _down(host, home, queues) from None
                answers.append(answer)
                if answer.status != 200:
                    told = await answer.whole()
                    raise RefusedByHome(Response(told, answer.status, {"Content-Type": "application/json"}))
        except BaseException:
            for answer in answers:
                answer.close()
            raise
        return JoinedStreams(here, answers, len(ArrowEncoder(columns).head()))

    async def act(self, name: str, *arguments: Any) -> list[Any]:
        """Request an action (:mod:`~.acting`) from all other homes; return the results of answering homes."""
        found = await asyncio.gather(*(acting.ask(client, name, *arguments) for client in self.clients.values()))
        return [one for one in found if one is not None]

    def joined_session(self, session: str, told: Mapping[int, Any]) -> str:
        """See :class:`~jumpmq.http.plumbing.forwarding.Forwarder`."""
        return joined({self.home: session} | {home: one["session"] for home, one in told.items()})

    def own_session(self, session: str) -> str:
        """See :class:`~jumpmq.http.plumbing.forwarding.Forwarder`."""
        return part_of(session, self.home) or ""


def down(queue: DeclaredQueue) -> NotFound:
    """Return the error for a request about a queue whose home is down, in RabbitMQ's words."""
    durable = "durable " if queue.durable else ""
    name, vhost = queue.name, queue.vhost
    return NotFound(
        f"home node '{queue.definition.node}' of {durable}queue '{name}' in vhost '{vhost}' is down or inaccessible"
    )


def _down(host: VirtualHost | None, home: int, queues: list[str]) -> NotFound:
    """Return the error for a home not answering about some queues, or about its part of a group."""
    if host is not None and queues and (declared := host.declared.get(queues[0])) is not None:
        return down(declared)
    return NotFound(f"home {home} is down or inaccessible")


class Passed(Response):
    """Answer of another home."""

    def __init__(self, answer: HomeAnswer) -> None:
        super().__init__(status_code=answer.status)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._answer:
            await self._until_gone(receive, send)

    async def _until_gone(self, receive: Receive, send: Send) -> None:
        """Forward the answer until the client disconnects."""
        passing = asyncio.ensure_future(self._pass(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            for task in (passing, leaving):
                task.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)

    async def _pass(self, send: Send) -> None:
        headers = [one for one in self._answer.headers if one[0] not in NOT_PASSED]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        async for part in self._answer.parts():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class JoinedStreams(Passed):
    """Several Arrow streams joined into a single stream.

    Args:
        here: stream of this home.
        answers: answers of other homes, with the same columns.
        head: octets before the first batch.
    """

    def __init__(self, here: StreamingResponse, answers: list[HomeAnswer], head: int) -> None:
        Response.__init__(self)
        self._here = here
        self._answers = answers
        self._head = head

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._until_gone(receive, send)
        finally:
            for answer in self._answers:
                answer.close()

    async def _pass(self, send: Send) -> None:
        headers = [(name, self._summed(name, value)) for name, value in self._here.raw_headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        streams = [(self._here.body_iterator, 0), *((answer.parts(), self._head) for answer in self._answers)]
        for stream, head in streams:
            async for part in _without_ends(stream, head, len(ArrowEncoder.tail())):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": ArrowEncoder.tail(), "more_body": False})

    def _summed(self, name: bytes, value: bytes) -> bytes:
        if not name.startswith(b"jumpmq-"):
            return value
        told = (int(number) for answer in self._answers for key, number in answer.headers if key == name)
        return str(int(value) + sum(told)).encode()


async def _without_ends(stream: AsyncIterable[Any], head: int, tail: int) -> AsyncIterator[bytes]:
    """Yield a stream without the given numbers of octets at beginning and end."""
    kept = b""
    async for part in stream:
        kept += bytes(part)
        cut = min(head, len(kept))
        kept, head = kept[cut:], head - cut
        if len(kept) > tail:
            yield kept[:-tail]
            kept = kept[-tail:]


async def _gone(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
