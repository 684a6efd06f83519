"""``/api/consumers``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.fields import to_python
from jumpmq.broker.channel.consumers import ChannelConsumer
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import owned
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.queues import Consumer, Queue
from jumpmq.topology import VirtualHost

ORDER = ("queue.vhost", "queue.name", "consumer_tag")


async def all_consumers(request: Request) -> Response:
    """``GET /api/consumers``: of all virtual hosts; without a monitoring tag, the user's own."""
    return await _answer(request, requested.visible_hosts(request))


async def consumers_of_host(request: Request) -> Response:
    """``GET /api/consumers/{vhost}``: of one virtual host."""
    return await _answer(request, [requested.virtual_host(request)])


async def _answer(request: Request, hosts: list[VirtualHost]) -> Response:
    queues = [queue for host in hosts for queue in host.queues.values()]
    found = [(queue, one) for queue in queues for one in queue.consumers]
    return await answer_list(request, owned(requested.user(request), found, _user), shown, ORDER)


def _user(item: tuple[Queue, Consumer]) -> str:
    """Whose consumer it is."""
    consumer = item[1]
    return consumer.channel.connection.user if isinstance(consumer, ChannelConsumer) else ""


def shown(item: tuple[Queue, Consumer]) -> dict[str, Any]:
    """A queue's consumer as RabbitMQ's management API shows one."""
    queue, consumer = item
    single = queue.limits.single_active_consumer
    active = not single or consumer is queue.active_consumer
    found: dict[str, Any] = {
        "consumer_tag": consumer.tag,
        "queue": {"name": queue.name, "vhost": queue.vhost},
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "active": active,
        "activity_status": _activity(active) if single else "up",
        "arguments": {},
    }
    if isinstance(consumer, ChannelConsumer):
        channel = consumer.channel
        found["arguments"] = to_python(consumer.arguments)
        found["channel_details"] = {
            "name": channel.name,
            "number": channel.number,
            "user": channel.connection.user,
            "connection_name": channel.connection.name,
            "node": queue.node,
            "peer_host": channel.connection.peer_host,
            "peer_port": channel.connection.peer_port,
        }
    return found


def _activity(active: bool) -> str:
    """How a queue with a single active consumer calls the one that it serves, and those that wait."""
    return "single_active" if active else "waiting"


ROUTES = [
    Endpoint("GET", "/api/consumers", all_consumers),
    Endpoint("GET", "/api/consumers/{vhost}", consumers_of_host),
]
