"""``/api/parameters``, ``/api/global-parameters`` and the cluster's name, a global parameter.

RabbitMQ stores policies and limits as parameters. Therefore both are also visible here, and may be set. No other
component has parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.import_definitions import import_definitions
from jumpmq.http.resources.policies import shown as shown_policy
from jumpmq.http.schema.shapes import ANY, NAME, Shape
from jumpmq.topology import (
    ClearGlobalParameter,
    ClearOperatorPolicy,
    ClearVirtualHostLimit,
    SetGlobalParameter,
    VirtualHost,
)
from jumpmq.topology.policies import Policy
from jumpmq.topology.state import CLUSTER_NAME

if TYPE_CHECKING:
    from jumpmq.broker import Broker

SHAPE = Shape({"value": ANY}, required=("value",), ignored=("component", "vhost", "name"))
NAMED = Shape({"name": NAME}, required=("name",))
ORDER = ("component", "name", "vhost")
FOR_ADMINISTRATORS = ("vhost-limits", "operator_policy")
"""Components with settable parameters. Only administrators may set them, as at the endpoints of limits and operator
policies.
"""


async def all_parameters(request: Request) -> Response:
    """``GET /api/parameters``: limits and operator policies of all virtual hosts."""
    found = [one for host in requested.visible_hosts(request) for one in of_host(host)]
    return await answer_list(request, found, dict, ORDER)


async def parameters_of_component(request: Request) -> Response:
    """``GET /api/parameters/{component}``: parameters of all virtual hosts; the component is ``vhost-limits``,
    ``operator_policy`` or ``policy``."""
    found = [one for host in requested.visible_hosts(request) for one in _of_component(request, host)]
    return await answer_list(request, found, dict, ORDER)


async def parameters_of_host(request: Request) -> Response:
    """``GET /api/parameters/{component}/{vhost}``: parameters of a virtual host."""
    return await answer_list(request, list(_of_component(request, requested.virtual_host(request))), dict, ORDER)


async def one_parameter(request: Request) -> Response:
    """``GET /api/parameters/{component}/{vhost}/{parameter}``: a parameter."""
    name = requested.name(request, "parameter")
    for one in _of_component(request, requested.virtual_host(request)):
        if one["name"] == name:
            return answer_object(request, one)
    raise NotFound(f"no parameter '{name}' of component '{requested.name(request, 'component')}'")


async def put_parameter(request: Request) -> Response:
    """``PUT /api/parameters/{component}/{vhost}/{parameter}``: set limits of a virtual host, or an operator policy."""
    host, value = requested.virtual_host(request), (await requested.shaped_body(request, SHAPE))["value"]
    component, name = requested.name(request, "component"), requested.name(request, "parameter")
    _require_administrator(request, component in FOR_ADMINISTRATORS)
    if component not in FOR_ADMINISTRATORS:
        raise BadRequest(f"Validation failed\n\ncomponent {component} not found\n")
    existed = any(one["component"] == component and one["name"] == name for one in of_host(host))
    entry = {"vhost": host.name, "component": component, "name": name, "value": value}
    topology = requested.broker(request).topology
    principal = changing.change_principal(request)
    await changing.in_turns(request, import_definitions(topology, principal, {"parameters": [entry]}, None))
    return changing.put_answer(existed)


async def delete_parameter(request: Request) -> Response:
    """``DELETE /api/parameters/{component}/{vhost}/{parameter}``: remove limits or an operator policy."""
    host, name = requested.virtual_host(request), requested.name(request, "parameter")
    _require_administrator(request, requested.name(request, "component") in FOR_ADMINISTRATORS)
    match [one for one in _of_component(request, host) if one["name"] == name]:
        case [{"component": "vhost-limits"}]:
            for limit in list(host.limits):
                await changing.apply(request, ClearVirtualHostLimit(host.name, limit))
        case [{"component": "operator_policy"}]:
            await changing.apply(request, ClearOperatorPolicy(host.name, name))
        case _:
            raise NotFound(f"no parameter '{name}' of component '{requested.name(request, 'component')}'")
    return changing.deleted()


# --- of the whole broker ---


async def all_global_parameters(request: Request) -> Response:
    """``GET /api/global-parameters``: global parameters, including the cluster's name."""
    return await answer_list(request, globally(requested.broker(request)), dict, ("name",))


async def one_global_parameter(request: Request) -> Response:
    """``GET /api/global-parameters/{parameter}``: a global parameter."""
    return answer_object(request, _global_parameter(request))


