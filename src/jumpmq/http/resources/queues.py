"""``/api/queues``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.broker.figures.values import QueueFigures
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import SHOWN_AT_ONCE, answer_list_in_parts, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.rates import Rates
from jumpmq.http.resources import connections, consumers
from jumpmq.http.resources.policies import in_force
from jumpmq.http.samples import add_samples
from jumpmq.http.schema.shapes import ARGUMENTS, BOOLEAN, INTEGER, TEXT, Shape, one_of
from jumpmq.http.warnings.queues import NEAR_FULL
from jumpmq.http.warnings.watch import Watch
from jumpmq.queues import QUEUE_TYPES
from jumpmq.topology import DeclareQueue, MoveQueue, Topology
from jumpmq.topology.changes.queues import queue_deletion, refuse_move
from jumpmq.topology.definitions import QueueDefinition, home_of
from jumpmq.topology.names import stripped

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.http.history import History

MAX_CONSUMERS = 500
"""Maximum number of consumers shown with a queue."""

SHAPE = Shape(
    {"durable": BOOLEAN, "auto_delete": BOOLEAN, "arguments": ARGUMENTS, "node": TEXT},
    ignored=("name", "vhost", "queue_type"),
)
ACTION = Shape({"action": one_of("sync", "cancel_sync", "move"), "node": TEXT, "home": INTEGER}, required=("action",))


AT_HAND: dict[str, Callable[[QueueDefinition], Any]] = {
    "name": attrgetter("name"),
    "vhost": attrgetter("vhost"),
    "type": attrgetter("type"),
}
"""Sort columns available without rendering the queue."""


def _sampled_at_hand(rates: Rates) -> dict[str, Callable[[QueueDefinition], Any]]:
    """Return the sort columns available from the last reading of the metrics."""

    def rate(name: str) -> Callable[[QueueDefinition], Any]:
        return lambda queue: rates.last_rate(queue.id, name)

    return {
        "messages": lambda queue: sum(rates.last_counts(queue.id)[-2:]),
        "messages_ready": lambda queue: rates.last_counts(queue.id)[-2],
        "messages_unacknowledged": lambda queue: rates.last_counts(queue.id)[-1],
        "consumers": lambda queue: rates.latest.consumers_of.get(queue.id, 0),
        **{f"message_stats.{name}_details.rate": rate(name) for name in ("publish", "deliver_get", "ack")},
    }


FILTERS = ("unattended", "growing", "full")
"""Values of ``where``."""


async def all_queues(request: Request) -> Response:
    """``GET /api/queues?type=classic,quorum&node=NODE&where=full``: queues of all virtual hosts, optionally by kind,
    node and state.

    ``where`` selects queues that need attention: ``unattended`` queues have messages and no consumer, ``growing``
    queues had fewer messages some seconds ago, ``full`` queues have at least 95 % of their ``max-length``. Streams are
    never selected.
    """
    hosts = requested.visible_hosts(request)
    return await _answer(request, [queue for host in hosts for queue in host.queue_definitions()])


async def queues_of_host(request: Request) -> Response:
    """``GET /api/queues/{vhost}``: queues of a virtual host."""
    return await _answer(request, requested.virtual_host(request).queue_definitions())


async def one_queue(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}``: a queue, with its consumers."""
    definition, figures = requested.queue_definition(request), requested.broker(request).figures
    found = await figures.queue(definition)
    shown_queue = None if found is None else _sampled(request, definition, found)
    if shown_queue is None:
        raise NotFound(f"no queue '{definition.name}' in vhost '{definition.vhost}'")
    seen = await figures.consumers_of(definition, MAX_CONSUMERS)
    details = {"consumer_details": [consumers.shown(request, one) for one in seen]}
    return answer_object(request, shown_queue | details | await _owner(request, definition))


