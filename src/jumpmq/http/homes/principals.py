"""Who asks, told from home to home: the one where the user logged in says it in a header."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import astuple

from jumpmq.broker.security.accounts import Principal
from jumpmq.topology.users import Permissions, TopicPermissions, User

HEADER = b"jumpmq-user"


def written(principal: Principal) -> bytes:
    """A principal, as a header's value."""
    return b64encode(json.dumps([principal.name, _granted(principal.granted), principal.until]).encode())


def read(value: str) -> Principal:
    """The inverse of :func:`written`."""
    name, granted, until = json.loads(b64decode(value))
    return Principal(name, None if granted is None else _user(*granted), until)


def _granted(user: User | None) -> list[object] | None:
    if user is None:
        return None
    permissions = [(vhost, *astuple(one)) for vhost, one in user.permissions.items()]
    topics = [(*place, *astuple(one)) for place, one in user.topic_permissions.items()]
    return [user.name, user.tags, permissions, topics, user.limits]


def _user(
    name: str,
    tags: list[str],
    permissions: list[tuple[str, str, str, str]],
    topics: list[tuple[str, str, str, str]],
    limits: dict[str, int],
) -> User:
    return User(
        name,
        "",
        tuple(tags),
        {vhost: Permissions(*patterns) for vhost, *patterns in permissions},
        {(vhost, exchange): TopicPermissions(*patterns) for vhost, exchange, *patterns in topics},
        limits,
    )
