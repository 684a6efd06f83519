"""``/api/stop``: clean stop of the broker. JumpMQ's own; RabbitMQ can be stopped only from its host."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest


async def stop(request: Request) -> Response:
    """``POST /api/stop``: stop the broker, as SIGTERM does. Answered before the stop begins."""
    stop_broker = request.app.state.stop_broker
    if stop_broker is None:
        raise BadRequest("this broker runs inside another program: stop that program")
    stop_broker()
    return Response(status_code=204)


ROUTES = [Endpoint("POST", "/api/stop", stop, access=Access.ADMINISTRATOR)]
