"""``/api/exchanges/{vhost}/{exchange}/ring/changes``: several changes of a hash ring, all or none. JumpMQ's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import AMQPError, NotFound
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.rings import hash_exchange
from jumpmq.http.schema.shapes import NAME, OBJECTS, Shape, whole
from jumpmq.topology import Bind, Binding, Change, ChangePrincipal, Exchange, Pending, Topology, Unbind, VirtualHost
from jumpmq.topology.bindings import DestinationKind
from jumpmq.topology.changes.undoing import inverse, inverse_of_effects
from jumpmq.topology.exchanges import ConsistentHashExchange

SHAPE = Shape({"changes": OBJECTS}, required=("changes",))
CHANGE = Shape({"destination": NAME, "weight": whole(10_000)}, required=("destination", "weight"))

MAX_CHANGES = 100

Steps = list[tuple[str, int]]
"""Destinations, by label on the ring, with their future weights; 0 unbinds."""


async def change(request: Request) -> Response:
    """``POST /api/exchanges/{vhost}/{exchange}/ring/changes``: bind, weigh and unbind destinations, all or none.

    The body is that of ``ring/what-if``: ``{"changes": [{"destination": NAME, "weight": N}, ...]}``; weight 0 unbinds.
    Destinations are bound before others are unbound, so that every key always has a destination. If a change is
    refused, earlier changes are undone, and the answer has the reason. Otherwise the answer lists the new
    ``destinations``.
    """
    exchange, host = hash_exchange(request), requested.virtual_host(request)
    body = await requested.shaped_body(request, SHAPE)
    steps = in_order(exchange, read_steps(body["changes"]))
    changes = [one for step in steps for one in _changes(host, exchange, *step, requested.principal(request).owner)]
    broker = requested.broker(request)
    for one in changes:
        broker.authorization.require_change(requested.principal(request), one)
    require_destinations(host, [name for name, weight in steps if weight])
    await changing.in_turns(request, _made(broker.topology, changes, changing.change_principal(request)))
    found = [{"destination": name, "weight": weight} for name, weight in exchange.ring.destinations.items()]
    return answer({"destinations": found})


def read_steps(changes: list[object]) -> Steps:
    """Parse the steps in a body.

    Raises:
        BadRequest: a step has the wrong shape, or the body has too many steps.
    """
    found = [CHANGE.read(one, f"changes[{place}]") for place, one in enumerate(changes)]
    if len(found) > MAX_CHANGES:
        raise BadRequest(f"the request has more than {MAX_CHANGES} changes")
    return [(one["destination"], one["weight"]) for one in found]


def in_order(exchange: Exchange, steps: Steps) -> Steps:
    """Sort steps for execution: new bindings first, then weights, then unbinding."""
    bound = dict(exchange.ring.destinations) if isinstance(exchange, ConsistentHashExchange) else {}
    return sorted(steps, key=lambda step: (not step[1], step[0] in bound))


def require_destinations(host: VirtualHost, names: Iterable[str]) -> None:
    """Refuse undeclared destinations.

    Raises:
        NotFound: a destination is not declared.
    """
    for label in names:
        kind, name = destination_of(label)
        if name not in (host.declared if kind == "queue" else host.exchanges):
            raise NotFound(f"no {kind} '{name}' in vhost '{host.name}'")


def destination_of(label: str) -> tuple[DestinationKind, str]:
    """Return kind and name of a destination, by its label on a ring."""
    if label.startswith("exchange:"):
        return "exchange", label.removeprefix("exchange:")
    return "queue", label.removeprefix("queue:")


def _changes(
    host: VirtualHost, exchange: ConsistentHashExchange, label: str, weight: int, user: str
) -> Iterator[Change]:
    """Yield the bindings added and removed by a step: first the new binding, to keep the destination on the ring."""
    kind, name = destination_of(label)
    key = str(weight).encode()
    old = [one for one in exchange.bindings if (one.kind, one.destination) == (kind, name)]
    if not old and not weight:
        raise BadRequest(f"destination '{label}' is not bound")
    kept = next((one for one in old if one.key == key and not one.arguments), None) if weight else None
    if weight and kept is None:
        yield Bind(host.name, Binding(exchange.name, kind, name, key), requested.NO_CONNECTION, user)
    for binding in old:
        if binding is not kept:
            yield Unbind(host.name, binding, requested.NO_CONNECTION)


def _made(topology: Topology, changes: Iterable[Change], principal: ChangePrincipal) -> Iterator[Pending | None]:
    """Apply changes in sequence; if a change is refused, undo the earlier changes.

    Raises:
        AMQPError: a change is refused.
    """
    undoing: list[Change] = []
    for one in changes:
        try:
            back = inverse(topology, one)
            pending = topology.propose(one, principal, limited=True)
            yield pending
            pending.result()
        except AMQPError:
            for change_back in reversed(undoing):
                yield topology.propose(change_back, principal)
            raise
        undoing += [*back, *inverse_of_effects(pending.effects)]


ROUTES = [Endpoint("POST", "/api/exchanges/{vhost}/{exchange}/ring/changes", change, shape=SHAPE)]
"""Routes of this module. The user's rights are checked for each change."""
