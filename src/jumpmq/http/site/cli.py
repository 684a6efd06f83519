"""``/cli/rabbitmqadmin``: RabbitMQ's path to the command-line client; redirects to its download."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

RABBITMQADMIN = (
    "https://raw.githubusercontent.com/rabbitmq/rabbitmq-server/v3.10.8/deps/rabbitmq_management/bin/rabbitmqadmin"
)


async def rabbitmqadmin(request: Request) -> RedirectResponse:
    """``GET /cli/rabbitmqadmin``: redirect to the client of the compatible version."""
    return RedirectResponse(RABBITMQADMIN, 302)


ROUTES = [Route("/cli/rabbitmqadmin", rabbitmqadmin, methods=["GET"])]
