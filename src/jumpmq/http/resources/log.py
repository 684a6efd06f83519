"""``/api/log``: the last records of the logs of all nodes and workers. JumpMQ's own."""

from __future__ import annotations

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.recent_log import KEPT, RecentLog
from jumpmq.http.schema.shapes import TEXT, Shape, one_of, whole

LEVELS = ("debug", "info", "warning", "error", "critical")
QUERY = Shape({"text": TEXT, "level": one_of(*LEVELS), "count": whole(KEPT)})
"""Shape of the query."""


async def log(request: Request) -> Response:
    """``GET /api/log?text=PART&level=warning&count=300``: the last records, latest first, whose message contains the
    text, of the level or a higher level.

    A record is ``{"time", "level", "logger", "message", "node", "worker"}``, with the time in seconds since the epoch.
    Processes that do not answer are left out.
    """
    query = QUERY.read(dict[str, Any](request.query_params))
    count = query.get("count", KEPT)
    found = _found(request, query.get("text", "").lower(), _number(query.get("level", LEVELS[0])))[:count]
    others = await requested.forwarder(request).everywhere(request)
    if not others:
        return answer(found)
    # A process that serves several homes answers once per home.
    told = {tuple(record.values()): record for records in (found, *others.values()) for record in records}
    return answer(sorted(told.values(), key=lambda record: -record["time"])[:count])


def _found(request: Request, text: str, level: int) -> list[dict[str, Any]]:
    """Return the matching records of this process, latest first."""
    recent: RecentLog = request.app.state.recent_log
    broker = requested.broker(request)
    worker = broker.config.worker if broker.at == broker.node else 1  # worker 1 serves homes of other nodes
    of = {"node": broker.at, "worker": worker}
    records = reversed(recent.records)
    return [one | of for one in records if text in one["message"].lower() and _number(one["level"]) >= level]


def _number(level: str) -> int:
    number = logging.getLevelName(level.upper())
    return number if isinstance(number, int) else logging.CRITICAL


ROUTES = [Endpoint("GET", "/api/log", log, access=Access.ADMINISTRATOR)]
