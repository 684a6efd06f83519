"""``/api/warnings``: what an operator should know, and what to do about it. JumpMQ's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.warnings import Watch


async def all_warnings(request: Request) -> Response:
    """``GET /api/warnings``: alarms first, then the oldest; each has a ``text``, an ``advice``, ``since`` when
    it is so (seconds since the epoch), and the ``object`` that it is about."""
    watch: Watch = request.app.state.watch
    return answer(await watch.shown())


ROUTES = [Endpoint("GET", "/api/warnings", all_warnings, access=Access.MONITORING)]
