"""``/api/warnings``: what an operator should know, and what to do about it. JumpMQ's own."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http import warnings
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint


async def all_warnings(request: Request) -> Response:
    """``GET /api/warnings``: alarms first; each has a ``text``, an ``advice``, and the ``object`` that it is about."""
    found = []
    for one in warnings.find(requested.broker(request), request.app.state.rates):
        found.append(one)
        await asyncio.sleep(0)
    return answer([one.shown() for one in sorted(found, key=lambda one: one.severity)])


ROUTES = [Endpoint("GET", "/api/warnings", all_warnings, access=Access.MONITORING)]
