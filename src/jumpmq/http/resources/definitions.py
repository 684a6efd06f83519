"""``/api/definitions``: export and import of all definitions, in RabbitMQ's format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq._version import __version__
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer, answer_long
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import bindings, parameters, topic_permissions
from jumpmq.http.resources.import_definitions import FILE, import_definitions, lists_of
from jumpmq.http.resources.import_shards import Renaming
from jumpmq.http.resources.permissions import shown_permissions
from jumpmq.http.resources.policies import shown as shown_policy
from jumpmq.http.resources.users import shown_user
from jumpmq.topology import Binding, VirtualHost
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.users import User
from jumpmq.topology.vhost import default_description

if TYPE_CHECKING:
    from jumpmq.broker import Broker

COMPATIBLE_WITH = "3.10.8"
"""Version of RabbitMQ with the exported format."""


MAX_SHOWN = 200
"""Maximum number of skipped entries named after an import."""


def _permissions(user: User) -> list[dict[str, Any]]:
    return [shown_permissions(user, vhost) for vhost in user.permissions]


def _named(host: VirtualHost) -> dict[str, Any]:
    """Return a virtual host without empty fields."""
    described = host.description if host.description != default_description(host.name) else ""
    words = {
        "default_queue_type": host.default_queue_type,
        "description": described,
        "tags": list(host.tags),
        "home": host.home,
    }
    return {"name": host.name} | {name: value for name, value in words.items() if value}


async def export_all(request: Request) -> Response:
    """``GET /api/definitions``, formerly ``/api/all-configuration``: users, virtual hosts, and all declared objects."""
    return answer_long(request, exported(requested.broker(request)))


def exported(broker: Broker) -> dict[str, Any]:
    """Return the whole broker as a definitions file; potentially long lists are iterators."""
    hosts, users = list(broker.topology.vhosts.values()), list(broker.topology.users.values())
    return {
        "rabbit_version": COMPATIBLE_WITH,
        "rabbitmq_version": COMPATIBLE_WITH,
        "product_name": "JumpMQ",
        "product_version": __version__,
        "users": map(shown_user, users),
        "vhosts": [_named(host) for host in hosts],
        "permissions": chain.from_iterable(_permissions(user) for user in users),
        "topic_permissions": chain.from_iterable(topic_permissions.shown(user) for user in users),
        "global_parameters": parameters.globally(broker),
        **_declared(hosts),
    }


async def export_host(request: Request) -> Response:
    """``GET /api/definitions/{vhost}``: all declared objects of a virtual host."""
    declared = _declared([requested.virtual_host(request)])
    for kind in ("queues", "exchanges", "bindings"):  # these sections do not name the virtual host
        declared[kind] = map(_without_host, declared[kind])
    return answer_long(request, {"rabbit_version": COMPATIBLE_WITH, "product_name": "JumpMQ", **declared})


def _without_host(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "vhost"}


async def import_all(request: Request) -> Response:
    """``POST /api/definitions``: import a definitions file. If any entry is wrong, nothing is imported.

    Unknown keys and parameters of plugins are skipped. The answer is then 200, with the first of them, as
    ``{"skipped": [...], "skipped_count": N}``. Renamed shards of another broker's nodes are in ``renamed``, a list of
    ``{"vhost", "from", "to"}``; consequences of the renaming are in ``notes``.
    """
    requested.require_json(request)
    return await _import(request, await requested.body(request, requested.MAX_LONG_BODY), None)


async def import_host(request: Request) -> Response:
    """``POST /api/definitions/{vhost}``: import a definitions file into one virtual host."""
    requested.require_json(request)
    host = requested.virtual_host(request)
    return await _import(request, await requested.body(request, requested.MAX_LONG_BODY), host.name)


async def _import(request: Request, found: dict[str, Any], vhost: str | None) -> Response:
    broker, skipped, renaming = requested.broker(request), list[str](), Renaming()
    principal = changing.change_principal(request)
    try:
        await changing.in_turns(
            request, import_definitions(broker.topology, principal, found, vhost, skipped, renaming=renaming)
        )
    finally:
        await broker.slices.forget(*lists_of(found))
    shown: dict[str, Any] = {}
    if skipped:
        shown |= {"skipped": skipped[:MAX_SHOWN], "skipped_count": len(skipped)}
    if renaming.queues:
        shown |= {"renamed": renaming.shown(), "notes": renaming.notes[:MAX_SHOWN]}
    return answer(shown) if shown else changing.deleted()


def _declared(hosts: list[VirtualHost]) -> dict[str, Any]:
    """Return the current definitions; queues, exchanges and bindings, potentially many, are rendered on demand."""
    return {
        "parameters": [parameter for host in hosts for parameter in parameters.of_host(host)],
        "policies": [shown_policy(policy) for host in hosts for policy in host.policies.all(operator=False)],
        "queues": _shown(chain.from_iterable([_queues(host) for host in hosts])),
        "exchanges": _shown(chain.from_iterable([_exchanges(host) for host in hosts])),
        "bindings": chain.from_iterable([_bindings(host) for host in hosts]),
    }


def _shown(definitions: Iterable[ExchangeDefinition | QueueDefinition]) -> Iterator[dict[str, Any]]:
    return (definition.shown() for definition in definitions)


def _queues(host: VirtualHost) -> Iterator[QueueDefinition]:
    return (one.definition for one in host.declared.values() if not one.exclusive and not one.is_internal)


def _exchanges(host: VirtualHost) -> list[ExchangeDefinition]:
    found = host.exchanges.values()
    return [one.definition for one in found if one.name and not one.name.startswith("amq.")]


def _bindings(host: VirtualHost) -> Iterator[dict[str, Any]]:
    exclusive = {one.name for one in host.queue_definitions() if one.exclusive}
    found = list(chain.from_iterable([exchange.bindings for exchange in host.exchanges.values() if exchange.name]))
    return (_shown_binding(host, one) for one in found if one.kind != "queue" or one.destination not in exclusive)


def _shown_binding(host: VirtualHost, binding: Binding) -> dict[str, Any]:
    shown = bindings.shown((host.name, binding))
    del shown["properties_key"]
    return shown


ROUTES = [
    Endpoint("GET", "/api/definitions", export_all, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/definitions/{vhost}", export_host, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/all-configuration", export_all, access=Access.ADMINISTRATOR),
    Endpoint("POST", "/api/definitions", import_all, access=Access.ADMINISTRATOR, shape=FILE),
    Endpoint("POST", "/api/all-configuration", import_all, access=Access.ADMINISTRATOR, shape=FILE),
    Endpoint("POST", "/api/definitions/{vhost}", import_host, access=Access.ADMINISTRATOR, shape=FILE),
]