async def declare_queue(request: Request) -> Response:
    """``PUT /api/queues/{vhost}/{queue}``: declare a queue; an existing one must be equivalent."""
    host, name = requested.virtual_host(request), stripped(requested.name(request, "queue"))
    body = await requested.shaped_body(request, SHAPE)
    broker, node = requested.broker(request), body.pop("node", None)
    if node not in (None, broker.node) and broker.running_homes.isdisjoint(broker.topology.nodes.get(node, ())):
        raise BadRequest(f"Node {node} could not be contacted")
    if broker.topology.sharding.is_pseudo_queue(host, name):
        raise BadRequest(f"exchange '{name}' is sharded: a queue of its name would be hidden behind its shards")
    existed = name in host.declared
    home = None if node in (None, broker.node) else _emptiest(broker, node)
    definition = broker.topology.define_queue(
        host.name, name, **body, user=requested.principal(request).owner, home=home
    )
    await changing.apply(request, DeclareQueue(definition))
    return changing.put_answer(existed)


def _emptiest(broker: Broker, node: str) -> int:
    """Return the running home of a node with the fewest queues.

    Raises:
        BadRequest: all homes of the node are being removed.
    """
    topology = broker.topology
    homes = [one for one in topology.nodes[node] if one in broker.running_homes and one not in topology.left]
    if not homes:
        raise BadRequest(f"node {node} is being removed: no queue is placed there")
    return min(homes, key=lambda one: (topology.holdings.queues_by_home[one], one))


async def delete_queue(request: Request) -> Response:
    """``DELETE /api/queues/{vhost}/{queue}?if-empty=true&if-unused=true``: delete a queue with its messages."""
    queue = requested.queue_definition(request)
    changing.check_permission(request, queue.vhost, "configure", queue.name)
    if_unused, if_empty = requested.flag(request, "if-unused"), requested.flag(request, "if-empty")
    host = requested.virtual_host(request)
    deletion = queue_deletion(
        host, queue.name, if_unused=if_unused, if_empty=if_empty, connection=requested.NO_CONNECTION
    )
    if deletion is not None:
        await changing.apply(request, deletion)
    return changing.deleted()


async def act(request: Request) -> Response:
    """``POST /api/queues/{vhost}/{queue}/actions``: ``move`` a queue to another node, or home. ``sync`` and
    ``cancel_sync`` do nothing: there are no mirrors.

    A queue is at its new home at once; ``moving_from`` is the node from which messages are still moving. A stream stays
    until the other node has a copy of the stream's files: meanwhile ``moving_to`` is the other node, and
    ``move_failed`` is the reason of a failed copy. A move of a stream to its present node cancels the copy. Without
    ``node`` and ``home``, the queue moves to the home with the fewest queues, on another node if possible.
    """
    definition = requested.queue_definition(request)
    body = await requested.shaped_body(request, ACTION)
    if body["action"] == "move":
        await _move(request, definition, body)
    return changing.deleted()


async def _move(request: Request, definition: QueueDefinition, body: dict[str, Any]) -> None:
    broker = requested.broker(request)
    topology, node = broker.topology, body.get("node")
    up = broker.running_homes
    stay = up - topology.left
    if "home" in body:
        homes = [body["home"]]
        refuse_move(topology, definition, body["home"])
    elif node is not None:
        homes = [home for home in topology.nodes.get(node, ()) if home in stay]
    else:
        others = [home for home in stay if home != definition.home]
        here = topology.node_of(definition.home)
        homes = [home for home in others if topology.node_of(home) != here] or others
    if not homes or not set(homes) <= up:
        raise BadRequest(f"Node {node} could not be contacted" if node is not None else "no other node runs")
    if definition.home in homes:
        broker.peers.moves.stop_copy(topology.vhosts[definition.vhost].declared[definition.name])
        return
    home = min(homes, key=lambda number: (topology.holdings.queues_by_home[number], number))
    refuse_move(topology, definition, home)
    queue = topology.vhosts[definition.vhost].queues.get(definition.name)
    if queue is not None and (group := broker.reader_groups.reader_of(queue)) is not None:
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' cannot be moved: reader group '{group.shown_name}' has "
            "messages of it; end its query, or release the group"
        )
    if broker.peers.moves.begin(topology.vhosts[definition.vhost].declared[definition.name], home):
        await broker.committed()
    else:
        await changing.apply(request, MoveQueue(definition.vhost, definition.name, definition.id, home))


