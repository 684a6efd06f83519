"""``/api/log``: the last records of the broker's log. JumpMQ's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.recent_log import RecentLog


async def log(request: Request) -> Response:
    """``GET /api/log?text=PART``: the last records, latest first, with the text in their message.

    Each is ``{"time", "level", "logger", "message"}``, the time in seconds since the epoch.
    """
    recent: RecentLog = request.app.state.recent_log
    wanted = request.query_params.get("text", "").lower()
    return answer([record for record in reversed(recent.records) if wanted in record["message"].lower()])


ROUTES = [Endpoint("GET", "/api/log", log, access=Access.ADMINISTRATOR)]
