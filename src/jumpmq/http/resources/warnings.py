"""``/api/warnings`` and ``/api/incidents``: problems, with advice. JumpMQ's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.warnings.watch import Watch


async def all_warnings(request: Request) -> Response:
    """``GET /api/warnings``: all warnings, alarms first, then by age. A warning has ``text``, ``advice``, ``since``
    (start, in seconds since the epoch) and the affected ``object``."""
    watch: Watch = request.app.state.watch
    return answer(await watch.shown())


async def all_incidents(request: Request) -> Response:
    """``GET /api/incidents``: warnings grouped by cause, an entry per cause, alarms first.

    An entry has the fields of the cause's warning, the ``symptoms`` (further warnings with this cause), the number of
    waiting ``messages``, their ``growth`` per second, and ``full_in``, the seconds until the queue is full (null if the
    queue does not grow). Queues with similar names are one entry: their ``count``, a ``pattern``, and the first
    ``names``.
    """
    watch: Watch = request.app.state.watch
    return answer(await watch.incidents())


ROUTES = [
    Endpoint("GET", "/api/incidents", all_incidents, access=Access.MONITORING),
    Endpoint("GET", "/api/warnings", all_warnings, access=Access.MONITORING),
]
