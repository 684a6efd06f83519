"""``/api/fences``: queues whose messages wait for another queue, as their keys have come from there. JumpMQ's own."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import monitors
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.changing import check_permission, may_read
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.queues import Queue
from jumpmq.queues.fences import FenceFigures
from jumpmq.topology import VirtualHost

ORDER = ("vhost", "queue", "source", "since")


async def all_fences(request: Request) -> Response:
    """``GET /api/fences``: of all virtual hosts; without a monitoring tag, of queues that the user may read."""
    return await _answer(request, requested.visible_hosts(request))


async def fences_of_host(request: Request) -> Response:
    """``GET /api/fences/{vhost}``: of one virtual host."""
    return await _answer(request, [requested.virtual_host(request)])


async def _answer(request: Request, hosts: list[VirtualHost]) -> Response:
    fences = requested.broker(request).topology.fences
    found = [one for host in hosts for one in fences.figures(host.name)]
    if not monitors(requested.user(request)):
        found = [one for one in found if may_read(request, one[0].vhost, one[0].name)]
    return await answer_list(
        request, found, lambda one: {"vhost": one[0].vhost, "queue": one[0].name} | shown(one[1]), ORDER
    )


def shown(fence: FenceFigures) -> dict[str, Any]:
    """A fence as JSON; ``since`` is in seconds since the epoch."""
    return {
        "exchange": fence.exchange,
        "source": fence.source,
        "remaining": fence.remaining,
        "messages_held": fence.held,
        "since": round(fence.since, 3),
        "seconds": round(max(0.0, time.time() - fence.since), 3),
    }


def of_queue(queue: Queue | None) -> dict[str, Any]:
    """What there is to show of a queue's fences; nothing where there are none."""
    if queue is None or queue.fences is None:
        return {}
    return {"messages_fenced": queue.fenced_count, "fences": [shown(one) for one in queue.fences.figures()]}


async def lift_fence(request: Request) -> Response:
    """``DELETE /api/fences/{vhost}/{queue}/{source}``: have a queue's messages wait for another queue no more.

    Those that have waited may be delivered before, or while, older ones of their keys in the other queue are.
    """
    host, name = requested.virtual_host(request), requested.name(request, "queue")
    check_permission(request, host.name, "read", name)
    queue, source = requested.unlocked_queue(request), requested.name(request, "source")
    broker = requested.broker(request)
    with broker.turns.turn():
        if not broker.topology.fences.lift(queue, source):
            raise NotFound(f"queue '{name}' in vhost '{host.name}' does not wait for queue '{source}'")
    await broker.committed()
    return Response(status_code=204)


ROUTES = [
    Endpoint("GET", "/api/fences", all_fences),
    Endpoint("GET", "/api/fences/{vhost}", fences_of_host),
    Endpoint("DELETE", "/api/fences/{vhost}/{queue}/{source}", lift_fence, at_home=True),
]
