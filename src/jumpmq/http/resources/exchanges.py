"""``/api/exchanges``. In paths, the exchange with the empty name is ``amq.default``."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.rates import Rates
from jumpmq.http.resources.policies import in_force
from jumpmq.http.samples import add_samples
from jumpmq.http.schema.shapes import ARGUMENTS, BOOLEAN, TEXT, Shape
from jumpmq.topology import DeclareExchange, DeleteExchange, Exchange, ExchangeDefinition
from jumpmq.topology.exchanges.delayed import DelayedMessageExchange
from jumpmq.topology.exchanges.holding import HoldingExchange
from jumpmq.topology.names import stripped

if TYPE_CHECKING:
    from jumpmq.http.history import History

SHAPE = Shape(
    {"type": TEXT, "durable": BOOLEAN, "auto_delete": BOOLEAN, "internal": BOOLEAN, "arguments": ARGUMENTS},
    ignored=("name", "vhost"),
)


AT_HAND: dict[str, Callable[[Exchange], Any]] = {
    "name": attrgetter("name"),
    "vhost": attrgetter("vhost"),
    "type": attrgetter("type"),
}
"""Sort columns available without rendering the exchange."""


async def all_exchanges(request: Request) -> Response:
    """``GET /api/exchanges?type=x-consistent-hash``: exchanges of all virtual hosts, optionally by type."""
    hosts = requested.visible_hosts(request)
    return await _answer(request, [exchange for host in hosts for exchange in host.exchanges.values()])


async def exchanges_of_host(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}``: exchanges of a virtual host."""
    return await _answer(request, list(requested.virtual_host(request).exchanges.values()))


async def one_exchange(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}``: an exchange."""
    exchange = requested.exchange(request)
    found = _shown(request, exchange) or {}
    if found and isinstance(exchange, HoldingExchange):
        found |= await _held(request, exchange)
    return answer_object(request, found)


async def _held(request: Request, exchange: HoldingExchange) -> dict[str, Any]:
    """Return the state of the queue of an exchange that holds messages; null if the queue's home does not answer."""
    broker, name = requested.broker(request), exchange.queue_name
    declared = broker.topology.vhosts[exchange.vhost].declared.get(name)
    figures = None if declared is None else await broker.figures.queue(declared.definition)
    if isinstance(exchange, DelayedMessageExchange):
        return {"delayed_queue": name, "messages_delayed": None if figures is None else figures.ready}
    return {"cache_queue": name, "cache_info": None if figures is None else figures.status["cache_info"]}


async def declare_exchange(request: Request) -> Response:
    """``PUT /api/exchanges/{vhost}/{exchange}``: declare an exchange; an existing one must be equivalent."""
    host, name = requested.virtual_host(request), stripped(requested.exchange_name(request))
    body = await requested.shaped_body(request, SHAPE)
    existed = name in host.exchanges
    await changing.apply(request, DeclareExchange(ExchangeDefinition(host.name, name, **body)))
    return changing.put_answer(existed)


async def delete_exchange(request: Request) -> Response:
    """``DELETE /api/exchanges/{vhost}/{exchange}?if-unused=true``: delete an exchange and its bindings."""
    exchange = requested.exchange(request)
    await changing.apply(request, DeleteExchange(exchange.vhost, exchange.name, requested.flag(request, "if-unused")))
    return changing.deleted()


async def _answer(request: Request, exchanges: list[Exchange]) -> Response:
    wanted = request.query_params.get("type")
    chosen = exchanges if wanted is None else [exchange for exchange in exchanges if exchange.type == wanted]
    return await answer_list(request, chosen, lambda exchange: _shown(request, exchange), at_hand=AT_HAND)


def _shown(request: Request, exchange: Exchange) -> dict[str, Any] | None:
    """Return an exchange in the format of RabbitMQ's management API; None if its virtual host was deleted."""
    rates: Rates = request.app.state.rates
    history: History = request.app.state.history
    host = requested.broker(request).topology.vhosts.get(exchange.vhost)
    if host is None:
        return None
    stats = {"message_stats": rates.of_exchange(exchange.vhost, exchange.name)}
    found = exchange.definition.shown() | stats | in_force(host, exchange)
    return add_samples(request, found, lambda: history.of("exchange", exchange.vhost, exchange.name))


ROUTES = [
    Endpoint("GET", "/api/exchanges", all_exchanges),
    Endpoint("GET", "/api/exchanges/{vhost}", exchanges_of_host),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}", one_exchange),
    Endpoint("PUT", "/api/exchanges/{vhost}/{exchange}", declare_exchange, shape=SHAPE),
    Endpoint("DELETE", "/api/exchanges/{vhost}/{exchange}", delete_exchange),
]
