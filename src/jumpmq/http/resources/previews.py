"""Previews of policies and imports: matches and changes, before any takes effect. JumpMQ's own."""

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
from jumpmq.topology.bindings import Kind
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import Destination
from jumpmq.topology.policies import Policies

SHOWN = 200
"""Maximum number of matches and changes named; all are counted."""

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
"""Sections whose existing entries cannot change by an import: the file would be refused."""

Entry = dict[str, Any]


def policy_previews(operator: bool) -> tuple[Respond, Respond]:
    """Return the endpoints that preview setting and clearing a policy, or an operator policy."""

    async def preview_policy(request: Request) -> Response:
        """``POST /api/preview/policies/{vhost}/{name}``: matches of a policy, and the objects where it would be in
        force.

        The body is that of the ``PUT``. The answer counts ``queues`` and ``exchanges`` that it ``matches``, and where
        it would be ``in_force``; ``items`` names the first ones, with the policy of higher priority that goes before.
        ``discards`` counts what its limits would let go of at once (:class:`Discards`), at all nodes and workers;
        ``uncounted`` in it names the nodes that do not answer.
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
        """``GET /api/preview/policies/{vhost}/{name}/cleared``: what clearing a policy would let go of at once,
        as where another policy with lower limits then is in force."""
        host, name = requested.virtual_host(request), requested.name(request, "name")
        here = await _discards(request, host, host.policies.without_policy(name, operator))
        return answer({"discards": await _of_all_homes(request, here)})

    return preview_policy, preview_clearing


@dataclass
class Discards:
    """Messages to be discarded at once under new limits.

    Attributes:
        queues: how many queues would lose messages.
        messages: by ``max-length``.
        octets: of bodies, by ``max-length-bytes``, where ``max-length`` does not say.
        streams: streams that would keep less: whole segments may go.
        expiring: queues without a consumer that would be deleted if they stay unused (``expires``).
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
    """Return the discards here and at remote homes, which the request is sent to, and the nodes not answering."""
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


def _objects(host: VirtualHost) -> Iterator[tuple[Kind, Destination]]:
    yield from (("exchange", one) for one in list(host.exchanges.values()) if one.name)
    yield from (("queue", one.destination) for one in list(host.declared.values()))


def _goes_before(other: Policy, policy: Policy) -> bool:
    """Return True if a second policy takes precedence where both match."""
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
