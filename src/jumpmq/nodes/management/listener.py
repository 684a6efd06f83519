"""Private listener of a home, for statistics and forwarded requests of peers.

Between workers the listener is a Unix socket that only the broker's user may open; a request has to contain the secret.
Between nodes each connection is a call (:mod:`jumpmq.nodes.transport.calls`), which has proved the secret. The sending
home has authenticated the user; this home checks the user's permissions.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from contextlib import suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.broker import Broker
from jumpmq.http.application import EncodedPaths
from jumpmq.http.plumbing.errors import ANSWERS, Unauthorized, refused
from jumpmq.http.plumbing.forwarding import LOCAL, Forwarder
from jumpmq.http.recent_log import RecentLog
from jumpmq.http.resources import (
    browse,
    deaths,
    delayed,
    fences,
    group_offsets,
    log,
    login_attempts,
    node_control,
    node_limits,
    previews,
    queue_contents,
    queue_messages,
    queues,
    reader_messages,
    reader_reservations,
    readers,
    slots,
)
from jumpmq.http.serving import Server
from jumpmq.nodes.management import acting, asking, principals
from jumpmq.nodes.management.passing import ADDRESS

PASSED = (
    queues,
    queue_contents,
    queue_messages,
    browse,
    deaths,
    delayed,
    reader_messages,
    reader_reservations,
    readers,
    slots,
    fences,
    group_offsets,
    node_control,
    node_limits,
    login_attempts,
    log,
    previews,
)
"""Resources with forwarded requests."""


class PrivateListener:
    """Server for requests of peers. Call :meth:`start` before the first request.

    Args:
        secret: secret required in requests; None if connections have proved it.
        path: path of the socket; None if connections come from calls.
        here: further homes of this node that this process also answers for; empty if none.
    """

    def __init__(self, broker: Broker, secret: str | None, path: Path | None = None, here: Forwarder = LOCAL) -> None:
        self._path = path  # of the socket
        self._recent_log = RecentLog()
        self._server = Server(
            uvicorn.Config(
                _application(broker, secret, here, self._recent_log),
                http="h11",
                log_config=None,
                access_log=False,
                lifespan="off",
                proxy_headers=False,
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._task: asyncio.Task[None] | None = None  # runs the server
        self._listening: asyncio.Server | None = None  # listens at the socket

    async def start(self) -> None:
        """Start listening."""
        self._recent_log.start()
        self._task = asyncio.create_task(self._server.serve(), name="homes")
        await self._server.ready.wait()
        if self._path is None:
            return
        self._path.unlink(missing_ok=True)
        umask = os.umask(0o177)
        try:
            self._listening = await asyncio.get_running_loop().create_unix_server(self._server.accept, str(self._path))
        finally:
            os.umask(umask)

    def accept(self) -> asyncio.Protocol:
        """Return the protocol for a connection made by a peer."""
        return self._server.accept()

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        self._recent_log.stop()
        if self._listening is not None and self._path is not None:
            self._listening.close()
            self._path.unlink(missing_ok=True)
        if self._task is not None:
            self._server.exit()
            with suppress(asyncio.CancelledError):
                await self._task


def _application(broker: Broker, secret: str | None, here: Forwarder, recent_log: RecentLog) -> ASGIApp:
    routes = asking.routes(broker.home_figures, broker.slices)  # first: asked every second
    routes += [acting.route(broker), *(one for resource in PASSED for one in resource.ROUTES)]
    app = Starlette(routes=routes, exception_handlers=ANSWERS)
    app.router.redirect_slashes = False
    app.state.broker, app.state.forwarder, app.state.node_forwarder = broker, LOCAL, here
    app.state.recent_log = recent_log
    return Trusting(EncodedPaths(app), broker, secret)


class Trusting:
    """Authorizes requests of peers; ``scope["user"]`` is the user behind a request."""

    def __init__(self, app: ASGIApp, broker: Broker, secret: str | None) -> None:
        self._app = app
        self._broker = broker
        self._secret = secret  # required in requests; None if connections have proved it

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._secret is not None and not self._knows_secret(headers):
            await Response(status_code=403)(scope, receive, send)
            return
        if (user := headers.get(principals.HEADER.decode())) is not None:
            principal = principals.read(user)
            if principal.account(self._broker.topology) is None:
                await refused(str(Unauthorized("Login failed")))(scope, receive, send)
                return
            scope["user"] = principal
            scope["client"] = (headers.get(ADDRESS.decode(), ""), 0)
        await self._app(scope, receive, send)

    def _knows_secret(self, headers: Headers) -> bool:
        assert self._secret is not None
        return hmac.compare_digest(headers.get("jumpmq-secret", "").encode("latin-1"), self._secret.encode())
