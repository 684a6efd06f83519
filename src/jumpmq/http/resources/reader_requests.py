"""Requests about reader groups: names, rights, and the fields of bodies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from jumpmq.broker.bulk.reader_group import LEASE, ReaderGroup, owned
from jumpmq.broker.bulk.reader_groups import ReaderGroups
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing import sessions_of_readers as sessions
from jumpmq.http.plumbing.access import sees_all_vhosts
from jumpmq.http.plumbing.changing import check_permission, may_read
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.queues.reservations import OWNED
from jumpmq.topology import VirtualHost

MAX_LEASE = 86400.0
"""Maximum lease of a group, in seconds."""


def for_home(body: dict[str, Any], home: int, queues: list[str], offsets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request for a home's queues."""
    given = body.get("last_seq", {})
    last_seqs = {queue: given[queue] for queue in queues if queue in given}
    own = {"exchange": None, "queues": {queue: offsets[queue] for queue in queues}, "last_seq": last_seqs}
    return part_of_session(body, home) | own


def slices_of_queues(body: dict[str, Any], queues: list[str]) -> list[Any]:
    """Return the body's slices of the given queues."""
    wanted = set(queues)
    return [one for one in body["slices"] if one[0] in wanted]


def part_of_session(body: dict[str, Any], home: int) -> dict[str, Any]:
    """Return the body with a home's part of the session."""
    return body | {"session": sessions.part_of(body.get("session"), home)}


def group_name(request: Request, *, also_others: bool = False) -> str:
    """Return the internal name of the group in the path: with the user's name, or without it for a group of an earlier
    version.

    Args:
        also_others: True to let an administrator name another user's group, if the administrator has no group of the
            name. The query's ``user`` names the other user.
    """
    host, name = requested.virtual_host(request), requested.name(request, "group")
    if OWNED in name:
        raise BadRequest("the name of a group has a control character")
    known, user = groups(request), requested.user(request)
    own = owned(name, requested.principal(request))
    if known.group(host.name, own) is not None and "user" not in request.query_params:
        return own
    if known.group(host.name, name) is not None:
        return name
    if also_others and "administrator" in user.tags:
        whose = request.query_params.get("user")
        for group in known.groups(host.name):
            if group.shown_name == name and whose in (None, group.user):
                return group.name
    return own


def may_see(request: Request, group: ReaderGroup) -> bool:
    """Return True if a list for the user includes a group."""
    user = requested.user(request)
    return (
        sees_all_vhosts(user)
        or group.user is None
        or group.name == owned(group.shown_name, requested.principal(request))
        or any(may_read(request, place.queue.vhost, place.queue.name) for place in group.places.values())
    )


def require_read(request: Request, host: VirtualHost, name: str) -> None:
    """Refuse unless the user may read every queue in which the group has a position.

    Raises:
        AccessRefused: the user may not read a queue.
    """
    group = groups(request).group(host.name, name)
    for place in group.places.values() if group is not None else ():
        check_permission(request, host.name, "read", place.queue.name)


def groups(request: Request) -> ReaderGroups:
    """Return the broker's reader groups."""
    return requested.broker(request).reader_groups


def numbers(body: dict[str, Any], key: str, *, nullable: bool = False) -> dict[str, Any]:
    """Return a body's numbers by queue.

    Args:
        nullable: True if a number may be null.

    Raises:
        BadRequest: not an object of whole numbers.
    """
    numbers = body.get(key, {})
    if not isinstance(numbers, dict):
        raise BadRequest(f"'{key}' must be an object of queue names and whole numbers")
    for name, value in numbers.items():
        if not (requested.is_whole(value) or (nullable and value is None)):
            raise BadRequest(f"'{key}' of queue '{name}' must be a whole number from 0, not {value!r}")
    return numbers


def seen(body: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Return a body's fingerprints of data directories: by directory, the start and the last commit.

    Raises:
        BadRequest: not a value of an earlier answer.
    """
    seen = body.get("seen", {})
    if not isinstance(seen, dict) or not all(_is_start(one) for one in seen.values()):
        raise BadRequest(f"'seen' must be the value of an earlier answer, not {str(seen)[:100]}")
    return {directory: (start, commit) for directory, (start, commit) in seen.items()}


def _is_start(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and bool(requested.is_whole(value[1]))
    )


def whole(body: dict[str, Any], key: str) -> int | None:
    """Return a whole number of a body; None if absent or null.

    Raises:
        BadRequest: not a whole number.
    """
    value = body.get(key)
    if value is not None and not requested.is_whole(value):
        raise BadRequest(f"'{key}' must be a whole number from 0 or null, not {value!r}")
    return value


def session(request: Request, body: dict[str, Any]) -> str | None:
    """Return this home's part of the session in a body; None without a session.

    Raises:
        BadRequest: the session is not text.
    """
    value = body.get("session")
    if value is not None and not isinstance(value, str):
        raise BadRequest("'session' must be text")
    return None if value is None else requested.forwarder(request).own_session(value)


def lease(body: dict[str, Any]) -> float:
    """Return a body's lease in seconds.

    Raises:
        BadRequest: not a number of seconds up to ``MAX_LEASE``.
    """
    value = body.get("lease", LEASE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_LEASE or math.isnan(value):
        raise BadRequest(f"'lease' must be a number of seconds up to {MAX_LEASE:.0f}, not {value!r}")
    return float(value)
