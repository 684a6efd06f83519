"""``/session``: login and logout of the page."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq.amqp.errors import AccessRefused
from jumpmq.broker.telemetry import audit
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.errors import Unauthorized, foreign_page, refused
from jumpmq.http.plumbing.origins import is_foreign
from jumpmq.http.plumbing.sessions import HEADER, Sessions, set_cookie
from jumpmq.http.schema.shapes import TEXT, Shape

if TYPE_CHECKING:
    from jumpmq.topology import User

SHAPE = Shape({"username": TEXT, "password": TEXT}, required=("username", "password"))
MAX_CREDENTIALS = 16 << 10
"""Maximum octets of a login's body; a token in place of the password may be long."""


async def show(request: Request) -> Response:
    """``GET /session``: the user of the session; 401 without a session."""
    principal = _sessions(request).user(request.headers)
    found = principal.account(requested.broker(request).topology) if principal is not None else None
    return refused("Not logged in") if found is None else answer(_shown(request, found))


async def log_in(request: Request) -> Response:
    """``POST /session`` with ``{"username", "password"}``: begin a session. Failed logins delay further logins."""
    if is_foreign(request.headers) or HEADER not in request.headers:
        return foreign_page()
    requested.require_json(request)
    body = await requested.shaped_body(request, SHAPE, MAX_CREDENTIALS)
    broker, peer = requested.broker(request), request.client.host if request.client else ""
    try:
        principal = await broker.authenticate(body["username"], body["password"], peer)
    except AccessRefused:
        audit.record("login refused", logging.WARNING, user=body["username"], mechanism="page", address=peer)
        return refused("Login failed")
    found = principal.account(broker.topology)
    try:
        if found is None:
            raise Unauthorized("Login failed")
        Access.MANAGEMENT.require(found)
    except Unauthorized as error:
        return refused(str(error))
    audit.record("login", user=principal.name, mechanism="page", address=peer)
    answered = answer(_shown(request, found))
    sessions = _sessions(request)
    is_secure = request.url.scheme == "https"
    answered.headers["Set-Cookie"] = set_cookie(sessions.open(principal), sessions.lifetime, is_secure)
    return answered


async def log_out(request: Request) -> Response:
    """``DELETE /session``: end the session."""
    if is_foreign(request.headers) or HEADER not in request.headers:
        return foreign_page()
    _sessions(request).close(request.headers)
    await _sessions(request).written()  # a restart must not restore the ended session
    cookie = set_cookie("", 0, request.url.scheme == "https")
    return Response(status_code=204, headers={"Set-Cookie": cookie})


def _sessions(request: Request) -> Sessions:
    found: Sessions = request.app.state.sessions
    return found


def _shown(request: Request, user: User) -> dict[str, object]:
    broker = requested.broker(request)
    return {"user": user.name, "tags": list(user.tags), "node": broker.node}


ROUTES = [
    Route("/session", show, methods=["GET"]),
    Route("/session", log_in, methods=["POST"]),
    Route("/session", log_out, methods=["DELETE"]),
]
