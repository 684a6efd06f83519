"""What a policy would match and a definitions file would change, before either takes effect. JumpMQ's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.upkeep.slices import Slices
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.definitions import exported
from jumpmq.http.resources.import_definitions import FILE, check_definitions, lists_of
from jumpmq.http.resources.policies import SHAPE as POLICY
from jumpmq.queues import Queue
from jumpmq.topology import Exchange, InvalidPolicy, Policy, VirtualHost
from jumpmq.topology.bindings import Kind

SHOWN = 200
"""Matches, and changes, that are named; all are counted."""

IDENTITY = {
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("vhost", "user"),
    "topic_permissions": ("vhost", "user", "exchange"),
    "parameters": ("vhost", "component", "name"),
    "policies": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "exchanges": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
}
"""What makes two entries of a section the same thing."""

UNNAMED = {"arguments", "destination_type"}
FIXED = {"queues", "exchanges"}
"""What exists of these cannot become another by an import: the file would be refused."""

Entry = dict[str, Any]


async def preview_policy(request: Request) -> Response:
    """``POST /api/preview/policies/{vhost}/{name}``: what a policy would match, and where it would be in force.

    The body is that of the ``PUT``. The answer counts ``queues`` and ``exchanges`` that it ``matches``, and where it
    would be ``in_force``; ``items`` names the first ones, with the policy of higher priority that goes before.
    """
    host, name = requested.virtual_host(request), requested.name(request, "name")
    body = await requested.shaped_body(request, POLICY)
    priority, apply_to = body.get("priority", 0), body.get("apply-to", "all")
    policy = Policy(host.name, name, body["pattern"], body["definition"], priority, apply_to)
    try:
        policy.check(operator=False)
    except InvalidPolicy as error:
        raise BadRequest(error.text) from None
    return answer(await _matched(host, policy, requested.broker(request).slices))


async def preview_definitions(request: Request) -> Response:
    """``POST /api/preview/definitions``: what the import of a definitions file would change; nothing is.

    The answer counts by section what is ``new``, ``changed`` and the ``same``, and names the first ``changes``: of what
    is changed also which keys, and whether the import would be refused for it.
    """
    requested.require_json(request)
    broker, found = requested.broker(request), await requested.body(request, requested.MAX_LONG_BODY)
    async for _ in broker.slices.through(check_definitions(broker.topology, found)):
        pass
    shown = await _compared(exported(broker), found, broker.slices)
    await broker.slices.forget(*lists_of(found))
    return answer(shown)


async def _matched(host: VirtualHost, policy: Policy, slices: Slices) -> Entry:
    counts = {"queues": 0, "exchanges": 0, "in_force": 0}
    items: list[Entry] = []
    async for kind, one in slices.through(_objects(host)):
        if policy.matches(kind, one.name):
            before = host.in_force(one).policy
            winner = before if before is not None and _goes_before(before, policy) else None
            counts[f"{kind}s"] += 1
            counts["in_force"] += winner is None
            if len(items) < SHOWN:
                items.append({"kind": kind, "name": one.name, "hidden_by": winner.name if winner else None})
    return {**counts, "items": items}


def _objects(host: VirtualHost) -> Iterator[tuple[Kind, Queue | Exchange]]:
    yield from (("exchange", one) for one in list(host.exchanges.values()) if one.name)
    yield from (("queue", one) for one in list(host.queues.values()))


def _goes_before(other: Policy, policy: Policy) -> bool:
    """Whether another policy stays in force where both match."""
    if other.name == policy.name:
        return False
    return (-other.priority, other.name) < (-policy.priority, policy.name)


async def _compared(current: Entry, found: Entry, slices: Slices) -> Entry:
    sections: dict[str, dict[str, int]] = {}
    changes: list[Entry] = []
    for section, keys in IDENTITY.items():
        known = {_identity(entry, keys): entry async for entry in slices.through(current.get(section, ()))}
        counts = sections[section] = {"new": 0, "changed": 0, "same": 0}
        async for entry in slices.through(found.get(section) or ()):
            before = known.get(_identity(entry, keys))
            differing = [] if before is None else [key for key in entry if entry[key] != before.get(key, entry[key])]
            change = "new" if before is None else "changed" if differing else "same"
            counts[change] += 1
            if change != "same" and len(changes) < SHOWN:
                refused = change == "changed" and section in FIXED
                named = " ".join(str(entry.get(key, "")) for key in keys if key not in UNNAMED)
                changes.append(
                    {"section": section, "name": named, "change": change, "keys": differing, "refused": refused}
                )
        await slices.forget(known)
    return {"sections": sections, "changes": changes}


def _identity(entry: Entry, keys: tuple[str, ...]) -> tuple[str, ...]:
    defaults = {"destination_type": "queue", "arguments": {}, "routing_key": ""}
    return tuple(str(entry.get(key) or defaults.get(key, "")) for key in keys)


ROUTES = [
    Endpoint("POST", "/api/preview/policies/{vhost}/{name}", preview_policy, access=Access.POLICYMAKER, shape=POLICY),
    Endpoint("POST", "/api/preview/definitions", preview_definitions, access=Access.ADMINISTRATOR, shape=FILE),
]
