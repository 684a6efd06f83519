"""``/api/auth``: authentication methods, and attempted logins."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources.metric_families import login_counts
from jumpmq.http.resources.nodes import require_node


async def how(request: Request) -> Response:
    """``GET /api/auth``: authentication method of the page: user and password, without an OAuth provider."""
    return answer_object(
        request, {"oauth_enabled": False, "enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
    )


async def attempts(request: Request) -> Response:
    """``GET /api/auth/attempts/{node}``: attempted logins, by protocol. Every HTTP request counts as a login."""
    require_node(request)
    found = [
        {
            "protocol": protocol,
            "auth_attempts": succeeded + failed,
            "auth_attempts_failed": failed,
            "auth_attempts_succeeded": succeeded,
        }
        for protocol, (succeeded, failed) in login_counts(requested.node_figures(request).states()).items()
    ]
    return await answer_list(request, found, dict, ("protocol",))


async def attempts_by_source(request: Request) -> Response:
    """``GET /api/auth/attempts/{node}/source``: an empty list. Logins are not counted by address; the log has refused
    logins with their addresses."""
    require_node(request)
    return await answer_list(request, list[dict[str, str]](), dict)


async def forget_attempts(request: Request) -> Response:
    """``DELETE /api/auth/attempts/{node}``: reset the counts."""
    require_node(request)
    requested.broker(request).authenticator.attempts.clear()
    await requested.node_forwarder(request).act("forget_attempts")
    return changing.deleted()


ATTEMPTS, _ACCESS = "/api/auth/attempts/{node}", Access.MONITORING
ROUTES = [
    Endpoint("GET", "/api/auth", how),
    Endpoint("GET", ATTEMPTS, attempts, access=_ACCESS, at_node=True),
    Endpoint("DELETE", ATTEMPTS, forget_attempts, access=_ACCESS, at_node=True),
    Endpoint("GET", f"{ATTEMPTS}/source", attempts_by_source, access=_ACCESS, at_node=True),
    Endpoint("DELETE", f"{ATTEMPTS}/source", forget_attempts, access=_ACCESS, at_node=True),
]
