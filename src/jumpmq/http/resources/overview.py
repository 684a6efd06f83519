"""``/api/overview``: the broker as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq._version import __version__
from jumpmq.amqp.errors import NotFound
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import monitors
from jumpmq.http.plumbing.answers import answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.rates import Rates
from jumpmq.http.resources import connections
from jumpmq.http.resources.health import all_listeners
from jumpmq.http.samples import add_samples
from jumpmq.queues import DEFAULT_QUEUE_TYPE
from jumpmq.topology.exchanges import EXCHANGE_TYPES

if TYPE_CHECKING:
    from jumpmq.http.history import History

COMPATIBLE_WITH = "3.10.8"
"""Version of RabbitMQ with a compatible management API; clients check the version."""


async def overview(request: Request) -> Response:
    """``GET /api/overview?vhost=NAME``: totals of all objects visible to the user, or of one virtual host; message
    rates over the last seconds.
    """
    broker, wanted = requested.broker(request), request.query_params.get("vhost")
    hosts = [host for host in requested.visible_hosts(request) if wanted in (None, host.name)]
    if wanted is not None and not hosts:
        raise NotFound(f"no vhost '{wanted}' visible to the user")
    names = [host.name for host in hosts]
    rates: Rates = request.app.state.rates
    stats, lengths = await rates.of_hosts(names)
    opened = [one for one in await connections.visible(request) if wanted in (None, one.peer.vhost)]
    shown: dict[str, Any] = {
        "product_name": "JumpMQ",
        "product_version": __version__,
        "rabbitmq_version": COMPATIBLE_WITH,
        "management_version": COMPATIBLE_WITH,
        "cluster_name": broker.cluster_name,
        "identity": broker.identity,
        "rates_mode": "basic",
        "default_queue_type": DEFAULT_QUEUE_TYPE,
        "is_op_policy_updating_enabled": True,
        "cluster_tags": {},
        "node_tags": {},
        "object_totals": {
            "connections": len(opened),
            "channels": sum([connection.channels for connection in opened]),
            "exchanges": sum([len(host.exchanges) for host in hosts]),
            "queues": sum([len(host.declared) for host in hosts]),
        },
        "queue_totals": lengths,
        "message_stats": stats,
        "exchange_types": [{"name": name, "enabled": True} for name in EXCHANGE_TYPES],
    }
    if monitors(requested.user(request)):
        shown |= {"node": broker.node, "listeners": all_listeners(request)}
        shown["object_totals"]["consumers"] = await broker.figures.consumer_count(names)
        shown["churn_rates"] = rates.of_churn()
        history: History = request.app.state.history
        add_samples(request, shown, lambda: history.hosts if wanted is None else history.of("vhost", wanted))
    return answer_object(request, shown)


ROUTES = [Endpoint("GET", "/api/overview", overview)]
