"""The management port as one application.

Three parts are mounted apart, by the first segment of the path: ``/api`` and ``/metrics`` ask who is there before
anything else is looked at, ``/`` is for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.http.plumbing.authentication import Authentication
from jumpmq.http.plumbing.errors import ANSWERS
from jumpmq.http.plumbing.origins import SameOrigin
from jumpmq.http.resources import (
    bindings,
    channels,
    connections,
    consumers,
    definitions,
    exchanges,
    health,
    limits,
    messages_publish,
    metrics,
    node_limits,
    nodes,
    openapi,
    overview,
    parameters,
    permissions,
    policies,
    publish,
    queue_contents,
    queue_messages,
    queues,
    readers,
    rings,
    shards,
    stop,
    topic_permissions,
    users,
    vhosts,
)

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.http.rates import Rates


API = (
    *(overview, nodes, node_limits, connections, channels, consumers, exchanges, publish, queues),
    *(
        queue_contents,
        queue_messages,
        messages_publish,
        bindings,
        vhosts,
        users,
        permissions,
        topic_permissions,
        limits,
        policies,
    ),
    *(limits, policies, parameters, definitions, health, readers, openapi, rings, shards, stop),
)
"""The resources below ``/api``; ``ROUTES`` of each says which paths are its."""

METRICS = (metrics,)
"""The resources below ``/metrics``."""

SITE: tuple[ModuleType, ...] = ()
"""What is served to everybody: nothing so far."""


def application(broker: Broker, rates: Rates, stop_broker: Callable[[], None] | None = None) -> ASGIApp:
    """The ASGI application of a broker.

    Args:
        stop_broker: begins to stop the broker; None if that is not for its users to ask.
    """
    state = {"broker": broker, "rates": rates, "stop_broker": stop_broker}
    api, metrics, site = (_room(resources, state) for resources in (API, METRICS, SITE))
    named = {"api": _guarded(api, broker), "metrics": _guarded(metrics, broker)}
    return EncodedPaths(Mounts(named, site))


def _guarded(app: ASGIApp, broker: Broker) -> ASGIApp:
    return SameOrigin(Authentication(app, broker))


def _room(resources: Iterable[ModuleType], state: dict[str, object]) -> Starlette:
    routes: list[BaseRoute] = [route for resource in resources for route in resource.ROUTES]
    app = Starlette(routes=routes, exception_handlers=ANSWERS)
    app.router.redirect_slashes = False
    for name, value in state.items():
        setattr(app.state, name, value)
    return app


class Mounts:
    """Gives a request to the application that its path's first segment names, or to the one for all others."""

    def __init__(self, named: dict[str, ASGIApp], others: ASGIApp) -> None:
        self._named = named
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = scope["path"].split("/", 2)[1:2]
        await self._named.get("".join(first), self._others)(scope, receive, send)


class EncodedPaths:
    """Routes by the path as it was sent, so that an encoded slash (``%2F``) in a name does not divide it.

    A slash at the end of a path means nothing, as with RabbitMQ.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1")
        await self._app({**scope, "path": path.removesuffix("/") or "/"}, receive, send)
