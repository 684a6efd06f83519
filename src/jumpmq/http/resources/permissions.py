"""``/api/permissions``: permissions of users in virtual hosts."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import TEXT, Shape
from jumpmq.topology import ClearPermissions, SetPermissions, User

KEYS = ("configure", "write", "read")
SHAPE = Shape(dict.fromkeys(KEYS, TEXT), required=KEYS, ignored=("vhost", "user", "username"))


async def all_permissions(request: Request) -> Response:
    """``GET /api/permissions``: permissions of all users in all virtual hosts."""
    users = requested.broker(request).topology.users.values()
    found = [(user, vhost) for user in users for vhost in user.permissions]
    return await answer_list(request, found, lambda item: shown_permissions(*item), ("vhost", "user"))


async def one_permission(request: Request) -> Response:
    """``GET /api/permissions/{vhost}/{user}``: permissions of a user in a virtual host."""
    return answer_object(request, shown_permissions(*_named(request)))


async def put_permission(request: Request) -> Response:
    """``PUT /api/permissions/{vhost}/{user}``: set the permissions of a user in a virtual host.

    The body has three regular expressions: ``configure``, ``write`` and ``read``.
    """
    topology, body = requested.broker(request).topology, await requested.shaped_body(request, SHAPE)
    vhost, name = requested.name(request, "vhost"), requested.name(request, "user")
    user = topology.users.get(name)
    if user is None or vhost not in topology.vhosts:
        raise BadRequest("vhost_or_user_not_found")
    existed = vhost in user.permissions
    await changing.apply(request, SetPermissions(name, vhost, *(body[key] for key in KEYS)))
    return changing.put_answer(existed)


async def delete_permission(request: Request) -> Response:
    """``DELETE /api/permissions/{vhost}/{user}``: remove a user's permissions in a virtual host."""
    user, vhost = _named(request)
    await changing.apply(request, ClearPermissions(user.name, vhost))
    return changing.deleted()


def shown_permissions(user: User, vhost: str) -> dict[str, Any]:
    """Return a user's permissions in a virtual host in RabbitMQ's format."""
    granted = user.permissions[vhost]
    return {"user": user.name, "vhost": vhost} | {key: getattr(granted, key) for key in KEYS}


def _named(request: Request) -> tuple[User, str]:
    """Return the user and virtual host named in the path.

    Raises:
        NotFound: the user does not exist, or has no permissions in the virtual host.
    """
    vhost = requested.name(request, "vhost")
    user = requested.broker(request).topology.user(requested.name(request, "user"))
    if vhost not in user.permissions:
        raise NotFound(f"user '{user.name}' has no permissions in vhost '{vhost}'")
    return user, vhost


ROUTES = [
    Endpoint("GET", "/api/permissions", all_permissions, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/permissions/{vhost}/{user}", one_permission, access=Access.ADMINISTRATOR),
    Endpoint("PUT", "/api/permissions/{vhost}/{user}", put_permission, access=Access.ADMINISTRATOR, shape=SHAPE),
    Endpoint("DELETE", "/api/permissions/{vhost}/{user}", delete_permission, access=Access.ADMINISTRATOR),
]
