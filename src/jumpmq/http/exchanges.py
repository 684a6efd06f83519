"""``/api/exchanges``. In a path, the exchange without a name is ``amq.default``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq.http import request as of
from jumpmq.http.json import json_list, json_object
from jumpmq.topology import Exchange


async def all_exchanges(request: Request) -> Response:
    """``GET /api/exchanges``: of all virtual hosts."""
    hosts = of.broker_of(request).topology.vhosts.values()
    return await json_list(request, [exchange for host in hosts for exchange in host.exchanges.values()], shown)


async def exchanges_of_host(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}``."""
    return await json_list(request, of.virtual_host(request).exchanges.values(), shown)


async def one_exchange(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}``."""
    return json_object(request, shown(of.exchange(request)))


def shown(exchange: Exchange) -> dict[str, Any]:
    """An exchange as RabbitMQ's management API shows one."""
    return {
        "name": exchange.name,
        "vhost": exchange.vhost,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments.plain(),
    }


ROUTES = [
    Route("/api/exchanges", all_exchanges),
    Route("/api/exchanges/{vhost}", exchanges_of_host),
    Route("/api/exchanges/{vhost}/{exchange}", one_exchange),
]
