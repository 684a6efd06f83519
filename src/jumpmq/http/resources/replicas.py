"""``/api/queues/quorum/.../replicas``: RabbitMQ's requests to change members. JumpMQ changes the copies of homes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.copies import CopiesRefused, HomeCopies
from jumpmq.broker.telemetry import audit
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import NAME, TEXT, Shape, one_of
from jumpmq.topology import patterns

MEMBERSHIP = one_of("promotable", "voter")
MEMBER = Shape({"node": NAME}, required=("node",), ignored=("membership",))
GROW = Shape(
    {"strategy": one_of("all", "even"), "vhost_pattern": TEXT, "queue_pattern": TEXT, "membership": MEMBERSHIP},
    required=("strategy",),
)

ANY = ".*"
"""Pattern of all names, in the form sent by RabbitMQ's tools."""


async def add_member(request: Request) -> Response:
    """``POST /api/queues/quorum/{vhost}/{queue}/replicas/add``: let a node keep a copy of a queue's home: a copy of all
    durable queues of the home. Answered when etcd has the request; as in RabbitMQ, also for a node with a copy."""
    home = _home_of_queue(request)
    node: str = (await requested.shaped_body(request, MEMBER))["node"]
    copies = requested.broker(request).copies
    if not any(one.home == home and node in one.wanted_members for one in copies.listed()):
        await copies.add_member(home, node)
        _audit(request, "add member", home, node)
    return JSONResponse(await _placement(request, home))


async def delete_member(request: Request) -> Response:
    """``DELETE /api/queues/quorum/{vhost}/{queue}/replicas/delete``: refused: a copy has all queues of a home."""
    home = _home_of_queue(request)
    node: str = (await requested.shaped_body(request, MEMBER))["node"]
    raise BadRequest(
        f"a copy on node '{node}' has all queues of home {home}: 'jumpmqctl shrink {node}' removes the copies of a "
        f"node, 'jumpmqctl set_copies COUNT --home {home}' sets the number of the home's copies"
    )


async def grow(request: Request) -> Response:
    """``POST /api/queues/quorum/replicas/on/{node}/grow``: let a node keep copies of all homes, or of homes with a
    durable queue whose virtual host and name match the patterns. With ``even``, only of homes with an even number of
    copies.

    The answer lists these homes, each with its wanted ``members`` and number of durable ``queues``, or an ``error``.
    """
    node, body = _node(request), await requested.shaped_body(request, GROW)
    copies = requested.broker(request).copies
    matching = await _matching(request, body.get("vhost_pattern", ANY), body.get("queue_pattern", ANY))
    homes = [
        one
        for one in copies.listed()
        if one.home in matching
        and node not in one.wanted_members
        and (body["strategy"] == "all" or one.wanted_copies % 2 == 0)
    ]
    return await _change(request, "add member", node, homes)


async def shrink(request: Request) -> Response:
    """``DELETE /api/queues/quorum/replicas/on/{node}/shrink``: let a node, or a removed node, keep no copies of
    other nodes' homes. The answer is that of ``grow``; as in RabbitMQ, empty for an unknown node."""
    node, listed = requested.name(request, "node"), requested.broker(request).copies.listed()
    homes = [one for one in listed if node in one.wanted_members and len(one.wanted_members) > 1]
    return await _change(request, "remove member", node, homes)


async def _change(request: Request, what: str, node: str, homes: list[HomeCopies]) -> Response:
    copies = requested.broker(request).copies
    change = copies.add_member if what == "add member" else copies.remove_member
    told = []
    for one in homes:
        try:
            await change(one.home, node)
        except CopiesRefused as error:
            told.append(await _placement(request, one.home) | {"error": str(error)})
            continue
        _audit(request, what, one.home, node)
        told.append(await _placement(request, one.home))
    return JSONResponse(told)


async def _matching(request: Request, vhosts: str, queues: str) -> set[int]:
    """Return the homes with a durable queue whose virtual host and name match patterns; all homes for :data:`ANY`.

    Raises:
        BadRequest: a pattern is not a regular expression.
    """
    broker = requested.broker(request)
    if vhosts == queues == ANY:
        return set(broker.topology.homes)
    of_vhost, of_queue = _compiled("vhost_pattern", vhosts), _compiled("queue_pattern", queues)
    hosts = [host for host in broker.topology.vhosts.values() if of_vhost.matches(host.name)]
    there = (one for host in hosts for one in host.queue_definitions())
    found = [one.home async for one in broker.slices.through(there) if one.is_kept and of_queue.matches(one.name)]
    return set(found)


def _compiled(key: str, pattern: str) -> patterns.Pattern:
    try:
        return patterns.compiled(pattern)
    except patterns.InvalidPattern as error:
        raise BadRequest(f"'{key}' must be a regular expression, not '{pattern}': {error}") from None


async def _placement(request: Request, home: int) -> dict[str, Any]:
    """Return a home after a change, with the number of its durable queues."""
    broker = requested.broker(request)
    there = (one for host in broker.topology.vhosts.values() for one in host.queues_of(home))
    queues = sum([one.definition.is_kept async for one in broker.slices.through(there)])
    members = next((one.wanted_members for one in broker.copies.listed() if one.home == home), ())
    return {"home": home, "members": list(members), "queues": queues}


def _node(request: Request) -> str:
    """Return the node in the path.

    Raises:
        NotFound: the node is not in the cluster.
    """
    node = requested.name(request, "node")
    if node not in requested.broker(request).topology.nodes:
        raise NotFound(f"node '{node}' is not in the cluster")
    return node


def _home_of_queue(request: Request) -> int:
    """Return the home of the queue in the path.

    Raises:
        BadRequest: the queue is not durable.
    """
    definition = requested.queue_definition(request)
    if not definition.is_kept:
        raise BadRequest(f"queue '{definition.name}' in vhost '{definition.vhost}' is not durable: it has no copies")
    return definition.home


def _audit(request: Request, what: str, home: int, node: str) -> None:
    audit.record(what, user=requested.user(request).name, home=home, node=node)


OF_QUEUE, OF_NODE = "/api/queues/quorum/{vhost}/{queue}/replicas", "/api/queues/quorum/replicas/on/{node}"
ROUTES = [
    Endpoint("POST", f"{OF_NODE}/grow", grow, access=Access.ADMINISTRATOR, shape=GROW),
    Endpoint("DELETE", f"{OF_NODE}/shrink", shrink, access=Access.ADMINISTRATOR),
    Endpoint("POST", f"{OF_QUEUE}/add", add_member, access=Access.ADMINISTRATOR, shape=MEMBER),
    Endpoint("DELETE", f"{OF_QUEUE}/delete", delete_member, access=Access.ADMINISTRATOR, shape=MEMBER),
]
