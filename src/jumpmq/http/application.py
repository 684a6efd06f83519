"""The management API as one application: which path leads to which resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.http import bindings, exchanges, messages, overview, policies, queues, readers
from jumpmq.http.authentication import BasicAuthentication
from jumpmq.http.errors import ANSWERS

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.http.reservations import Reservations


def application(broker: Broker, reservations: Reservations) -> ASGIApp:
    """The ASGI application of a broker."""
    routes: list[BaseRoute] = []
    for resource in (overview, queues, exchanges, bindings, policies, messages, readers):
        routes += resource.ROUTES
    app = Starlette(routes=routes, exception_handlers=ANSWERS)
    app.router.redirect_slashes = False
    app.state.broker = broker
    app.state.reservations = reservations
    return BasicAuthentication(EncodedPaths(app), broker)


class EncodedPaths:
    """Routes by the path as it was sent, so that an encoded slash (``%2F``) in a name does not divide it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)
