"""``/api/fences``: ordering barriers, with messages that wait for older messages of their keys. JumpMQ's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import monitors
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.changing import check_permission, may_read
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.topology import VirtualHost

ORDER = ("vhost", "queue", "source", "since")


async def all_fences(request: Request) -> Response:
    """``GET /api/fences``: ordering barriers of all virtual hosts; without a monitoring tag, those of queues that the
    user may read."""
    return await _answer(request, requested.visible_hosts(request))


async def fences_of_host(request: Request) -> Response:
    """``GET /api/fences/{vhost}``: ordering barriers of a virtual host."""
    return await _answer(request, [requested.virtual_host(request)])


async def _answer(request: Request, hosts: list[VirtualHost]) -> Response:
    found = await requested.broker(request).figures.fences([host.name for host in hosts])
    if not monitors(requested.user(request)):
        found = [one for one in found if may_read(request, one.vhost, one.queue)]
    return await answer_list(
        request, found, lambda one: {"vhost": one.vhost, "queue": one.queue} | one.fence.shown(), ORDER
    )


async def lift_fence(request: Request) -> Response:
    """``DELETE /api/fences/{vhost}/{queue}/{source}``: lift the ordering barriers between a queue and a source queue.

    The waiting messages may then be delivered before older messages of their keys in the source queue, or at the same
    time.
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
