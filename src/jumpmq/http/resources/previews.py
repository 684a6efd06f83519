"""Previews of policies and imports: matches and changes, without any effect. JumpMQ's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.figures.values import QueueFigures
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint, Respond
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.definitions import exported
from jumpmq.http.resources.import_definitions import FILE, check_definitions, lists_of
from jumpmq.http.resources.policies import SHAPE as POLICY
from jumpmq.queues.arguments import Limits
from jumpmq.topology import Exchange, InvalidPolicy, Policy, VirtualHost
from jumpmq.topology.bindings import DestinationKind
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import Destination
from jumpmq.topology.policies import Policies

SHOWN = 200
"""Maximum number of matches, and of changes, named in an answer. The counts include all."""

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
"""Keys that identify an entry of a section."""

UNNAMED = {"arguments", "destination_type"}
FIXED = {"queues", "exchanges"}
"""Sections whose existing entries cannot change by an import: a file with a changed entry is refused."""

Entry = dict[str, Any]


def policy_previews(operator: bool) -> tuple[Respond, Respond]:
    """Return the endpoints that preview setting and clearing a policy, or an operator policy."""

    async def preview_policy(request: Request) -> Response:
        """``POST /api/preview/policies/{vhost}/{name}``: matches of a policy, and the objects where it would be in
        force.

        The body is that of the ``PUT``. The answer has the numbers of ``queues`` and ``exchanges`` that the policy
        ``matches``, and where the policy would be ``in_force``. ``items`` names the first matches, each with the policy
        that has precedence, if any. ``discards`` counts the messages that the policy's limits would discard at once
        (:class:`Discards`), at all nodes and workers; ``uncounted`` in it names the nodes that do not answer.
        """
        host, name = requested.virtual_host(request), requested.name(request, "name")
        body = await requested.shaped_body(request, POLICY)
        priority, apply_to = body.get("priority", 0), body.get("apply-to", "all")
        policy = Policy(host.name, name, body["pattern"], body["definition"], priority, apply_to)
        try:
            policy.check(operator=operator)
        except InvalidPolicy as error:
            raise BadRequest(error.text) from None
        matched = await _matched(host, policy, operator, requested.broker(request).slices)
        here = await _discards(request, host, host.policies.with_policy(policy, operator))
        return answer(matched | {"discards": await _of_all_homes(request, here, body)})

    async def preview_clearing(request: Request) -> Response:
        """``GET /api/preview/policies/{vhost}/{name}/cleared``: the messages that clearing a policy would discard at
        once, because another policy with lower limits would come into force."""
        host, name = requested.virtual_host(request), requested.name(request, "name")
        here = await _discards(request, host, host.policies.without_policy(name, operator))
        return answer({"discards": await _of_all_homes(request, here)})

    return preview_policy, preview_clearing


@dataclass
class Discards:
    """Numbers of messages and queues that new limits would discard at once.

    Attributes:
        queues: number of queues that would lose messages.
        messages: number of messages discarded by ``max-length``.
        octets: octets of bodies discarded by ``max-length-bytes``, of queues that lose no message by ``max-length``.
        streams: number of streams with a lower limit: whole segments may be removed.
        expiring: number of queues without a consumer that would be deleted after ``expires``, if unused.
    """

    queues: int = 0
    messages: int = 0
    octets: int = 0
    streams: int = 0
    expiring: int = 0

    def add(self, before: Limits, after: Limits, figures: QueueFigures) -> None:
        """Count the losses of a queue."""
        if figures.append_only:
            kept = ("max_length_bytes", "max_age")
            self.streams += figures.ready > 0 and any(_is_less(before, after, name) for name in kept)
            return
        messages = octets = 0
        if after.overflow == "drop-head":
            if after.max_length is not None:
                messages = max(0, figures.ready - after.max_length)
            if after.max_length_bytes is not None and figures.messages is not None and not messages:
                octets = max(0, figures.messages.ready_octets - after.max_length_bytes)
        self.messages += messages
        self.octets += octets
        self.queues += bool(messages or octets)
        self.expiring += not figures.consumers and _is_less(before, after, "expires")


def _is_less(before: Limits, after: Limits, name: str) -> bool:
    was, becomes = getattr(before, name), getattr(after, name)
    return becomes is not None and (was is None or becomes < was)


async def _of_all_homes(request: Request, here: Discards, body: Any = None) -> Entry:
    """Return the discards of all homes, and the nodes that do not answer. Other homes get a copy of the request."""
    forwarder = requested.forwarder(request)
    answers = await forwarder.everywhere(request, body)
    found = asdict(here)
    for one in answers.values():
        found = {what: count + one["discards"][what] for what, count in found.items()}
    topology = requested.broker(request).topology
    away = {topology.node_of(home) for home in forwarder.others if home not in answers}
    return found | {"uncounted": sorted(away)}


async def _discards(request: Request, host: VirtualHost, policies: Policies) -> Discards:
    broker, found, changed = requested.broker(request), Discards(), list[tuple[QueueDefinition, Limits, Limits]]()
    async for definition in broker.slices.through(host.queue_definitions()):
        queue = host.queues.get(definition.name)
        if queue is not None:
            in_force = policies.in_force("queue", queue.name, queue.refused_policy_keys, queue.type)
            before, after = (
                queue.limits_under(host.in_force.of(queue).definition),
                queue.limits_under(in_force.definition),
            )
            if before != after:
                changed.append((definition, before, after))
    figures = await broker.figures.queues([definition for definition, _, _ in changed])
    for (_, before, after), one in zip(changed, figures, strict=True):
        if one is not None:
            found.add(before, after, one)
    return found


async def preview_definitions(request: Request) -> Response:
    """``POST /api/preview/definitions``: the changes that an import of a definitions file would make. Nothing is
    changed.

    The answer has the numbers of ``new``, ``changed`` and ``same`` entries by section, and the first ``changes``. A
    changed entry has the changed keys, and a flag if the import would be refused because of the entry.
    """
    requested.require_json(request)
    broker, found = requested.broker(request), await requested.body(request, requested.MAX_LONG_BODY)
    async for _ in broker.slices.through(check_definitions(broker.topology, found)):
        pass
    shown = await _compared(exported(broker), found, broker.slices)
    await broker.slices.forget(*lists_of(found))
    return answer(shown)


async def _matched(host: VirtualHost, policy: Policy, operator: bool, slices: Slices) -> Entry:
    counts = {"queues": 0, "exchanges": 0, "in_force": 0}
    items: list[Entry] = []
    async for kind, one in slices.through(_objects(host)):
        if policy.matches(kind, one.name, "" if isinstance(one, Exchange) else one.type):
            in_force = host.in_force.of(one)
            before = in_force.operator_policy if operator else in_force.policy
            winner = before if before is not None and _goes_before(before, policy) else None
            counts[f"{kind}s"] += 1
            counts["in_force"] += winner is None
            if len(items) < SHOWN:
                items.append({"kind": kind, "name": one.name, "hidden_by": winner.name if winner else None})
    return {**counts, "items": items}


def _objects(host: VirtualHost) -> Iterator[tuple[DestinationKind, Destination]]:
    yield from (("exchange", one) for one in list(host.exchanges.values()) if one.name)
    yield from (("queue", one.destination) for one in list(host.declared.values()))


def _goes_before(other: Policy, policy: Policy) -> bool:
    """Return True if another policy has precedence for objects that match both policies."""
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


def _routes(path: str, operator: bool) -> list[Endpoint]:
    preview_policy, preview_clearing = policy_previews(operator)
    one, access = f"/api/preview/{path}/{{vhost}}/{{name}}", Access.ADMINISTRATOR if operator else Access.POLICYMAKER
    return [
        Endpoint("POST", one, preview_policy, access=access, shape=POLICY),
        Endpoint("GET", f"{one}/cleared", preview_clearing, access=access),
    ]


ROUTES = [
    *_routes("policies", operator=False),
    *_routes("operator-policies", operator=True),
    Endpoint("POST", "/api/preview/definitions", preview_definitions, access=Access.ADMINISTRATOR, shape=FILE),
]
