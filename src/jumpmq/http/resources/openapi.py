"""``/api/openapi.json``: description of the management API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.schema.document import document


async def openapi(request: Request) -> Response:
    """``GET /api/openapi.json``: the OpenAPI document."""
    return answer(document(request.app.routes))


ROUTES = [Endpoint("GET", "/api/openapi.json", openapi)]
