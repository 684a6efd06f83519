"""``/api/parameters`` and the like. RabbitMQ keeps policies and limits as parameters, so that they are seen here, too;
components with parameters of their own there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources.policies import shown as shown_policy
from jumpmq.topology import VirtualHost
from jumpmq.topology.policies import Policy

ORDER = ("component", "name", "vhost")


async def all_parameters(request: Request) -> Response:
    """``GET /api/parameters``: limits and operator policies, of all virtual hosts."""
    found = [one for host in requested.visible_hosts(request) for one in of_host(host)]
    return await answer_list(request, found, dict, ORDER)


async def parameters_of_component(request: Request) -> Response:
    """``GET /api/parameters/{component}``: ``vhost-limits``, ``operator_policy``, ``policy``, of all virtual hosts."""
    found = [one for host in requested.visible_hosts(request) for one in _of_component(request, host)]
    return await answer_list(request, found, dict, ORDER)


async def parameters_of_host(request: Request) -> Response:
    """``GET /api/parameters/{component}/{vhost}``: those of one virtual host."""
    return await answer_list(request, list(_of_component(request, requested.virtual_host(request))), dict, ORDER)


async def one_parameter(request: Request) -> Response:
    """``GET /api/parameters/{component}/{vhost}/{parameter}``: one of them."""
    name = requested.name(request, "parameter")
    for one in _of_component(request, requested.virtual_host(request)):
        if one["name"] == name:
            return answer_object(request, one)
    raise NotFound(f"no parameter '{name}' of component '{requested.name(request, 'component')}'")


async def none(request: Request) -> Response:
    """``GET /api/...``: an empty list: JumpMQ has nothing of this kind."""
    return await answer_list(request, list[dict[str, str]](), dict)


async def cluster_name(request: Request) -> Response:
    """``GET /api/cluster-name``: the name of the cluster, which is its one node's."""
    return answer_object(request, {"name": requested.broker(request).node})


def of_host(host: VirtualHost) -> Iterator[dict[str, Any]]:
    """What RabbitMQ lists, and exports, as parameters: limits and operator policies."""
    if host.limits:
        yield _shown(host, "vhost-limits", "limits", dict(host.limits))
    for policy in host.policies.all(operator=True):
        yield _policy(host, "operator_policy", policy)


def _of_component(request: Request, host: VirtualHost) -> Iterator[dict[str, Any]]:
    component = requested.name(request, "component")
    if component == "policy":  # listed where they are asked for alone
        yield from (_policy(host, "policy", policy) for policy in host.policies.all(operator=False))
    else:
        yield from (one for one in of_host(host) if one["component"] == component)


def _policy(host: VirtualHost, component: str, policy: Policy) -> dict[str, Any]:
    value = shown_policy(policy)
    del value["vhost"]
    return _shown(host, component, value.pop("name"), value)


def _shown(host: VirtualHost, component: str, name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"vhost": host.name, "component": component, "name": name, "value": value}


ROUTES = [
    Endpoint("GET", "/api/parameters", all_parameters, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/parameters/{component}", parameters_of_component, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/parameters/{component}/{vhost}", parameters_of_host, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/parameters/{component}/{vhost}/{parameter}", one_parameter, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/global-parameters", none, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/extensions", none),
    Endpoint("GET", "/api/cluster-name", cluster_name),
]