async def rebalance(request: Request) -> Response:
    """``POST /api/rebalance/queues``: let each home be led by its own node again, and move queues from homes with many
    queues to homes with few, a few at a time. Answered before the first move."""
    broker = requested.broker(request)
    for one in broker.copies.listed():
        if one.wanted_leader not in ("", one.seat):
            await broker.copies.set_leader(one.home, None)
    await requested.forwarder(request).act("rebalance")
    broker.peers.moves.rebalance()
    return changing.deleted()


async def _answer(request: Request, queues: list[QueueDefinition]) -> Response:
    wanted, broker = request.query_params.get("type"), requested.broker(request)
    kinds = None if wanted is None else wanted.split(",")
    node = request.query_params.get("node")
    node_of = broker.topology.node_of
    chosen = queues
    if kinds is not None or node is not None:
        chosen = [one for one in queues if (kinds is None or one.type in kinds) and node in (None, node_of(one.home))]

    async def show(part: Sequence[QueueDefinition]) -> list[dict[str, Any] | None]:
        found = zip(part, await broker.figures.queues(part), strict=True)
        return [
            None if figures is None else _sampled(request, definition, figures)
            async for definition, figures in broker.slices.through(found)
        ]

    if request.query_params.get("where"):
        chosen = await _where(request, request.query_params["where"], chosen)
    at_hand = AT_HAND | _sampled_at_hand(request.app.state.rates)
    return await answer_list_in_parts(request, chosen, show, at_hand=at_hand)


async def _where(request: Request, wanted: str, queues: list[QueueDefinition]) -> list[QueueDefinition]:
    """Return the queues selected by a filter of :data:`FILTERS`, mostly by the last reading."""
    if wanted not in FILTERS:
        raise BadRequest(f"'where' must be one of {', '.join(FILTERS)}, not '{wanted}'")
    rates: Rates = request.app.state.rates
    broker, found = requested.broker(request), list[QueueDefinition]()
    async for queue in broker.slices.through(queues):
        ready, unacknowledged = rates.last_counts(queue.id)[-2:]
        kind = QUEUE_TYPES[queue.type]
        if kind.append_only or kind.is_internal or not ready + unacknowledged:
            continue
        if wanted == "unattended" and rates.latest.consumers_of.get(queue.id):
            continue
        if wanted == "growing" and rates.last_growth(queue.id) <= 0:
            continue
        found.append(queue)
    if wanted != "full":
        return found
    full: list[QueueDefinition] = []
    for start in range(0, len(found), SHOWN_AT_ONCE):
        part = found[start : start + SHOWN_AT_ONCE]
        async for queue, figures in broker.slices.through(zip(part, await broker.figures.queues(part), strict=True)):
            most = None if figures is None else figures.max_length
            if figures is not None and most is not None and figures.ready >= NEAR_FULL * most:
                full.append(queue)
    return full


def _sampled(request: Request, definition: QueueDefinition, figures: QueueFigures) -> dict[str, Any] | None:
    """Return a queue, with the samples in the query; None if the queue was deleted."""
    history: History = request.app.state.history
    found = shown(request, definition, figures)
    if found is None:
        return None
    return add_samples(request, found, lambda: history.of("queue", definition.vhost, definition.name))


