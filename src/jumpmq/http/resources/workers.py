"""``/api/workers``: the processes of the broker, and their target number. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.telemetry import audit
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import INTEGER, Shape

COUNT = Shape({"count": INTEGER}, required=("count",))


async def listed(request: Request) -> Response:
    """``GET /api/workers``: the homes of the local node, departing homes included, with state and number of queues."""
    broker = requested.broker(request)
    topology = broker.topology
    counts = dict.fromkeys(topology.nodes.get(broker.node, [broker.config.home]), 0)
    declared = (one for host in topology.vhosts.values() for one in host.queue_definitions())
    async for one in broker.slices.through(declared):
        for home in {one.home, one.home_before}:
            if home in counts:
                counts[home] += 1
    found = [
        {"home": home, "queues": count, "leaves": home in topology.left, "running": home in broker.running_homes}
        for home, count in sorted(counts.items())
    ]
    return await answer_list(request, found, dict, ("home", "queues"))


async def resize(request: Request) -> Response:
    """``PUT /api/workers``: reduce the number of processes, or cancel a reduction. The queues of removed processes move
    to the others. Answered before the first move."""
    count: Any = (await requested.shaped_body(request, COUNT))["count"]
    broker = requested.broker(request)
    there = len(broker.topology.nodes[broker.node])
    if broker.set_workers is None:
        if count == there:
            return changing.deleted()
        raise BadRequest("this broker is not one of several workers: start it with --workers")
    if not 1 <= count <= there:
        raise BadRequest(f"the broker has {there} workers: for more, start the broker with a larger --workers")
    audit.record("set workers", user=requested.user(request).name, to=count)
    broker.set_workers(count)
    return changing.deleted()


ROUTES = [
    Endpoint("GET", "/api/workers", listed, access=Access.MONITORING),
    Endpoint("PUT", "/api/workers", resize, access=Access.ADMINISTRATOR, shape=COUNT),
]
