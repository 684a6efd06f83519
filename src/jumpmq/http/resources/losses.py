"""``/api/losses``: messages and definitions found missing from the data directory. JumpMQ's own path."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.telemetry import audit
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint


async def listed(request: Request) -> Response:
    """``GET /api/losses``: losses as sentences, with the time of discovery (seconds since the epoch)."""
    found = [{"loss": loss, "found_at": found_at} for loss, found_at in _losses(request)]
    return await answer_list(request, found, dict, ("found_at",))


async def acknowledge(request: Request) -> Response:
    """``DELETE /api/losses``: acknowledge all losses. Health checks, metrics and log no longer report them."""
    broker = requested.broker(request)
    count = len(_losses(request))
    await broker.acknowledge_losses()
    await requested.forwarder(request).act("acknowledge_losses")
    audit.record("acknowledge losses", user=requested.user(request).name, losses=count)
    return changing.deleted()


def _losses(request: Request) -> list[tuple[str, float]]:
    return [loss for state in requested.broker(request).figures.states() for loss in state.losses]


ROUTES = [
    Endpoint("GET", "/api/losses", listed, access=Access.MONITORING),
    Endpoint("DELETE", "/api/losses", acknowledge, access=Access.ADMINISTRATOR),
]
