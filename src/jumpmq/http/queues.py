"""``/api/queues``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq.http import request as of
from jumpmq.http.json import json_list, json_object
from jumpmq.queues.classic import ClassicQueue


async def all_queues(request: Request) -> Response:
    """``GET /api/queues``: of all virtual hosts."""
    hosts = of.broker_of(request).topology.vhosts.values()
    return await json_list(request, [queue for host in hosts for queue in host.queues.values()], shown)


async def queues_of_host(request: Request) -> Response:
    """``GET /api/queues/{vhost}``."""
    return await json_list(request, of.virtual_host(request).queues.values(), shown)


async def one_queue(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}``."""
    return json_object(request, shown(of.queue(request)))


def shown(queue: ClassicQueue) -> dict[str, Any]:
    """A queue as RabbitMQ's management API shows one, and the number of its youngest message (``last_seq``)."""
    return {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": queue.type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "arguments": queue.arguments,
        "node": queue.node,
        "state": "running",
        "policy": None,
        "consumers": len(queue.consumers),
        "messages": queue.message_count,
        "messages_ready": queue.ready_count,
        "messages_unacknowledged": queue.unacknowledged_count,
        "memory": queue.memory,
        "message_stats": {
            "publish": queue.published,
            "deliver_get": queue.delivered,
            "ack": queue.acknowledged,
        },
        "last_seq": queue.next_seq - 1,
    }


ROUTES = [
    Route("/api/queues", all_queues),
    Route("/api/queues/{vhost}", queues_of_host),
    Route("/api/queues/{vhost}/{queue}", one_queue),
]
