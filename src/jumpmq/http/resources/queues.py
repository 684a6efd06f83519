"""``/api/queues``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import TIMESTAMP, Properties
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.rates import Rates
from jumpmq.http.resources import connections, consumers
from jumpmq.http.resources.policies import in_force
from jumpmq.http.samples import add_samples
from jumpmq.http.schema.shapes import ARGUMENTS, BOOLEAN, TEXT, Shape, one_of
from jumpmq.queues import Queue
from jumpmq.topology import DeclareQueue, rules
from jumpmq.topology.names import stripped

if TYPE_CHECKING:
    from jumpmq.http.history import History

MAX_CONSUMERS = 500
"""Consumers of a queue that are shown with it."""

SHAPE = Shape(
    {"durable": BOOLEAN, "auto_delete": BOOLEAN, "arguments": ARGUMENTS, "node": TEXT},
    ignored=("name", "vhost", "queue_type"),
)
ACTION = Shape({"action": one_of("sync", "cancel_sync")}, required=("action",))


AT_HAND: dict[str, Callable[[Queue], Any]] = {
    "name": lambda queue: queue.name,
    "vhost": lambda queue: queue.vhost,
    "type": lambda queue: queue.type,
    "messages": lambda queue: queue.message_count,
    "messages_ready": lambda queue: queue.ready_count,
    "messages_unacknowledged": lambda queue: queue.unacknowledged_count,
    "consumers": lambda queue: len(queue.consumers),
}
"""What can be sorted by without showing each queue."""


def _rates(request: Request) -> dict[str, Callable[[Queue], Any]]:
    """The rates that can be sorted by without showing each queue."""
    rates: Rates = request.app.state.rates

    def of(name: str) -> Callable[[Queue], Any]:
        return lambda queue: rates.rate(queue, name)

    return {f"message_stats.{name}_details.rate": of(name) for name in ("publish", "deliver_get", "ack")}


async def all_queues(request: Request) -> Response:
    """``GET /api/queues?type=stream``: of all virtual hosts."""
    return await _answer(
        request, [queue for host in requested.visible_hosts(request) for queue in host.queues.values()]
    )


async def queues_of_host(request: Request) -> Response:
    """``GET /api/queues/{vhost}``: of one virtual host."""
    return await _answer(request, list(requested.virtual_host(request).queues.values()))


async def one_queue(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}``: one queue, with its consumers."""
    queue = requested.queue(request)
    details = {"consumer_details": [consumers.shown((queue, one)) for one in queue.consumers[:MAX_CONSUMERS]]}
    return answer_object(request, _sampled(request, queue) | details | _owner(request, queue))


async def declare_queue(request: Request) -> Response:
    """``PUT /api/queues/{vhost}/{queue}``: declare a queue; one that exists must be equivalent."""
    host, name = requested.virtual_host(request), stripped(requested.name(request, "queue"))
    body = await requested.shaped_body(request, SHAPE)
    node = requested.broker(request).node
    if body.get("node", node) != node:
        raise BadRequest(f"Node {body['node']} could not be contacted")
    existed = name in host.queues
    body.pop("node", None)
    definition = requested.broker(request).topology.define_queue(
        host.name, name, **body, user=str(requested.user(request).name)
    )
    await changing.apply(request, DeclareQueue(definition))
    return changing.put_answer(existed)


async def delete_queue(request: Request) -> Response:
    """``DELETE /api/queues/{vhost}/{queue}?if-empty=true&if-unused=true``: delete a queue with what is in it."""
    queue = requested.queue(request)
    changing.check_permission(request, queue.vhost, "configure", queue.name)
    if_unused, if_empty = requested.flag(request, "if-unused"), requested.flag(request, "if-empty")
    host = requested.virtual_host(request)
    deletion = rules.queue_deletion(
        host, queue.name, if_unused=if_unused, if_empty=if_empty, connection=requested.NO_CONNECTION
    )
    if deletion is not None:
        await changing.apply(request, deletion)
    return changing.deleted()


async def act(request: Request) -> Response:
    """``POST /api/queues/{vhost}/{queue}/actions``: ``sync`` or ``cancel_sync``: there are no mirrors to sync."""
    requested.queue(request)
    await requested.shaped_body(request, ACTION)
    return changing.deleted()


