"""``/api/exchanges/{vhost}/{exchange}/ring``: which destination has which buckets. JumpMQ's own; RabbitMQ has none."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.topology.exchanges import ConsistentHashExchange


async def ring(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/ring``: the hash ring of a consistent hash exchange.

    Buckets are runs, ``[first, count]``: a ring may have millions. Destinations are in order of binding; an exchange
    among them is called ``exchange:NAME``.
    """
    exchange = requested.exchange(request)
    if not isinstance(exchange, ConsistentHashExchange):
        raise NotFound(
            f"exchange '{exchange.name}' in vhost '{exchange.vhost}' has no ring: its type is {exchange.type}"
        )
    return answer_object(request, shown(exchange))


def shown(exchange: ConsistentHashExchange) -> dict[str, Any]:
    """A ring as JSON."""
    state, weights = exchange.ring.state(), exchange.ring.destinations
    return {
        "vhost": exchange.vhost,
        "exchange": exchange.name,
        "removal": state["removal"],
        "buckets": exchange.ring.buckets,
        "destinations": [
            {"destination": name, "weight": weights[name], "runs": runs} for name, runs in state["destinations"]
        ],
        "retired": state["retired"],
    }


ROUTES = [Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/ring", ring, access=Access.ADMINISTRATOR)]
