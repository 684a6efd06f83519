"""``/api/user-limits`` and ``/api/vhost-limits``: limits of connections, channels and queues."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access, check_virtual_host, monitors
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import INTEGER, Shape
from jumpmq.topology import (
    ClearUserLimit,
    ClearVirtualHostLimit,
    SetUserLimit,
    SetVirtualHostLimit,
    User,
    VirtualHost,
)

SHAPE = Shape({"value": INTEGER}, required=("value",), ignored=("vhost", "user", "name"))


# --- of users ---


async def all_user_limits(request: Request) -> Response:
    """``GET /api/user-limits``: limits of all users."""
    return await _answer_users(request, list(requested.broker(request).topology.users.values()))


async def limits_of_user(request: Request) -> Response:
    """``GET /api/user-limits/{user}``: limits of a user: a list of one entry, or an empty list."""
    return await _answer_users(request, [requested.broker(request).topology.user(requested.name(request, "user"))])


async def put_user_limit(request: Request) -> Response:
    """``PUT /api/user-limits/{user}/{limit}``: set a limit; negative values mean unlimited.

    Limits are ``max-connections``, ``max-channels``, ``max-consumers``, ``max-queues``, ``max-bindings`` and
    ``max-publish-rate``, in messages per second.
    """
    user, value = requested.name(request, "user"), await _value(request)
    if user not in requested.broker(request).topology.users:
        raise BadRequest(f"no_such_user: {user}")
    await changing.apply(request, SetUserLimit(user, requested.name(request, "limit"), value))
    return changing.put_answer(existed=True)


async def delete_user_limit(request: Request) -> Response:
    """``DELETE /api/user-limits/{user}/{limit}``: remove a limit."""
    change = ClearUserLimit(requested.name(request, "user"), requested.name(request, "limit"))
    await changing.apply(request, change)
    return changing.deleted()


async def _answer_users(request: Request, users: list[User]) -> Response:
    entries = [{"user": user.name, "value": dict(user.limits)} for user in users if user.limits]
    return await answer_list(request, entries, lambda entry: entry, ("user",))


# --- of virtual hosts ---


async def all_host_limits(request: Request) -> Response:
    """``GET /api/vhost-limits``: limits of all virtual hosts."""
    asking, hosts = requested.user(request), requested.broker(request).topology.vhosts.values()
    return await _answer_hosts(request, [one for one in hosts if monitors(asking) or one.name in asking.permissions])


async def limits_of_host(request: Request) -> Response:
    """``GET /api/vhost-limits/{vhost}``: limits of a virtual host: a list of one entry, or an empty list."""
    name, asking = requested.name(request, "vhost"), requested.user(request)
    if not monitors(asking):
        check_virtual_host(asking, name)
    return await _answer_hosts(request, [requested.broker(request).topology.vhosts[_host(request)]])


async def put_host_limit(request: Request) -> Response:
    """``PUT /api/vhost-limits/{vhost}/{limit}``: set ``max-connections``, ``max-queues`` or ``max-bindings``."""
    host, value = _host(request), await _value(request)
    try:
        await changing.apply(request, SetVirtualHostLimit(host, requested.name(request, "limit"), value))
    except PreconditionFailed as error:
        raise BadRequest(f"Validation failed\n\n{error.text}\n") from None
    return changing.put_answer(existed=True)


async def delete_host_limit(request: Request) -> Response:
    """``DELETE /api/vhost-limits/{vhost}/{limit}``: remove a limit."""
    await changing.apply(request, ClearVirtualHostLimit(_host(request), requested.name(request, "limit")))
    return changing.deleted()


async def _answer_hosts(request: Request, hosts: list[VirtualHost]) -> Response:
    entries: list[dict[str, Any]] = [{"vhost": host.name, "value": dict(host.limits)} for host in hosts if host.limits]
    return await answer_list(request, entries, lambda entry: entry, ("vhost",))


def _host(request: Request) -> str:
    """
    Raises: NotFound: the virtual host named in the path does not exist.
    """
    name = requested.name(request, "vhost")
    if name not in requested.broker(request).topology.vhosts:
        raise NotFound("vhost_not_found")
    return name


async def _value(request: Request) -> int:
    value: int = (await requested.shaped_body(request, SHAPE))["value"]
    return value


USER, HOST = "/api/user-limits/{user}", "/api/vhost-limits/{vhost}"
_ACCESS = Access.ADMINISTRATOR
ROUTES = [
    Endpoint("GET", "/api/user-limits", all_user_limits),
    Endpoint("GET", USER, limits_of_user),
    Endpoint("PUT", f"{USER}/{{limit}}", put_user_limit, access=_ACCESS, shape=SHAPE),
    Endpoint("DELETE", f"{USER}/{{limit}}", delete_user_limit, access=_ACCESS),
    Endpoint("GET", "/api/vhost-limits", all_host_limits),
    Endpoint("GET", HOST, limits_of_host),
    Endpoint("PUT", f"{HOST}/{{limit}}", put_host_limit, access=_ACCESS, shape=SHAPE),
    Endpoint("DELETE", f"{HOST}/{{limit}}", delete_host_limit, access=_ACCESS),
]
