"""``/api/policies`` and ``/api/operator-policies``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint, Respond
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import INTEGER, OBJECT, TEXT, Shape, one_of
from jumpmq.topology import (
    ClearOperatorPolicy,
    ClearPolicy,
    InvalidPolicy,
    Policy,
    SetOperatorPolicy,
    SetPolicy,
    VirtualHost,
)
from jumpmq.topology.exchanges import Destination
from jumpmq.topology.policies import APPLY_TO

SHAPE = Shape(
    {"pattern": TEXT, "definition": OBJECT, "priority": INTEGER, "apply-to": one_of(*APPLY_TO)},
    ("pattern", "definition"),
)


def listings(operator: bool) -> tuple[Respond, Respond, Respond]:
    """Return the endpoints that list policies, or operator policies."""

    async def all_policies(request: Request) -> Response:
        """``GET /api/policies``: policies of all virtual hosts."""
        hosts = requested.visible_hosts(request)
        return await answer_list(request, [one for host in hosts for one in host.policies.all(operator)], shown)

    async def policies_of_host(request: Request) -> Response:
        """``GET /api/policies/{vhost}``: policies of a virtual host."""
        return await answer_list(request, requested.virtual_host(request).policies.all(operator), shown)

    async def one_policy(request: Request) -> Response:
        """``GET /api/policies/{vhost}/{name}``: a policy."""
        host, name = requested.virtual_host(request), requested.name(request, "name")
        return answer_object(request, shown(host.policies.get(name, operator)))

    return all_policies, policies_of_host, one_policy


def changes(operator: bool) -> tuple[Respond, Respond]:
    """Return the endpoints that set and clear a policy, or an operator policy."""

    async def set_policy(request: Request) -> Response:
        """``PUT /api/policies/{vhost}/{name}``: set a policy, with effect at once."""
        host, name = requested.virtual_host(request), requested.name(request, "name")
        change = _policy(host.name, name, await requested.body(request), operator)
        existed = host.policies.has(name, operator)
        try:
            await changing.apply(request, change)
        except InvalidPolicy as error:
            raise BadRequest(f"Validation failed\n\n{error.text}\n") from None
        return changing.put_answer(existed)

    async def clear_policy(request: Request) -> Response:
        """``DELETE /api/policies/{vhost}/{name}``: clear a policy."""
        host, name = requested.virtual_host(request), requested.name(request, "name")
        await changing.apply(request, (ClearOperatorPolicy if operator else ClearPolicy)(host.name, name))
        return changing.deleted()

    return set_policy, clear_policy


def _policy(vhost: str, name: str, body: dict[str, Any], operator: bool) -> SetPolicy | SetOperatorPolicy:
    """Return the change requested by a body; the topology reports errors, in RabbitMQ's words."""
    missing = [f"{{key_missing,{key}}}" for key in SHAPE.required if key not in body]
    if missing:
        raise BadRequest(f"[{','.join(missing)}]")
    change = SetOperatorPolicy if operator else SetPolicy
    priority, apply_to = body.get("priority", 0), body.get("apply-to", "all")
    return change(vhost, name, body["pattern"], body["definition"], priority, apply_to)


def shown(policy: Policy) -> dict[str, Any]:
    """Return a policy in the format of RabbitMQ's management API."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def in_force(host: VirtualHost, found: Destination) -> dict[str, Any]:
    """Return the fields of a queue or exchange about policies in force."""
    force = host.in_force.of(found)
    return {
        "policy": force.policy.name if force.policy is not None else None,
        "operator_policy": force.operator_policy.name if force.operator_policy is not None else None,
        "effective_policy_definition": dict(force.definition),
    }


def _routes(path: str, operator: bool) -> list[Endpoint]:
    all_policies, policies_of_host, one_policy = listings(operator)
    set_policy, clear_policy = changes(operator)
    one, access = f"{path}/{{vhost}}/{{name}}", Access.ADMINISTRATOR if operator else Access.POLICYMAKER
    return [
        Endpoint("GET", path, all_policies),
        Endpoint("GET", f"{path}/{{vhost}}", policies_of_host),
        Endpoint("GET", one, one_policy, access=access),
        Endpoint("PUT", one, set_policy, access=access, shape=SHAPE),
        Endpoint("DELETE", one, clear_policy, access=access),
    ]


ROUTES = _routes("/api/policies", operator=False) + _routes("/api/operator-policies", operator=True)
