"""``/api/stop``: the end of the broker, in order. JumpMQ's own; RabbitMQ is stopped from its host."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest


async def stop(request: Request) -> Response:
    """``POST /api/stop``: stop the broker, as SIGTERM does; answered before it begins."""
    stop_broker = request.app.state.stop_broker
    if stop_broker is None:
        raise BadRequest("this broker runs inside another program, which stops it")
    stop_broker()
    return Response(status_code=204)


ROUTES = [Endpoint("POST", "/api/stop", stop, access=Access.ADMINISTRATOR)]