def shown(request: Request, definition: QueueDefinition, figures: QueueFigures) -> dict[str, Any] | None:
    """Return a queue in the format of RabbitMQ's management API, with the number of its latest message (``last_seq``);
    None if the queue was deleted."""
    rates: Rates = request.app.state.rates
    host = requested.broker(request).topology.vhosts.get(definition.vhost)
    declared = host.declared.get(definition.name) if host is not None else None
    if host is None or declared is None:
        return None
    return (
        {
            **definition.shown(),
            "type": figures.type,
            "exclusive": definition.exclusive,
            "node": figures.node,
            "state": figures.state,
            "consumers": figures.consumers,
            **rates.lengths(figures),
            "memory": figures.memory,
            "message_stats": rates.of_queue(figures),
            "idle_since": rates.idle_since(figures),
            "last_seq": figures.last_seq,
        }
        | _home(requested.broker(request), definition)
        | _down_since(request, definition, figures)
        | _move_under_way(requested.broker(request).topology, declared.definition)
        | _message_figures(figures)
        | _attendance(rates, figures)
        | dict(figures.status)
        | _copies(request, definition)  # after the status: a quorum queue or stream knows only its own node
        | in_force(host, declared.destination)
    )


def _home(broker: Broker, definition: QueueDefinition) -> dict[str, Any]:
    """Return the number of the queue's home, if several homes exist: ``/api/workers`` lists the homes."""
    return {"home": definition.home} if broker.peers.local.is_shared else {}


def _copies(request: Request, definition: QueueDefinition) -> dict[str, Any]:
    """Return the nodes with copies of a durable queue's home, under RabbitMQ's names; nothing without copies."""
    if not hasattr(request.state, "copies"):  # read once per request, because many queues may be shown
        listed = requested.broker(request).copies.listed()
        request.state.copies = {
            one.home: {"leader": one.leader, "members": list(one.members), "online": one.online}
            for one in listed
            if len(one.members) > 1
        }
    found: dict[str, Any] = request.state.copies.get(definition.home, {}) if definition.is_kept else {}
    return found


def _down_since(request: Request, definition: QueueDefinition, figures: QueueFigures) -> dict[str, Any]:
    """Return the begin of the absence of the queue's home, in seconds since the epoch; nothing if the home answers. The
    metrics of a queue with an absent home are unknown, and shown as 0.
    """
    watch: Watch = request.app.state.watch
    absence = watch.absences.of.get(definition.home)
    if figures.state != "down" or absence is None:
        return {}
    return {"down_since": round(absence.since, 3)}


def _move_under_way(topology: Topology, definition: QueueDefinition) -> dict[str, Any]:
    before = definition.before
    return {"moving_from": topology.node_of(home_of(before))} if before else {}


def _message_figures(figures: QueueFigures) -> dict[str, Any]:
    """Return the numbers of messages by state, if known for the kind of queue, and the octets of bodies."""
    found = figures.messages
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
        "head_message_timestamp": figures.head_timestamp,
        "head_published_at": figures.head_published_at and round(figures.head_published_at, 3),
    }


def _attendance(rates: Rates, figures: QueueFigures) -> dict[str, Any]:
    """Return the consumers' statistics."""
    if figures.append_only:
        return {}
    capacity = rates.consumer_capacity(figures)
    return {
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "exclusive_consumer_tag": figures.exclusive_consumer_tag,
        "single_active_consumer_tag": figures.single_active_consumer_tag,
    }


async def _owner(request: Request, definition: QueueDefinition) -> dict[str, Any]:
    """Return the connection that owns an exclusive queue."""
    if definition.owner is None:
        return {}
    owner = await requested.broker(request).figures.owner(definition.owner)
    return {} if owner is None else {"owner_pid_details": connections.details(owner.peer)}


ROUTES = [
    Endpoint(
        "POST", "/api/queues/{vhost}/{queue}/actions", act, access=Access.ADMINISTRATOR, shape=ACTION, at_home=True
    ),
    Endpoint("POST", "/api/rebalance/queues", rebalance, access=Access.ADMINISTRATOR),
    Endpoint("GET", "/api/queues", all_queues),
    Endpoint("GET", "/api/queues/{vhost}", queues_of_host),
    Endpoint("GET", "/api/queues/{vhost}/{queue}", one_queue),
    Endpoint("PUT", "/api/queues/{vhost}/{queue}", declare_queue, shape=SHAPE),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}", delete_queue, at_home=True),
]