async def rebalance(request: Request) -> Response:
    """``POST /api/rebalance/queues``: have the nodes share the queues, which one node does."""
    return changing.deleted()


async def _answer(request: Request, queues: list[Queue]) -> Response:
    wanted = request.query_params.get("type")
    chosen = queues if wanted is None else [queue for queue in queues if queue.type == wanted]
    at_hand = AT_HAND | _rates(request)
    return await answer_list(request, chosen, lambda queue: _sampled_if_there(request, queue), at_hand=at_hand)


def _sampled_if_there(request: Request, queue: Queue) -> dict[str, Any] | None:
    host = requested.broker(request).topology.vhosts.get(queue.vhost)
    return _sampled(request, queue) if host is not None and host.queues.get(queue.name) is queue else None


def _sampled(request: Request, queue: Queue) -> dict[str, Any]:
    """A queue, with the samples that the query asks for."""
    history: History = request.app.state.history
    return add_samples(request, shown(request, queue), lambda: history.of(queue))


def shown(request: Request, queue: Queue) -> dict[str, Any]:
    """A queue as RabbitMQ's management API shows one, and the number of its youngest message (``last_seq``)."""
    rates: Rates = request.app.state.rates
    return (
        {
            **requested.broker(request).topology.vhosts[queue.vhost].definition(queue).shown(),
            "type": queue.type,
            "exclusive": queue.exclusive,
            "node": queue.node,
            "state": "running",
            "consumers": len(queue.consumers),
            **rates.lengths(queue),
            "memory": queue.memory,
            "message_stats": rates.of_queue(queue),
            "idle_since": rates.idle_since(queue),
            "last_seq": queue.next_seq - 1,
        }
        | _figures(queue)
        | _attendance(rates, queue)
        | queue.status()
        | in_force(request, queue)
    )


def _figures(queue: Queue) -> dict[str, Any]:
    """Where the queue's messages are, as far as its kind tells, and how many octets of bodies they have."""
    found = queue.figures()
    if found is None:
        return {}
    return {
        "message_bytes": found.ready_octets + found.unacknowledged_octets,
        "message_bytes_ready": found.ready_octets,
        "message_bytes_unacknowledged": found.unacknowledged_octets,
        "message_bytes_ram": found.octets_in_memory,
        "message_bytes_persistent": found.persistent_octets,
        "message_bytes_paged_out": found.paged_out_octets,
        "messages_ram": found.ready_in_memory + found.unacknowledged_in_memory,
        "messages_ready_ram": found.ready_in_memory,
        "messages_unacknowledged_ram": found.unacknowledged_in_memory,
        "messages_persistent": found.persistent,
        "messages_paged_out": found.paged_out,
        "head_message_timestamp": _timestamp(queue.front()),
    }


def _timestamp(message: Message | None) -> int | None:
    """The property of a message that is in memory."""
    if message is None or not int.from_bytes(message.properties[:2]) & TIMESTAMP:
        return None
    return Properties.parse(message.properties).timestamp


def _attendance(rates: Rates, queue: Queue) -> dict[str, Any]:
    """Who consumes, and whether that is enough."""
    if queue.append_only:
        return {}
    capacity, active = rates.consumer_capacity(queue), queue.active_consumer
    return {
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "exclusive_consumer_tag": next((one.tag for one in queue.consumers if one.exclusive), None),
        "single_active_consumer_tag": active.tag if active is not None else None,
    }


def _owner(request: Request, queue: Queue) -> dict[str, Any]:
    """The connection that an exclusive queue belongs to."""
    for connection in requested.broker(request).connections if queue.owner is not None else ():
        if connection.name == queue.owner:
            return {"owner_pid_details": connections.details(connection)}
    return {}


ROUTES = [
    Endpoint("POST", "/api/queues/{vhost}/{queue}/actions", act, access=Access.ADMINISTRATOR, shape=ACTION),
    Endpoint("POST", "/api/rebalance/queues", rebalance, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/queues", all_queues),
    Endpoint("GET", "/api/queues/{vhost}", queues_of_host),
    Endpoint("GET", "/api/queues/{vhost}/{queue}", one_queue),
    Endpoint("PUT", "/api/queues/{vhost}/{queue}", declare_queue, shape=SHAPE),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}", delete_queue),
]
