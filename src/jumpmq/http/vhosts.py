"""``/api/vhosts``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http import changing
from jumpmq.http import request as of
from jumpmq.http.access import Access, monitors
from jumpmq.http.errors import BadRequest
from jumpmq.http.json import json_list, json_object
from jumpmq.http.operation import Operation
from jumpmq.http.permissions import shown_permissions
from jumpmq.http.shapes import BOOLEAN, Shape
from jumpmq.topology import AddVirtualHost, DeleteVirtualHost, SetPermissions, VirtualHost

SHAPE = Shape({"tracing": BOOLEAN}, ignored=("name", "vhost", "description", "tags", "metadata", "default_queue_type"))


async def all_vhosts(request: Request) -> Response:
    """``GET /api/vhosts``: those that the user may know of."""
    asking = of.user(request)
    hosts = of.broker_of(request).topology.vhosts.values()
    known = [host for host in hosts if monitors(asking) or host.name in asking.permissions]
    return await json_list(request, known, lambda host: _shown(request, host), ("name",))


async def one_vhost(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}``: one virtual host, with its messages counted."""
    return json_object(request, _shown(request, of.virtual_host(request)))


async def put_vhost(request: Request) -> Response:
    """``PUT /api/vhosts/{vhost}``: add a virtual host, in which the user then may do everything."""
    name, body = of.name(request, "vhost"), await of.shaped(request, SHAPE)
    if body.get("tracing"):
        raise BadRequest("there is no tracing here")
    if not name:
        raise BadRequest("a virtual host needs a name")
    broker, user = of.broker_of(request), of.user(request)
    existed = name in broker.topology.vhosts
    broker.topology.apply(AddVirtualHost(name))
    if not existed:
        broker.topology.apply(SetPermissions(user.name, name, ".*", ".*", ".*"))
    broker.finish(None)
    await broker.committed()
    return changing.put_answer(existed)


async def delete_vhost(request: Request) -> Response:
    """``DELETE /api/vhosts/{vhost}``: delete a virtual host with all that is in it; connections to it are closed."""
    host, broker = of.virtual_host(request), of.broker_of(request)
    broker.close_connections(f"vhost '{host.name}' is deleted", lambda one: getattr(one, "vhost", None) is host)
    await changing.apply(request, DeleteVirtualHost(host.name))
    return changing.deleted()


async def vhost_permissions(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/permissions``: who may do what in it."""
    host = of.virtual_host(request)
    users = of.broker_of(request).topology.users.values()
    found = [(user, host.name) for user in users if host.name in user.permissions]
    return await json_list(request, found, lambda item: shown_permissions(*item), ("vhost", "user"))


def _shown(request: Request, host: VirtualHost) -> dict[str, Any]:
    queues = host.queues.values()
    ready = sum([queue.ready_count for queue in queues])
    unacknowledged = sum([queue.unacknowledged_count for queue in queues])
    description = "Default virtual host" if host.name == "/" else ""
    return {
        "name": host.name,
        "description": description,
        "tags": [],
        "metadata": {"description": description, "tags": []},
        "default_queue_type": "classic",
        "tracing": False,
        "cluster_state": {of.broker_of(request).node: "running"},
        "messages": ready + unacknowledged,
        "messages_ready": ready,
        "messages_unacknowledged": unacknowledged,
        "message_stats": request.app.state.rates.of_queues(queues),
    }


ROUTES = [
    Operation("GET", "/api/vhosts", all_vhosts),
    Operation("GET", "/api/vhosts/{vhost}", one_vhost, access=Access.ADMINISTRATOR),
    Operation("PUT", "/api/vhosts/{vhost}", put_vhost, access=Access.ADMINISTRATOR, shape=SHAPE),
    Operation("DELETE", "/api/vhosts/{vhost}", delete_vhost, access=Access.ADMINISTRATOR),
    Operation("GET", "/api/vhosts/{vhost}/permissions", vhost_permissions, access=Access.ADMINISTRATOR),
]
