"""``/api/exchanges/{vhost}/{exchange}/ring/what-if``: preview of a change to a ring. JumpMQ's own."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.broker import Broker
from jumpmq.broker.security.accounts import Principal
from jumpmq.hashing.functions import modulus_place
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.ring_changes import in_order, read_steps, require_destinations
from jumpmq.http.schema.shapes import OBJECTS, Shape, whole
from jumpmq.queues.memory import MemoryAccount
from jumpmq.topology import Exchange
from jumpmq.topology.exchanges import ConsistentHashExchange
from jumpmq.topology.exchanges.modulus_hash import ModulusHashExchange
from jumpmq.topology.shards import MAX_SHARDS, shard_name

if TYPE_CHECKING:
    from jumpmq.topology.what_if import RemovalOutcome, Step, Way

SHAPE = Shape({"changes": OBJECTS, "shards": whole(MAX_SHARDS)})

AT_ONCE = 2
"""Number of plans computed in parallel."""

SHOWN_MOVES = 100
MAX_DESTINATIONS = 20_000


async def what_if(request: Request) -> Response:
    """``POST /api/exchanges/{vhost}/{exchange}/ring/what-if``: the share of keys that changes would move. Nothing is
    changed.

    The body is ``{"changes": [{"destination": NAME, "weight": N}, ...]}`` (bind, weigh, or with weight 0 unbind), or
    ``{"shards": N}``, a number of shards per node. The answer has the ``weights`` before and after, and ``least``, the
    share that any method must move. For each method of removal (``minimal``, ``shift``; ``modulus`` for
    ``x-modulus-hash``) it has the share ``moved``, with sources and targets. A destination that is not declared is a
    404.
    """
    exchange = requested.exchange(request)
    body = await requested.shaped_body(request, SHAPE)
    steps = in_order(exchange, read_steps(body.get("changes", [])))
    require_destinations(requested.virtual_host(request), [name for name, weight in steps if weight])
    if "shards" in body:
        steps += _shards(request, exchange, body["shards"])
    if not steps and "shards" not in body:
        raise BadRequest("key 'changes' or 'shards' is missing")
    async with _turn(requested.broker(request), requested.principal(request)):
        return answer(await _outcomes(requested.broker(request).memory, exchange, steps))


_all: WeakKeyDictionary[Broker, asyncio.Semaphore] = WeakKeyDictionary()
_of_users: WeakValueDictionary[tuple[int, Principal], asyncio.Lock] = WeakValueDictionary()


@asynccontextmanager
async def _turn(broker: Broker, user: Principal) -> AsyncIterator[None]:
    """Wait for a free slot to compute a plan: one plan per user, :data:`AT_ONCE` for all users."""
    everyone = _all.setdefault(broker, asyncio.Semaphore(AT_ONCE))
    own = _of_users.setdefault((id(broker), user), asyncio.Lock())  # freed with the last request that uses the lock
    async with own, everyone:
        yield


def _shards(request: Request, exchange: Exchange, count: int) -> list[tuple[str, int]]:
    """Return the shards that would be added. A smaller number removes no shards, as with a policy."""
    broker, host = requested.broker(request), requested.virtual_host(request)
    settings = host.in_force.sharding(exchange)
    if settings is None:
        raise PreconditionFailed(f"exchange '{exchange.name}' in vhost '{exchange.vhost}' is not sharded")
    key = settings.routing_key
    weight = int(key) if key is not None and isinstance(exchange, ConsistentHashExchange) else 1
    bound = {binding.destination for binding in exchange.bindings}
    nodes = broker.topology.nodes
    names = [shard_name(exchange.name, node, number) for node in nodes for number in range(count)]
    return [(name, weight) for name in names if name not in bound]


async def _outcomes(memory: MemoryAccount, exchange: Exchange, steps: Sequence[tuple[str, int]]) -> dict[str, Any]:
    computed = await asyncio.to_thread(importlib.import_module, "jumpmq.topology.what_if")  # the import takes 0.1 s

    if not isinstance(exchange, ConsistentHashExchange | ModulusHashExchange):
        raise NotFound(
            f"exchange '{exchange.name}' in vhost '{exchange.vhost}' spreads no keys: its type is {exchange.type}"
        )
    wanted = [computed.Step(*step) for step in steps]
    if isinstance(exchange, ConsistentHashExchange):
        before = dict(exchange.ring.destinations)
    else:
        before = dict.fromkeys(exchange.names, 1)
        wanted = [computed.Step(name, min(weight, 1)) for name, weight in wanted]
    try:
        after = computed.weights_after(before, wanted)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if max(len(before), len(after)) > MAX_DESTINATIONS:
        raise BadRequest(f"the exchange has, or would have, more than {MAX_DESTINATIONS} destinations")
    octets = computed.SAMPLE * computed.OCTETS_A_KEY + (len(before) + len(after)) * computed.OCTETS_A_DESTINATION
    memory.charge("answers", octets)
    try:
        outcomes = await _computed(exchange, wanted, before, after)
    finally:
        memory.charge("answers", -octets)
    return {
        "vhost": exchange.vhost,
        "exchange": exchange.name,
        "removal": exchange.ring.removal if isinstance(exchange, ConsistentHashExchange) else "modulus",
        "keys": computed.SAMPLE,
        "weights": {"before": before, "after": after},
        "least": round(computed.least(before, after), 6),
        "outcomes": {way: _shown(outcome) for way, outcome in outcomes.items()},
    }


async def _computed(
    exchange: ConsistentHashExchange | ModulusHashExchange,
    steps: list[Step],
    before: dict[str, int],
    after: dict[str, int],
) -> dict[Way, RemovalOutcome]:
    """Compute the outcomes in a thread; the kernel routes without the interpreter's lock."""
    from jumpmq.topology.what_if import modulus_outcomes, ring_outcomes

    if isinstance(exchange, ConsistentHashExchange):
        return await asyncio.to_thread(ring_outcomes, exchange.ring.state(), steps)
    order = exchange.names
    added = [name for name in after if name not in before]
    names = sorted(
        [name for name in order if name in after] + added, key=partial(modulus_place, function=exchange.function)
    )
    return await asyncio.to_thread(modulus_outcomes, order, names, exchange.function)


def _shown(outcome: RemovalOutcome) -> dict[str, Any]:
    return {
        "moved": outcome.moved,
        "moves": [
            {"from": move.source, "to": move.target, "share": move.share} for move in outcome.moves[:SHOWN_MOVES]
        ],
        "other_moves": max(0, len(outcome.moves) - SHOWN_MOVES),
    }


ROUTES = [
    Endpoint(
        "POST",
        "/api/exchanges/{vhost}/{exchange}/ring/what-if",
        what_if,
        access=Access.PLANNING,
        shape=SHAPE,
    )
]
