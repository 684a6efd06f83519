"""Resources of RabbitMQ that there is nothing of here: they are empty lists, so that tools which look go on."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint


async def none(request: Request) -> Response:
    """``GET /api/...``: an empty list: JumpMQ has nothing of this kind."""
    return await answer_list(request, list[dict[str, str]](), dict)


async def cluster_name(request: Request) -> Response:
    """``GET /api/cluster-name``: the name of the cluster, which is its one node's."""
    return answer_object(request, {"name": requested.broker(request).node})


ROUTES = [
    Endpoint("GET", "/api/parameters", none, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/parameters/{component}", none, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/parameters/{component}/{vhost}", none, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/global-parameters", none, access=Access.POLICYMAKER),
    Endpoint("GET", "/api/extensions", none),
    Endpoint("GET", "/api/cluster-name", cluster_name),
]
