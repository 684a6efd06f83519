"""``/api/topic-permissions``: routing keys for publishing to topic exchanges, and for binding, by user."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import NAME, TEXT, Shape
from jumpmq.topology import ClearTopicPermissions, SetTopicPermissions, User

SHAPE = Shape(
    {"exchange": NAME, "write": TEXT, "read": TEXT},
    required=("exchange", "write", "read"),
    ignored=("vhost", "user", "username"),
)


async def all_topic_permissions(request: Request) -> Response:
    """``GET /api/topic-permissions``: topic permissions of all users in all virtual hosts."""
    return await _answer(request, [entry for user in _users(request) for entry in shown(user)])


async def topic_permissions_in_host(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/topic-permissions``: topic permissions of all users in a virtual host."""
    host = requested.virtual_host(request)
    return await _answer(request, [entry for user in _users(request) for entry in shown(user, host.name)])


async def topic_permissions_of_user(request: Request) -> Response:
    """``GET /api/users/{user}/topic-permissions``: topic permissions of a user in all virtual hosts."""
    return await _answer(request, shown(requested.broker(request).topology.user(requested.name(request, "user"))))


async def topic_permissions_of_user_in_host(request: Request) -> Response:
    """``GET /api/topic-permissions/{vhost}/{user}``: topic permissions of a user in a virtual host."""
    return await _answer(request, _named(request)[1])


async def put_topic_permissions(request: Request) -> Response:
    """``PUT /api/topic-permissions/{vhost}/{user}``: set two regular expressions for one topic exchange."""
    topology, body = requested.broker(request).topology, await requested.shaped_body(request, SHAPE)
    vhost, name = requested.name(request, "vhost"), requested.name(request, "user")
    user = topology.users.get(name)
    if user is None or vhost not in topology.vhosts:
        raise BadRequest("vhost_or_user_not_found")
    existed = bool(shown(user, vhost))
    await changing.apply(request, SetTopicPermissions(name, vhost, body["exchange"], body["write"], body["read"]))
    return changing.put_answer(existed)


async def delete_topic_permissions(request: Request) -> Response:
    """``DELETE /api/topic-permissions/{vhost}/{user}``: clear topic permissions, for all exchanges or for one."""
    user, _ = _named(request)
    exchange = requested.exchange_name(request) if "exchange" in request.path_params else None
    await changing.apply(request, ClearTopicPermissions(user.name, requested.name(request, "vhost"), exchange))
    return changing.deleted()


def shown(user: User, vhost: str | None = None) -> list[dict[str, Any]]:
    """Return a user's topic permissions, in one virtual host or all, in RabbitMQ's format."""
    return [
        {"user": user.name, "vhost": host, "exchange": exchange, "write": granted.write, "read": granted.read}
        for (host, exchange), granted in user.topic_permissions.items()
        if vhost in (None, host)
    ]


def _named(request: Request) -> tuple[User, list[dict[str, Any]]]:
    """Return the user named in the path, and the topic permissions in the path's virtual host.

    Raises:
        NotFound: the user does not exist, or has no topic permissions there.
    """
    vhost = requested.name(request, "vhost")
    user = requested.broker(request).topology.user(requested.name(request, "user"))
    if not (found := shown(user, vhost)):
        raise NotFound(f"user '{user.name}' has no topic permissions in vhost '{vhost}'")
    return user, found


def _users(request: Request) -> list[User]:
    return list(requested.broker(request).topology.users.values())


async def _answer(request: Request, entries: list[dict[str, Any]]) -> Response:
    return await answer_list(request, entries, lambda entry: entry, ("vhost", "user", "exchange"))


OF_USER = "/api/topic-permissions/{vhost}/{user}"
OF_EXCHANGE = f"{OF_USER}/{{exchange}}"
_ACCESS = Access.ADMINISTRATOR
ROUTES = [
    Endpoint("GET", "/api/topic-permissions", all_topic_permissions, access=_ACCESS),
    Endpoint("GET", OF_USER, topic_permissions_of_user_in_host, access=_ACCESS),
    Endpoint("PUT", OF_USER, put_topic_permissions, access=_ACCESS, shape=SHAPE),
    Endpoint("DELETE", OF_USER, delete_topic_permissions, access=_ACCESS),
    Endpoint("GET", OF_EXCHANGE, topic_permissions_of_user_in_host, access=_ACCESS),
    Endpoint("DELETE", OF_EXCHANGE, delete_topic_permissions, access=_ACCESS),
    Endpoint("GET", "/api/users/{user}/topic-permissions", topic_permissions_of_user, access=_ACCESS),
    Endpoint("GET", "/api/vhosts/{vhost}/topic-permissions", topic_permissions_in_host, access=_ACCESS),
]
