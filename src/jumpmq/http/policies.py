"""``/api/policies`` and ``/api/operator-policies``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq.http import request as of
from jumpmq.http.errors import BadRequest, unauthorized
from jumpmq.http.json import json_list, json_object
from jumpmq.topology import (
    ClearOperatorPolicy,
    ClearPolicy,
    InvalidPolicy,
    Policy,
    SetOperatorPolicy,
    SetPolicy,
    VirtualHost,
)

Endpoint = Callable[[Request], Awaitable[Response]]

MANDATORY = ("pattern", "definition")


def listings(operator: bool) -> tuple[Endpoint, Endpoint, Endpoint]:
    """The endpoints that show policies, or operator policies."""

    async def all_policies(request: Request) -> Response:
        """``GET /api/policies``: of all virtual hosts."""
        hosts = of.broker_of(request).topology.vhosts.values()
        return await json_list(request, [one for host in hosts for one in host.policies.all(operator)], shown)

    async def policies_of_host(request: Request) -> Response:
        """``GET /api/policies/{vhost}``."""
        return await json_list(request, of.virtual_host(request).policies.all(operator), shown)

    async def one_policy(request: Request) -> Response:
        """``GET /api/policies/{vhost}/{name}``."""
        host, name = of.virtual_host(request), of.name(request, "name")
        return json_object(request, shown(host.policies.get(name, operator)))

    return all_policies, policies_of_host, one_policy


def changes(operator: bool) -> tuple[Endpoint, Endpoint]:
    """The endpoints that set and clear a policy, or an operator policy."""

    async def set_policy(request: Request) -> Response:
        """``PUT /api/policies/{vhost}/{name}``: 201 for a new one, 204 for one that was there."""
        if (refusal := _refusal(request, operator)) is not None:
            return refusal
        host, name = of.virtual_host(request), of.name(request, "name")
        body = await of.json_object(request)
        missing = [f"{{key_missing,{key}}}" for key in MANDATORY if key not in body]
        if missing:
            raise BadRequest(f"[{','.join(missing)}]")
        existed = host.policies.has(name, operator)
        await _set(request, host, name, body, operator)
        return Response(status_code=204 if existed else 201)

    async def clear_policy(request: Request) -> Response:
        """``DELETE /api/policies/{vhost}/{name}``."""
        if (refusal := _refusal(request, operator)) is not None:
            return refusal
        host, name = of.virtual_host(request), of.name(request, "name")
        broker = of.broker_of(request)
        broker.topology.apply(ClearOperatorPolicy(host.name, name) if operator else ClearPolicy(host.name, name))
        broker.finish(None)
        await broker.committed()
        return Response(status_code=204)

    return set_policy, clear_policy


async def _set(request: Request, host: VirtualHost, name: str, body: dict[str, Any], operator: bool) -> None:
    change = SetOperatorPolicy if operator else SetPolicy
    broker = of.broker_of(request)
    try:
        broker.topology.apply(
            change(
                host.name,
                name,
                body["pattern"],
                body["definition"],
                body.get("priority", 0),
                body.get("apply-to", "all"),
            )
        )
    except InvalidPolicy as error:
        raise BadRequest(f"Validation failed\n\n{error.text}\n") from None
    broker.finish(None)
    await broker.committed()


def shown(policy: Policy) -> dict[str, Any]:
    """A policy as RabbitMQ's management API shows one."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def _refusal(request: Request, operator: bool) -> Response | None:
    """The answer to a user who may not change policies; None for one who may."""
    tags = of.broker_of(request).topology.user(request.scope["user"]).tags
    if "administrator" in tags or ("policymaker" in tags and not operator):
        return None
    return unauthorized("Not administrator user" if operator else "User not authorised to access object")


def _routes(path: str, operator: bool) -> list[Route]:
    all_policies, policies_of_host, one_policy = listings(operator)
    set_policy, clear_policy = changes(operator)
    one = f"{path}/{{vhost}}/{{name}}"
    return [
        Route(path, all_policies),
        Route(f"{path}/{{vhost}}", policies_of_host),
        Route(one, one_policy),
        Route(one, set_policy, methods=["PUT"]),
        Route(one, clear_policy, methods=["DELETE"]),
    ]


ROUTES = _routes("/api/policies", operator=False) + _routes("/api/operator-policies", operator=True)
