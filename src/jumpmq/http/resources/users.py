"""``/api/users`` and ``/api/whoami``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.security.passwords import foreign_hash, shown_hash
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.permissions import shown_permissions
from jumpmq.http.schema.shapes import TEXT, TEXTS, Shape
from jumpmq.topology import DeleteUser, PutUser, User

SHAPE = Shape(
    {"password": TEXT, "password_hash": TEXT, "hashing_algorithm": TEXT, "tags": TEXTS},
    required=("tags",),
    ignored=("name", "vhost", "limits"),
)
BULK = Shape({"users": TEXTS}, required=("users",))
MAX_PASSWORD = 4096


async def whoami(request: Request) -> Response:
    """``GET /api/whoami``: the authenticated user."""
    user = requested.user(request)
    internal = requested.principal(request).granted is None  # otherwise a token has the user's rights
    return answer_object(request, {"name": user.name, "tags": list(user.tags), "is_internal_user": internal})


async def all_users(request: Request) -> Response:
    """``GET /api/users``: all users, with password hashes."""
    return await answer_list(request, requested.broker(request).topology.users.values(), shown_user, ("name",))


async def users_without_permissions(request: Request) -> Response:
    """``GET /api/users/without-permissions``: users without access to any virtual host."""
    users = [user for user in requested.broker(request).topology.users.values() if not user.permissions]
    return await answer_list(request, users, shown_user, ("name",))


async def one_user(request: Request) -> Response:
    """``GET /api/users/{user}``: a user."""
    return answer_object(request, shown_user(_named(request)))


async def user_permissions(request: Request) -> Response:
    """``GET /api/users/{user}/permissions``: permissions of a user by virtual host."""
    user = _named(request)
    found = [(user, vhost) for vhost in user.permissions]
    return await answer_list(request, found, lambda item: shown_permissions(*item), ("vhost",))


async def put_user(request: Request) -> Response:
    """``PUT /api/users/{user}``: add or replace a user, with a password or the password's hash. Without both, the user
    has no password."""
    name, body = requested.name(request, "user"), await requested.shaped_body(request, SHAPE)
    if not name:
        raise BadRequest("a user needs a name")
    password_hash = await _password_hash(request, body)
    existed = name in requested.broker(request).topology.users
    await changing.apply(request, PutUser(name, password_hash, body["tags"]))
    return changing.put_answer(existed)


async def delete_user(request: Request) -> Response:
    """``DELETE /api/users/{user}``: delete a user with all permissions."""
    await changing.apply(request, DeleteUser(_named(request).name))
    return changing.deleted()


async def delete_users(request: Request) -> Response:
    """``POST /api/users/bulk-delete``: delete users, or none if one does not exist."""
    names = (await requested.shaped_body(request, BULK))["users"]
    known = requested.broker(request).topology.users
    if missing := [name for name in names if name not in known]:
        raise BadRequest(f"no_such_user: {missing[0]}")
    for name in dict.fromkeys(names):
        await changing.apply(request, DeleteUser(name))
    return changing.deleted()


async def _password_hash(request: Request, body: dict[str, Any]) -> str:
    """Return the password hash for a body."""
    if "password" in body:
        if len(body["password"]) > MAX_PASSWORD:
            raise BadRequest(f"'password' has more than {MAX_PASSWORD} characters")
        authenticator = requested.broker(request).authenticator
        return await authenticator.hash(body["password"]) if body["password"] else ""
    return read_hash(body)


def read_hash(body: dict[str, Any]) -> str:
    """Return the stored form of a ``password_hash`` with its ``hashing_algorithm``.

    Raises:
        BadRequest: the hash is malformed, or the algorithm is unknown.
    """
    try:
        return foreign_hash(body.get("hashing_algorithm"), body.get("password_hash", ""))
    except ValueError as error:
        raise BadRequest(str(error)) from None


def shown_user(user: User) -> dict[str, Any]:
    """Return a user in RabbitMQ's format."""
    algorithm, text = shown_hash(user.password_hash)
    return {
        "name": user.name,
        "password_hash": text,
        "hashing_algorithm": algorithm,
        "tags": list(user.tags),
        "limits": dict(user.limits),
    }


def _named(request: Request) -> User:
    return requested.broker(request).topology.user(requested.name(request, "user"))


ROUTES = [
    Endpoint("GET", "/api/whoami", whoami),
    Endpoint("GET", "/api/users", all_users, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/users/without-permissions", users_without_permissions, access=Access.ADMINISTRATOR),
    Endpoint("POST", "/api/users/bulk-delete", delete_users, access=Access.ADMINISTRATOR, shape=BULK),
    Endpoint("GET", "/api/users/{user}", one_user, access=Access.ADMINISTRATOR),
    Endpoint("PUT", "/api/users/{user}", put_user, access=Access.ADMINISTRATOR, shape=SHAPE),
    Endpoint("DELETE", "/api/users/{user}", delete_user, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/users/{user}/permissions", user_permissions, access=Access.ADMINISTRATOR),
]
