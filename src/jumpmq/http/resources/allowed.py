"""``/api/users/{user}/allowed/{vhost}/{name}``: a user's rights to a queue or exchange, by name."""

from __future__ import annotations

from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.topology import User
from jumpmq.topology.users import Operation


async def allowed(request: Request) -> Response:
    """``GET /api/users/{user}/allowed/{vhost}/{name}``: the user's rights to configure, write and read the name.

    Each operation has ``allowed``, and the ``pattern`` that decides: null if the user has no permissions in the virtual
    host. No queue or exchange of the name needs to exist.
    """
    host, name = requested.virtual_host(request), requested.exchange_name(request, "name")
    user = requested.broker(request).topology.user(requested.name(request, "user"))
    return answer({operation: _decided(user, host.name, operation, name) for operation in get_args(Operation)})


def _decided(user: User, vhost: str, operation: Operation, name: str) -> dict[str, Any]:
    granted = user.permissions.get(vhost)
    if granted is None:
        return {"allowed": False, "pattern": None}
    return {"allowed": granted.allows(operation, name), "pattern": getattr(granted, operation)}


ROUTES = [Endpoint("GET", "/api/users/{user}/allowed/{vhost}/{name}", allowed, access=Access.ADMINISTRATOR)]
