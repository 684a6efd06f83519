"""``/api/overview``: the broker as a whole."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq._version import __version__
from jumpmq.http import request as of
from jumpmq.http.json import json_object
from jumpmq.topology.exchanges import EXCHANGE_TYPES


async def overview(request: Request) -> Response:
    """``GET /api/overview``."""
    broker = of.broker_of(request)
    hosts = list(broker.topology.vhosts.values())
    queues = [queue for host in hosts for queue in host.queues.values()]
    ready = sum([queue.ready_count for queue in queues])
    unacknowledged = sum([queue.unacknowledged_count for queue in queues])
    shown: dict[str, Any] = {
        "product_name": "JumpMQ",
        "product_version": __version__,
        "management_version": __version__,
        "cluster_name": broker.node,
        "node": broker.node,
        "object_totals": {
            "connections": len(broker.connections),
            "channels": sum([len(connection.channels) for connection in broker.connections]),
            "consumers": sum([len(queue.consumers) for queue in queues]),
            "exchanges": sum([len(host.exchanges) for host in hosts]),
            "queues": len(queues),
        },
        "queue_totals": {
            "messages": ready + unacknowledged,
            "messages_ready": ready,
            "messages_unacknowledged": unacknowledged,
        },
        "message_stats": {
            "publish": sum([queue.published for queue in queues]),
            "deliver_get": sum([queue.delivered for queue in queues]),
            "ack": sum([queue.acknowledged for queue in queues]),
        },
        "exchange_types": [{"name": name, "enabled": True} for name in EXCHANGE_TYPES],
        "listeners": [
            {"node": broker.node, "protocol": "amqp", "ip_address": broker.config.host, "port": broker.port},
            {
                "node": broker.node,
                "protocol": "http",
                "ip_address": broker.config.host,
                "port": request.scope["server"][1],
            },
        ],
    }
    return json_object(request, shown)


ROUTES = [Route("/api/overview", overview)]
