"""``/api/warnings``: what an operator should know, and what to do about it. JumpMQ's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http import warnings
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint


async def all_warnings(request: Request) -> Response:
    """``GET /api/warnings``: alarms first; each has a ``text``, an ``advice``, and the ``object`` that it is about."""
    found = await warnings.find(requested.broker(request), request.app.state.rates)
    return answer([one.shown() for one in found])


ROUTES = [Endpoint("GET", "/api/warnings", all_warnings, access=Access.MONITORING)]
