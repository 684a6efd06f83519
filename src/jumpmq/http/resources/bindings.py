"""``/api/bindings``, and the bindings from an exchange and to an exchange or queue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.amqp.fields import write_fields
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.schema.shapes import ARGUMENTS, NAME, Shape
from jumpmq.topology import Arguments, Bind, Binding, Unbind, VirtualHost
from jumpmq.topology.names import stripped

SHAPE = Shape(
    {"routing_key": NAME, "arguments": ARGUMENTS},
    ignored=("source", "destination", "destination_type", "vhost", "properties_key"),
)
ORDER = ("vhost", "source", "destination", "routing_key", "properties_key")


async def all_bindings(request: Request) -> Response:
    """``GET /api/bindings``: bindings of all virtual hosts."""
    hosts = requested.visible_hosts(request)
    found = [(host.name, binding) for host in hosts for binding in host.bindings()]
    return await answer_list(request, found, shown, ORDER)


async def bindings_of_host(request: Request) -> Response:
    """``GET /api/bindings/{vhost}``: bindings of a virtual host."""
    host = requested.virtual_host(request)
    return await _answer(request, host, host.bindings())


async def bindings_from(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/bindings/source``: bindings from the exchange."""
    return await _answer(request, requested.virtual_host(request), requested.exchange(request).bindings)


async def bindings_to_exchange(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/bindings/destination``: bindings to the exchange."""
    host = requested.virtual_host(request)
    return await _answer(request, host, host.bindings_to(requested.exchange(request)))


async def bindings_to_queue(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/bindings``: bindings to the queue."""
    host = requested.virtual_host(request)
    return await _answer(request, host, host.bindings_to(requested.destination(request)))


async def bindings_between(request: Request) -> Response:
    """``GET /api/bindings/{vhost}/e/{exchange}/q/{queue}``, or ``.../e/{destination}``: the bindings of one pair."""
    host = requested.virtual_host(request)
    return await _answer(request, host, _between(request))


async def one_binding(request: Request) -> Response:
    """``GET /api/bindings/{vhost}/e/{exchange}/q/{queue}/{properties}``: a binding, by ``properties_key``."""
    return answer_object(request, shown((requested.virtual_host(request).name, _named(request))))


async def bind(request: Request) -> Response:
    """``POST /api/bindings/{vhost}/e/{exchange}/q/{queue}``: add a binding.

    The header ``Location`` ends in the binding's ``properties_key``.
    """
    host, body = requested.virtual_host(request), await requested.shaped_body(request, SHAPE)
    to_queue = "queue" in request.path_params
    binding = Binding(
        stripped(requested.exchange_name(request)),
        "queue" if to_queue else "exchange",
        stripped(requested.name(request, "queue") if to_queue else requested.exchange_name(request, "destination")),
        body.get("routing_key", "").encode(),
        body.get("arguments", Arguments()),
    )
    await changing.apply(request, Bind(host.name, binding, requested.NO_CONNECTION, requested.principal(request).owner))
    place = f"{quote(binding.destination, safe='')}/{quote(_properties_key(binding), safe='~')}"
    return Response(status_code=201, headers={"Location": place})


async def unbind(request: Request) -> Response:
    """``DELETE /api/bindings/{vhost}/e/{exchange}/q/{queue}/{properties}``: remove a binding."""
    host, binding = requested.virtual_host(request), _named(request)
    await changing.apply(request, Unbind(host.name, binding, requested.NO_CONNECTION))
    return changing.deleted()


def _between(request: Request) -> list[Binding]:
    """Return the bindings between source and destination in the path."""
    host, source = requested.virtual_host(request), requested.exchange(request)
    destination = (
        requested.destination(request) if "queue" in request.path_params else requested.exchange(request, "destination")
    )
    return [binding for binding in host.bindings_to(destination) if binding.source == source.name]


def _named(request: Request) -> Binding:
    """Return the binding with the ``properties_key`` at the end of the path. The key may be percent-encoded once (as by
    ``rabbitmqadmin``) or twice.

    Raises:
        NotFound: the binding does not exist.
    """
    raw = request.path_params["properties"]
    wanted = {raw, unquote(raw)}
    for binding in _between(request):
        if _properties_key(binding) in wanted:
            return binding
    raise NotFound("no such binding")


async def _answer(request: Request, host: VirtualHost, bindings: Iterable[Binding]) -> Response:
    return await answer_list(request, [(host.name, binding) for binding in bindings], shown, ORDER)


def shown(item: tuple[str, Binding]) -> dict[str, Any]:
    """Return a binding in the format of RabbitMQ's management API."""
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
    """Return the key that identifies a binding among those with equal source and destination, in a path: the routing
    key, and a digest of the arguments.
    """
    key = quote(binding.key, safe="")
    if not binding.arguments:
        return key or "~"
    return f"{key}~{hashlib.sha256(write_fields(binding.arguments.fields)).hexdigest()[:16]}"


QUEUE_PAIR = "/api/bindings/{vhost}/e/{exchange}/q/{queue}"
EXCHANGE_PAIR = "/api/bindings/{vhost}/e/{exchange}/e/{destination}"
ROUTES = [
    Endpoint("GET", "/api/bindings", all_bindings),
    Endpoint("GET", "/api/bindings/{vhost}", bindings_of_host),
    *(
        operation
        for pair in (QUEUE_PAIR, EXCHANGE_PAIR)
        for operation in (
            Endpoint("GET", pair, bindings_between),
            Endpoint("POST", pair, bind, shape=SHAPE),
            Endpoint("GET", pair + "/{properties}", one_binding),
            Endpoint("DELETE", pair + "/{properties}", unbind),
        )
    ),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/bindings/source", bindings_from),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/bindings/destination", bindings_to_exchange),
    Endpoint("GET", "/api/queues/{vhost}/{queue}/bindings", bindings_to_queue),
]
