"""Requests passed to the home that they are about, and its answers passed back as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.errors import HomeDown
from jumpmq.broker.figures.plain import dump
from jumpmq.http.homes import acting, principals
from jumpmq.http.homes.client import Answer, HomeClient
from jumpmq.http.plumbing import requested
from jumpmq.topology.declared import DeclaredQueue

ADDRESS = b"jumpmq-address"
"""The header with the address of who asks."""

NOT_PASSED = frozenset({b"connection", b"transfer-encoding", b"date", b"server", b"keep-alive"})
"""Headers of an answer that are of the connection between the homes."""

PASSED = frozenset({b"content-type", b"accept", b"x-reason"})
"""Headers of a request that its home reads."""


class Elsewhere:
    """The other homes, for requests that are about what is there.

    Args:
        home: the number of this one.
        clients: of the others.
    """

    def __init__(self, home: int, clients: Sequence[HomeClient]) -> None:
        self.home = home
        self._clients = {client.home: client for client in clients}

    def of(self, request: Request) -> DeclaredQueue | None:
        """The queue that the path names, if its home is another.

        Raises:
            NotFound, Unauthorized: as :func:`requested.virtual_host`.
        """
        found = requested.virtual_host(request).declared.get(requested.name(request, "queue"))
        return found if found is not None and found.definition.home in self._clients else None

    async def pass_on(self, request: Request, queue: DeclaredQueue) -> Response:
        """Have the home of a queue answer.

        Raises:
            NotFound: it is down.
        """
        scope = request.scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        body = await requested.octets(request, requested.MAX_LONG_BODY)
        headers = [one for one in scope["headers"] if one[0] in PASSED]
        try:
            return Passed(await self._ask(queue.definition.home, request, request.method, target, headers, body))
        except HomeDown:
            raise down(queue) from None

    async def ask(self, request: Request, home: int, target: bytes, body: object) -> Answer:
        """Have a home answer a ``POST`` of some JSON, for the user who asks.

        Raises:
            HomeDown: it does not answer.
        """
        return await self._ask(home, request, "POST", target, [(b"content-type", b"application/json")], dump(body))

    async def _ask(
        self,
        home: int,
        request: Request,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> Answer:
        address = request.client.host if request.client is not None else ""
        told = [(principals.HEADER, principals.written(requested.principal(request))), (ADDRESS, address.encode())]
        return await self._clients[home].ask(method, target, [*headers, *told], body, patience=None)

    async def act(self, name: str, *arguments: Any) -> list[Any]:
        """Have all other homes do something (:mod:`~jumpmq.http.homes.acting`); returns what those say that answer."""
        found = await asyncio.gather(*(acting.ask(client, name, *arguments) for client in self._clients.values()))
        return [one for one in found if one is not None]


def down(queue: DeclaredQueue) -> NotFound:
    """The error of who wants something of a queue whose home is down, in RabbitMQ's words."""
    durable = "durable " if queue.durable else ""
    name, vhost = queue.name, queue.vhost
    return NotFound(
        f"home node '{queue.definition.node}' of {durable}queue '{name}' in vhost '{vhost}' is down or inaccessible"
    )


class Passed(Response):
    """The answer of another home."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(status_code=answer.status)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._answer:
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


async def _gone(receive: Receive) -> None:
    """Wait until the client is."""
    while (await receive())["type"] != "http.disconnect":
        pass
