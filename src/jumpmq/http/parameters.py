"""Resources of RabbitMQ that there is nothing of here: they are empty lists, so that tools which look go on."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http import request as of
from jumpmq.http.access import Access
from jumpmq.http.json import json_list, json_object
from jumpmq.http.operation import Operation


async def none(request: Request) -> Response:
    """``GET /api/...``: an empty list: JumpMQ has nothing of this kind."""
    return await json_list(request, list[dict[str, str]](), dict)


async def cluster_name(request: Request) -> Response:
    """``GET /api/cluster-name``: the name of the cluster, which is its one node's."""
    return json_object(request, {"name": of.broker_of(request).node})


ROUTES = [
    Operation("GET", "/api/parameters", none, access=Access.POLICYMAKER),
    Operation("GET", "/api/parameters/{component}", none, access=Access.POLICYMAKER),
    Operation("GET", "/api/parameters/{component}/{vhost}", none, access=Access.POLICYMAKER),
    Operation("GET", "/api/global-parameters", none, access=Access.POLICYMAKER),
    Operation("GET", "/api/vhost-limits", none),
    Operation("GET", "/api/user-limits", none, access=Access.ADMINISTRATOR),
    Operation("GET", "/api/topic-permissions", none, access=Access.ADMINISTRATOR),
    Operation("GET", "/api/extensions", none),
    Operation("GET", "/api/cluster-name", cluster_name),
]
