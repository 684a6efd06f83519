"""``/api/consumers``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.figures.values import ConsumerFigures
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import owned
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.rates import Rates
from jumpmq.http.resources.connections import provided_name
from jumpmq.topology import VirtualHost

ORDER = ("queue.vhost", "queue.name", "consumer_tag")


async def all_consumers(request: Request) -> Response:
    """``GET /api/consumers``: consumers in all virtual hosts; without a monitoring tag, the user's own."""
    return await _answer(request, requested.visible_hosts(request))


async def consumers_of_host(request: Request) -> Response:
    """``GET /api/consumers/{vhost}``: consumers of a virtual host."""
    return await _answer(request, [requested.virtual_host(request)])


async def _answer(request: Request, hosts: list[VirtualHost]) -> Response:
    found = await requested.broker(request).figures.consumers([host.name for host in hosts])
    visible = owned(requested.user(request), requested.principal(request), found, _user)
    return await answer_list(request, visible, lambda consumer: shown(request, consumer), ORDER)


def _user(consumer: ConsumerFigures) -> tuple[str, bool] | None:
    """Return the consumer's user."""
    return consumer.peer.user_identity if consumer.peer is not None else None


def shown(request: Request, consumer: ConsumerFigures) -> dict[str, Any]:
    """Return a queue's consumer in the format of RabbitMQ's management API; the delivery rate is JumpMQ's own."""
    rates: Rates = request.app.state.rates
    found: dict[str, Any] = {
        "consumer_tag": consumer.tag,
        "queue": {"name": consumer.queue, "vhost": consumer.vhost},
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "messages_unacknowledged": consumer.unacknowledged,
        **rates.of_consumer(consumer),
        "active": consumer.active,
        "activity_status": _activity(consumer.active) if consumer.single else "up",
        "arguments": consumer.arguments,
    }
    peer = consumer.peer
    if peer is not None:
        found["channel_details"] = {
            "name": consumer.channel,
            "number": consumer.number,
            "user": peer.user,
            "connection_name": peer.name,
            **provided_name(peer),
            "node": peer.node,
            "peer_host": peer.host,
            "peer_port": peer.port,
        }
    return found


def _activity(active: bool) -> str:
    """Return the state of a consumer of a queue with a single active consumer."""
    return "single_active" if active else "waiting"


ROUTES = [
    Endpoint("GET", "/api/consumers", all_consumers),
    Endpoint("GET", "/api/consumers/{vhost}", consumers_of_host),
]
