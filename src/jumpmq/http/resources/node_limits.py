"""``/api/nodes/{node}/memory``, memory held for messages by purpose, and ``/api/nodes/{node}/limits``, the limits at
which publishers are blocked.

RabbitMQ changes the limits through the protocol between its nodes, so the second path is JumpMQ's own.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.memory import resources
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources import nodes
from jumpmq.http.schema.shapes import TEXT, Shape

SHAPE = Shape({"memory_limit": TEXT, "disk_free_limit": TEXT})


async def memory(request: Request) -> Response:
    """``GET /api/nodes/{node}/memory``: octets held for messages, by purpose."""
    nodes.require_node(request)
    node = requested.node_figures(request).node()
    total = {"rss": node.resident, "messages": node.memory}
    return answer_object(request, {"memory": dict(node.held) | {"strategy": "account", "total": total}})


async def set_limits(request: Request) -> Response:
    """``PUT /api/nodes/{node}/limits``: set the limits of memory and free disk space, until the broker stops."""
    broker = requested.broker(request)
    await requested.node_figures(request).refresh()
    body = await requested.shaped_body(request, SHAPE)
    nodes.require_node(request)
    try:
        memory_limit = resources.memory_limit(body["memory_limit"]) if "memory_limit" in body else None
        disk_limit = resources.disk_free_limit(body["disk_free_limit"]) if "disk_free_limit" in body else None
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if memory_limit is not None:  # the node's processes get equal parts
        memory_limit //= len(requested.node_figures(request).states())
    broker.set_limits(memory_limit, disk_limit)
    await requested.node_forwarder(request).act("set_limits", memory_limit, disk_limit)
    return Response(status_code=204)


ROUTES = [
    Endpoint("GET", "/api/nodes/{node}/memory", memory, access=Access.MONITORING, at_node=True),
    Endpoint("PUT", "/api/nodes/{node}/limits", set_limits, access=Access.ADMINISTRATOR, shape=SHAPE, at_node=True),
]