async def put_global_parameter(request: Request) -> Response:
    """``PUT /api/global-parameters/{parameter}``: set a global parameter to any JSON value."""
    value, name = (await requested.shaped_body(request, SHAPE))["value"], requested.name(request, "parameter")
    _require_administrator(request, name == CLUSTER_NAME)
    existed = name in requested.broker(request).topology.global_parameters
    await changing.apply(request, SetGlobalParameter(name, value))
    return changing.put_answer(existed)


async def delete_global_parameter(request: Request) -> Response:
    """``DELETE /api/global-parameters/{parameter}``: delete a global parameter."""
    name = _global_parameter(request)["name"]
    _require_administrator(request, name == CLUSTER_NAME)
    await changing.apply(request, ClearGlobalParameter(name))
    return changing.deleted()


def _require_administrator(request: Request, wanted: bool) -> None:
    """Require the tag administrator for a parameter, if the parameter's own endpoint requires the tag.

    Raises:
        Unauthorized: the user has no tag administrator.
    """
    if wanted:
        Access.ADMINISTRATOR.require(requested.user(request))


def globally(broker: Broker) -> list[dict[str, Any]]:
    """Return the global parameters of a broker."""
    return [{"name": name, "value": value} for name, value in broker.topology.global_parameters.items()]


def _global_parameter(request: Request) -> dict[str, Any]:
    name = requested.name(request, "parameter")
    for one in globally(requested.broker(request)):
        if one["name"] == name:
            return one
    raise NotFound(f"no global parameter '{name}'")


async def none(request: Request) -> Response:
    """``GET /api/...``: an empty list, for kinds of objects that JumpMQ does not have."""
    return await answer_list(request, list[dict[str, str]](), dict)


async def cluster_name(request: Request) -> Response:
    """``GET /api/cluster-name``: the name of the cluster, by default the name of its only node."""
    return answer_object(request, {"name": requested.broker(request).cluster_name})


async def put_cluster_name(request: Request) -> Response:
    """``PUT /api/cluster-name``: set the name of the cluster. Clients that connect later receive the name."""
    body = await requested.shaped_body(request, NAMED)
    await changing.apply(request, SetGlobalParameter(CLUSTER_NAME, body["name"]))
    return changing.deleted()


def of_host(host: VirtualHost) -> Iterator[dict[str, Any]]:
    """Yield limits and operator policies, which RabbitMQ lists and exports as parameters."""
    if host.limits:
        yield _shown(host, "vhost-limits", "limits", dict(host.limits))
    for policy in host.policies.all(operator=True):
        yield _policy(host, "operator_policy", policy)


def _of_component(request: Request, host: VirtualHost) -> Iterator[dict[str, Any]]:
    component = requested.name(request, "component")
    if component == "policy":  # policies are listed only if requested as a component
        yield from (_policy(host, "policy", policy) for policy in host.policies.all(operator=False))
    else:
        yield from (one for one in of_host(host) if one["component"] == component)


def _policy(host: VirtualHost, component: str, policy: Policy) -> dict[str, Any]:
    value = shown_policy(policy)
    del value["vhost"]
    return _shown(host, component, value.pop("name"), value)


def _shown(host: VirtualHost, component: str, name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"vhost": host.name, "component": component, "name": name, "value": value}


ONE, GLOBAL = "/api/parameters/{component}/{vhost}/{parameter}", "/api/global-parameters/{parameter}"
ROUTES = [
    Endpoint("GET", "/api/parameters", all_parameters, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/parameters/{component}", parameters_of_component, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/parameters/{component}/{vhost}", parameters_of_host, access=Access.POLICYMAKER),
    Endpoint("GET", ONE, one_parameter, access=Access.POLICYMAKER),
    Endpoint("PUT", ONE, put_parameter, access=Access.POLICYMAKER, shape=SHAPE),
    Endpoint("DELETE", ONE, delete_parameter, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/global-parameters", all_global_parameters, access=Access.POLICYMAKER),
    Endpoint("GET", GLOBAL, one_global_parameter, access=Access.POLICYMAKER),
    Endpoint("PUT", GLOBAL, put_global_parameter, access=Access.POLICYMAKER, shape=SHAPE),
    Endpoint("DELETE", GLOBAL, delete_global_parameter, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/extensions", none),
    Endpoint("GET", "/api/cluster-name", cluster_name),
    Endpoint("PUT", "/api/cluster-name", put_cluster_name, access=Access.ADMINISTRATOR, shape=NAMED),
]
