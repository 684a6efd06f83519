"""``/api/bindings``, and the bindings from an exchange and to an exchange or queue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq.amqp.fields import write_fields
from jumpmq.http import request as of
from jumpmq.http.json import json_list
from jumpmq.topology import Binding, VirtualHost


async def all_bindings(request: Request) -> Response:
    """``GET /api/bindings``: of all virtual hosts."""
    hosts = of.broker_of(request).topology.vhosts.values()
    return await json_list(request, [(host.name, binding) for host in hosts for binding in host.bindings()], _shown)


async def bindings_of_host(request: Request) -> Response:
    """``GET /api/bindings/{vhost}``."""
    host = of.virtual_host(request)
    return await _answer(request, host, host.bindings())


async def bindings_from(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/bindings/source``: what the exchange routes to."""
    return await _answer(request, of.virtual_host(request), of.exchange(request).bindings)


async def bindings_to_exchange(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/bindings/destination``: what routes to the exchange."""
    host = of.virtual_host(request)
    return await _answer(request, host, host.bindings_to(of.exchange(request)))


async def bindings_to_queue(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/bindings``: what routes to the queue."""
    host = of.virtual_host(request)
    return await _answer(request, host, host.bindings_to(of.queue(request)))


async def bindings_between(request: Request) -> Response:
    """``GET /api/bindings/{vhost}/e/{exchange}/q/{queue}``, or ``.../e/{destination}``: the bindings of one pair."""
    host, source = of.virtual_host(request), of.exchange(request)
    destination = of.queue(request) if "queue" in request.path_params else of.exchange(request, "destination")
    return await _answer(request, host, [one for one in host.bindings_to(destination) if one.source == source.name])


async def _answer(request: Request, host: VirtualHost, bindings: Iterable[Binding]) -> Response:
    return await json_list(request, [(host.name, binding) for binding in bindings], _shown)


def _shown(item: tuple[str, Binding]) -> dict[str, Any]:
    """A binding as RabbitMQ's management API shows one."""
    vhost, binding = item
    return {
        "source": binding.source,
        "vhost": vhost,
        "destination": binding.destination,
        "destination_type": binding.kind,
        "routing_key": binding.key.decode("utf-8", "replace"),
        "arguments": binding.arguments.plain(),
        "properties_key": _properties_key(binding),
    }


def _properties_key(binding: Binding) -> str:
    """What tells a binding from others between the same two, fit for a path: its key, and a digest of its arguments."""
    key = quote(binding.key, safe="")
    if not binding.arguments:
        return key or "~"
    return f"{key}~{hashlib.sha256(write_fields(binding.arguments.fields)).hexdigest()[:16]}"


ROUTES = [
    Route("/api/bindings", all_bindings),
    Route("/api/bindings/{vhost}", bindings_of_host),
    Route("/api/bindings/{vhost}/e/{exchange}/q/{queue}", bindings_between),
    Route("/api/bindings/{vhost}/e/{exchange}/e/{destination}", bindings_between),
    Route("/api/exchanges/{vhost}/{exchange}/bindings/source", bindings_from),
    Route("/api/exchanges/{vhost}/{exchange}/bindings/destination", bindings_to_exchange),
    Route("/api/queues/{vhost}/{queue}/bindings", bindings_to_queue),
]
