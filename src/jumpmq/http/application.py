"""The management API as one application: which path leads to which resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.http import (
    bindings,
    channels,
    connections,
    consumers,
    contents,
    definitions,
    exchanges,
    health,
    messages,
    metrics,
    nodes,
    openapi,
    overview,
    parameters,
    permissions,
    policies,
    publish,
    queues,
    readers,
    rings,
    shards,
    stop,
    users,
    vhosts,
)
from jumpmq.http.authentication import BasicAuthentication
from jumpmq.http.errors import ANSWERS

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.http.rates import Rates
    from jumpmq.http.reservations import Reservations


RESOURCES = (
    *(overview, nodes, connections, channels, consumers, exchanges, publish, queues, contents, messages, bindings),
    *(vhosts, users, permissions, policies, parameters, definitions, health, readers, metrics, openapi),
    *(rings, shards, stop),
)
"""The modules of the resources; ``ROUTES`` of each says which paths are its."""


def application(
    broker: Broker, reservations: Reservations, rates: Rates, stop_broker: Callable[[], None] | None = None
) -> ASGIApp:
    """The ASGI application of a broker.

    Args:
        stop_broker: begins to stop the broker; None if that is not for its users to ask.
    """
    routes: list[BaseRoute] = []
    for resource in RESOURCES:
        routes += resource.ROUTES
    app = Starlette(routes=routes, exception_handlers=ANSWERS)
    app.router.redirect_slashes = False
    app.state.broker = broker
    app.state.reservations = reservations
    app.state.rates = rates
    app.state.stop_broker = stop_broker
    return BasicAuthentication(EncodedPaths(app), broker)


class EncodedPaths:
    """Routes by the path as it was sent, so that an encoded slash (``%2F``) in a name does not divide it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)
