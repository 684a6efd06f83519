"""``/api/vhosts``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access, monitors
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.rates import Rates
from jumpmq.http.resources.nodes import require_node
from jumpmq.http.resources.permissions import shown_permissions
from jumpmq.http.samples import add_samples
from jumpmq.http.schema.shapes import BOOLEAN, HOME, TEXT, TEXTS, Shape
from jumpmq.queues import DEFAULT_QUEUE_TYPE
from jumpmq.topology import AddVirtualHost, DeleteVirtualHost, SetPermissions, SetTracing, VirtualHost

SHAPE = Shape(
    {
        "tracing": BOOLEAN,
        "default_queue_type": TEXT,
        "defaultqueuetype": TEXT,
        "description": TEXT,
        "tags": TEXTS,
        "home": HOME,
    },
    ignored=("name", "vhost", "metadata"),
)
"""Shape of a body. RabbitMQ 3.10 reads the default queue type under one name, and shows it under another; both names
are allowed.
"""


async def all_vhosts(request: Request) -> Response:
    """``GET /api/vhosts``: the visible virtual hosts."""
    asking = requested.user(request)
    hosts = requested.broker(request).topology.vhosts.values()
    known = [host for host in hosts if monitors(asking) or host.name in asking.permissions]
    if request.query_params.get("columns") == "name":  # names need no counts
        return await answer_list(request, known, lambda host: {"name": host.name}, ("name",))
    shown = {host: await _shown(request, host) for host in known}
    return await answer_list(request, known, shown.__getitem__, ("name",))


async def one_vhost(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}``: a virtual host, with message counts."""
    return answer_object(request, await _shown(request, requested.virtual_host(request)))


async def put_vhost(request: Request) -> Response:
    """``PUT /api/vhosts/{vhost}``: add a virtual host, with all permissions for the user. A user with a token gets no
    permissions: the token has the user's rights."""
    name, body = requested.name(request, "vhost"), await requested.shaped_body(request, SHAPE)
    if not name:
        raise BadRequest("a virtual host needs a name")
    broker, user = requested.broker(request), requested.principal(request)
    existed = name in broker.topology.vhosts
    default = body.get("default_queue_type", body.get("defaultqueuetype"))
    kind = None if default == "undefined" else default
    await changing.apply(
        request, AddVirtualHost(name, kind, body.get("description"), body.get("tags"), body.get("home"))
    )
    if not existed and user.granted is None:
        await changing.apply(request, SetPermissions(user.name, name, ".*", ".*", ".*"))
    if "tracing" in body:
        await changing.apply(request, SetTracing(name, body["tracing"]))
    return changing.put_answer(existed)


async def start_vhost(request: Request) -> Response:
    """``POST /api/vhosts/{vhost}/start/{node}``: start a failed virtual host; without effect, because all virtual hosts
    run."""
    require_node(request)
    if (name := requested.name(request, "vhost")) not in requested.broker(request).topology.vhosts:
        raise BadRequest(f"no vhost '{name}'")
    return changing.deleted()


async def delete_vhost(request: Request) -> Response:
    """``DELETE /api/vhosts/{vhost}``: delete a virtual host with all contents, and close its connections."""
    await changing.apply(request, DeleteVirtualHost(requested.virtual_host(request).name))
    return changing.deleted()


async def vhost_permissions(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/permissions``: permissions in the virtual host."""
    host = requested.virtual_host(request)
    users = requested.broker(request).topology.users.values()
    found = [(user, host.name) for user in users if host.name in user.permissions]
    return await answer_list(request, found, lambda item: shown_permissions(*item), ("vhost", "user"))


async def _shown(request: Request, host: VirtualHost) -> dict[str, Any]:
    rates: Rates = request.app.state.rates
    stats, lengths = await rates.of_hosts([host.name])
    ready, unacknowledged = rates.latest.backlogs.get(host.name, (0, 0))
    found = {
        "name": host.name,
        "description": host.description,
        "tags": list(host.tags),
        "metadata": {"description": host.description, "tags": list(host.tags)},
        "default_queue_type": host.default_queue_type or DEFAULT_QUEUE_TYPE,
        "tracing": host.tracing,
        "cluster_state": {requested.broker(request).node: "running"},
        "message_stats": stats,
        **lengths,
        "backlog": {"ready": ready, "unacknowledged": unacknowledged},  # JumpMQ's own: without messages of streams
    }
    if host.home:
        found["home"] = host.home
    return add_samples(request, found, lambda: request.app.state.history.of("vhost", host.name))


ROUTES = [
    Endpoint("GET", "/api/vhosts", all_vhosts),
    Endpoint("GET", "/api/vhosts/{vhost}", one_vhost, access=Access.ADMINISTRATOR),
    Endpoint("PUT", "/api/vhosts/{vhost}", put_vhost, access=Access.ADMINISTRATOR, shape=SHAPE),
    Endpoint("DELETE", "/api/vhosts/{vhost}", delete_vhost, access=Access.ADMINISTRATOR),
    Endpoint("POST", "/api/vhosts/{vhost}/start/{node}", start_vhost, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/vhosts/{vhost}/permissions", vhost_permissions, access=Access.ADMINISTRATOR),
]
