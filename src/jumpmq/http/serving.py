"""uvicorn in the broker's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, cast

import anyio
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jumpmq.broker import Broker
from jumpmq.http.application import application
from jumpmq.http.observed import Observed
from jumpmq.http.plumbing.endpoint import ENDLESS
from jumpmq.http.protocol import KEEP_ALIVE, BoundedProtocol, door
from jumpmq.queues.clock import until_tick

ANSWER_TIMEOUT = 0.5
"""Maximum seconds for the answers to requests cancelled at the broker's end."""

if TYPE_CHECKING:
    from jumpmq.http.plumbing.forwarding import Forwarder


def server(
    broker: Broker,
    observed: Observed,
    stop_broker: Callable[[], None] | None,
    forwarder: Forwarder,
    node_forwarder: Forwarder,
) -> Server:
    """Return the server of a broker's management port; see :func:`jumpmq.http.application.application`."""
    return Server(
        uvicorn.Config(
            _Cancelled(application(broker, observed, stop_broker, forwarder, node_forwarder)),
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            ws="none",
            server_header=False,
            http=cast(type[BoundedProtocol], partial(BoundedProtocol, timing=broker.config.timing)),
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=1,
        )
    )


class _Cancelled:
    """Answers waiting requests that are cancelled at the broker's end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if not begun:
                said = {"error": "Service Unavailable", "reason": "the broker stops; the request may have had effects"}
                await JSONResponse(said, 503)(scope, receive, send)


class Server(uvicorn.Server):
    """A uvicorn server without listeners and signal handlers: the broker listens, and the program handles signals.

    The server wakes once a second, and ends directly after its last connection. A plain uvicorn server polls ten times
    a second for both.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._exiting = asyncio.Event()  # set by exit()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        async with anyio.create_task_group():
            pass  # load anyio's task groups now: the first streamed list would block the event loop for that
        await self.lifespan.startup()
        self.servers: list[asyncio.base_events.Server] = []
        self.started = True
        self.ready.set()

    def exit(self) -> None:
        """Begin the end: ``serve`` returns when all connections are closed."""
        self.should_exit = True
        self._exiting.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # 0: each tick renews the ``Date`` header
            with suppress(TimeoutError):
                async with asyncio.timeout(until_tick(1.0, asyncio.get_running_loop().time())):
                    await self._exiting.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        for task in list(state.tasks):
            if task.get_name() == ENDLESS:
                task.cancel()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.005)
        except TimeoutError:
            tasks = list(state.tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=ANSWER_TIMEOUT)

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return protocol(self.config, self.server_state, self.lifespan.state)

    def admits(self, address: str) -> bool:
        """Return True if a new connection from an address is admitted."""
        return door(asyncio.get_running_loop()).admits(address)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
