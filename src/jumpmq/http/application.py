"""The management port as a single application.

The first segment of the path selects one of three parts. ``/api`` and ``/metrics`` authenticate the user before
anything else; ``/`` is public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.http.copy_checks import CopyChecks
from jumpmq.http.plumbing.authentication import Authentication
from jumpmq.http.plumbing.compressing import Compressed
from jumpmq.http.plumbing.errors import ANSWERS, ambiguous_length
from jumpmq.http.plumbing.forwarding import LOCAL, Forwarder
from jumpmq.http.plumbing.origins import OwnNames, SameOrigin
from jumpmq.http.plumbing.sessions import Sessions
from jumpmq.http.resources import (
    allowed,
    bindings,
    browse,
    channels,
    connections,
    consumer_groups,
    consumers,
    copies,
    deaths,
    definitions,
    delayed,
    exchanges,
    fences,
    flow,
    group_offsets,
    health,
    history,
    keys,
    limits,
    log,
    login_attempts,
    losses,
    messages_publish,
    metrics,
    node_control,
    node_limits,
    nodes,
    openapi,
    overview,
    parameters,
    permissions,
    policies,
    previews,
    publish,
    queue_contents,
    queue_messages,
    queues,
    reader_messages,
    reader_reservations,
    readers,
    replicas,
    ring_changes,
    rings,
    shards,
    slots,
    stop,
    topic_permissions,
    users,
    vhosts,
    warnings,
    what_if,
    workers,
)
from jumpmq.http.site import cli, files, session

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.http.observed import Observed


API = (
    *(overview, nodes, node_limits, connections, channels, consumers, consumer_groups, exchanges, publish, queues),
    *(
        queue_contents,
        browse,
        deaths,
        delayed,
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
    *(
        parameters,
        previews,
        deaths,
        delayed,
        definitions,
        health,
        readers,
        reader_messages,
        reader_reservations,
        openapi,
        rings,
        ring_changes,
        keys,
        what_if,
        flow,
        shards,
        slots,
        stop,
        fences,
        group_offsets,
    ),
    *(warnings, history, log, allowed, node_control, login_attempts, losses, workers, copies, replicas),
)
"""The resources below ``/api``; their paths are in ``ROUTES``."""

METRICS = (metrics,)
"""The resources below ``/metrics``."""

SITE = (session, cli, files)
"""Public resources: the page and its login, and the download of rabbitmqadmin."""


def application(
    broker: Broker,
    observed: Observed,
    stop_broker: Callable[[], None] | None = None,
    forwarder: Forwarder = LOCAL,
    node_forwarder: Forwarder = LOCAL,
) -> ASGIApp:
    """Return the ASGI application of a broker.

    Args:
        observed: rates, history and warnings collected before a request.
        stop_broker: begins to stop the broker; None if users may not request the stop.
        forwarder: forwards requests to the other homes of the broker.
        node_forwarder: forwards requests to the other homes of this node only.
    """
    sessions = Sessions(broker)
    state = {
        "broker": broker,
        "rates": observed.rates,
        "history": observed.history,
        "watch": observed.watch,
        "recent_log": observed.recent_log,
        "sessions": sessions,
        "stop_broker": stop_broker,
        "forwarder": forwarder,
        "node_forwarder": node_forwarder,
        "copy_checks": CopyChecks(),
    }
    api, metrics, site = (_room(resources, state) for resources in (API, METRICS, SITE))
    named = {"api": _guarded(Compressed(api), broker, sessions), "metrics": _guarded(metrics, broker, sessions)}
    names = [name.strip() for name in (broker.config.http_names or "").split(",") if name.strip()]
    return OwnNames(EncodedPaths(Mounts(named, site)), [broker.config.host, *names])


def _guarded(app: ASGIApp, broker: Broker, sessions: Sessions) -> ASGIApp:
    return SameOrigin(Authentication(app, broker, sessions))


def _room(resources: Iterable[ModuleType], state: dict[str, object]) -> Starlette:
    routes: list[BaseRoute] = [route for resource in resources for route in resource.ROUTES]
    app = Starlette(routes=routes, exception_handlers=ANSWERS)
    app.router.redirect_slashes = False
    for name, value in state.items():
        setattr(app.state, name, value)
    return app


class Mounts:
    """Dispatches requests to applications by the first path segment, with a default application."""

    def __init__(self, named: dict[str, ASGIApp], others: ASGIApp) -> None:
        self._named = named
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = scope["path"].split("/", 2)[1:2]
        await self._named.get("".join(first), self._others)(scope, receive, send)


AS_QUERY = "/api/-"
"""Path for browsers: the query ``?path=`` has the path of the API, percent-encoded once more."""


class EncodedPaths:
    """Routes by the undecoded path, so that an encoded slash (``%2F``) in a name does not divide the name.

    As in RabbitMQ, a slash at the end of a path is ignored. Browsers remove ``.`` and ``..`` from paths, even if
    encoded (URL Standard, "URL parsing"). For objects with such names, browsers use :data:`AS_QUERY`. A request with
    an ambiguous length is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            await ambiguous_length()(scope, receive, send)
            return
        path = scope["raw_path"].decode("latin-1")
        if path == AS_QUERY:
            named, path = _named_by_query(scope)
            scope.update(named)
        scope["path"] = path.removesuffix("/") or "/"  # in place: the connection reads the user from the same scope
        await self._app(scope, receive, send)


def _named_by_query(scope: Scope) -> tuple[dict[str, bytes], str]:
    """Return the changes of the scope for a request with :data:`AS_QUERY`, and the requested path."""
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    path = next((value for name, value in given if name == "path" and value.startswith("/api/")), AS_QUERY)
    query = urlencode([(name, value) for name, value in given if name != "path"])
    return {"raw_path": path.encode(errors="replace"), "query_string": query.encode()}, path
