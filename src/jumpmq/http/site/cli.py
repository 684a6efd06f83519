"""``/cli/rabbitmqadmin``: where RabbitMQ's management port offers its client; here, where it is to be had."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

RABBITMQADMIN = (
    "https://raw.githubusercontent.com/rabbitmq/rabbitmq-server/v3.10.8/deps/rabbitmq_management/bin/rabbitmqadmin"
)


async def rabbitmqadmin(request: Request) -> RedirectResponse:
    """``GET /cli/rabbitmqadmin``: leads to the client of the version that this API is like."""
    return RedirectResponse(RABBITMQADMIN, 302)


ROUTES = [Route("/cli/rabbitmqadmin", rabbitmqadmin, methods=["GET"])]
