"""``/api/nodes``: the nodes of the cluster."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.copies import CopiesUnavailable
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.rates import LOOKS, Rates
from jumpmq.http.samples import OF_NODE, add_samples, growth
from jumpmq.topology import ForgetNode, LeaveHome
from jumpmq.topology.definitions import home_of

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.broker.figures.values import NodeFigures
    from jumpmq.http.history import Track


END_TIMEOUT = 20.0
"""Maximum wait for the end of a home that another node serves, in seconds."""

END_LOOK = 0.1
"""Seconds between checks whether the home has ended."""


async def all_nodes(request: Request) -> Response:
    """``GET /api/nodes``: the nodes of the cluster. Unreachable nodes have only the state."""
    broker = requested.broker(request)
    nodes = {broker.node, *broker.topology.nodes}
    await broker.figures.refresh()
    return await answer_list(request, sorted(nodes), partial(_node, request), ("name",))


async def one_node(request: Request) -> Response:
    """``GET /api/nodes/{node}``: a node."""
    name, broker = requested.name(request, "node"), requested.broker(request)
    if name not in broker.topology.nodes:
        require_node(request)
    await broker.figures.refresh()
    return answer_object(request, _node(request, name))


async def forget_node(request: Request) -> Response:
    """``DELETE /api/nodes/{node}?accept-loss=true``: remove a stopped node and its queues, and return the names of the
    removed queues.

    Refused while another node serves the node's durable queues, or could serve them. Refused also if no other node has
    all confirmed messages of a third node's home. Durable queues that no other node can serve are lost with the node:
    their removal needs ``accept-loss``.
    """
    broker, name = requested.broker(request), requested.name(request, "node")
    homes = broker.topology.nodes.get(name)
    if homes is None:
        raise NotFound(f"no node '{name}'")
    if name in broker.running_nodes:
        raise BadRequest(f"node '{name}' runs: the node must be stopped first")
    accepts_loss = requested.flag(request, "accept-loss")
    served = [home for home in homes if home in broker.running_homes]
    for home in served:
        await _require_empty(request, name, home)
    await broker.copies.check_removal(name, served, accepts_loss=accepts_loss)
    for home in served:
        await _end_served(request, name, home)
    gone = [
        {"vhost": host.name, "name": declared.name}
        for host in broker.topology.vhosts.values()
        for home in homes
        for declared in host.queues_of(home)
    ]
    await changing.apply(request, ForgetNode(name, "accepted" if accepts_loss else "refused"))
    return answer_object(request, {"queues": gone})


async def _end_served(request: Request, node: str, home: int) -> None:
    """End a home of a stopped node. Another node serves the home.

    Raises:
        BadRequest: the home has durable queues, or messages for other nodes.
        CopiesUnavailable: the home does not end in time.
    """
    broker = requested.broker(request)
    await changing.apply(request, LeaveHome(home))  # from now on, no queue is placed at the home
    try:
        await _require_empty(request, node, home)
    except BadRequest:
        await changing.apply(request, LeaveHome(home, False))
        raise
    await broker.copies.end(home)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_TIMEOUT):
            while home in broker.running_homes:  # noqa: ASYNC110
                await asyncio.sleep(END_LOOK)
            return
    raise CopiesUnavailable(f"home {home} does not end: check the log of node '{broker.node_serving(home)}'")


async def _require_empty(request: Request, node: str, home: int) -> None:
    """Refuse the end of a home that another node serves, unless the home is empty.

    Raises:
        BadRequest: the home has durable queues, or messages for other nodes.
    """
    broker = requested.broker(request)
    await broker.figures.refresh()
    if (has := _outlives(broker, home)) is not None:
        raise BadRequest(
            f"node '{node}' does not run, but node '{broker.node_serving(home)}' serves its home {home} ({has}): "
            f"drain node '{node}' first, or start a node of that name with an empty data directory in its place"
        )


def _outlives(broker: Broker, home: int) -> str | None:
    """Describe a home's contents that survive a restart; None for an empty home."""
    declared = [one for host in broker.topology.vhosts.values() for one in host.declared.values()]
    kept = [one for one in declared if one.definition.is_kept]
    here = sum(one.definition.home == home for one in kept)
    moving = sum(bool(one.definition.before) and home_of(one.definition.before) == home for one in kept)
    sent = [count for one in broker.figures.states() if one.home == home for _, count, _ in one.outbox]
    counts = {"durable queues": here, "queues on their way": moving, "messages for other nodes": sum(sent)}
    return ", ".join(f"{what}: {count}" for what, count in counts.items() if count) or None


async def contents(request: Request) -> Response:
    """``GET /api/nodes/{node}/contents``: contents affected by a loss of the node: numbers of queues, durable queues
    and messages; sharded exchanges with their shards."""
    broker, name = requested.broker(request), requested.name(request, "node")
    homes = {broker.node: [broker.config.home]} | dict(broker.topology.nodes)
    if name not in homes:
        raise NotFound(f"no node '{name}'")
    rates: Rates = request.app.state.rates
    hosts = broker.topology.vhosts.values()
    queues, kept, messages, shards = 0, 0, 0, dict[tuple[str, str], list[int]]()
    there = (one for host in hosts for home in homes[name] for one in host.queues_of(home))
    async for one in broker.slices.through(there):
        held = int(sum(rates.last_counts(one.id)[-2:]))
        queues, kept, messages = queues + 1, kept + one.definition.is_kept, messages + held
        if one.shard is not None:
            shards.setdefault((one.vhost, one.shard[0]), []).append(held)
    shown_shards = [
        {"vhost": vhost, "exchange": exchange, "shards": len(held), "messages": sum(held)}
        for (vhost, exchange), held in sorted(shards.items())
    ]
    return answer_object(request, {"queues": queues, "kept": kept, "messages": messages, "shards": shown_shards})


def require_node(request: Request) -> None:
    """Refuse unless the path names the local node.

    Raises:
        NotFound: the path names another node.
    """
    name = requested.name(request, "node")
    if name != requested.broker(request).node:
        raise NotFound(f"no node '{name}'")


def _node(request: Request, name: str) -> dict[str, Any]:
    """Return a node. An unreachable node has only the state, the copies and the workers."""
    broker = requested.broker(request)
    workers = _copies(broker, name) | {"workers": _workers(request, name)}
    if name == broker.node:
        return _sampled(request) | workers
    if (found := broker.figures.nodes().get(name)) is not None:
        return shown(request, found) | workers
    return {"name": name, "type": "disc", "running": name in broker.running_nodes, "partitions": []} | workers


def _copies(broker: Broker, node: str) -> dict[str, int | bool]:
    """Return the state of a node's copies, as JSON; empty without a cluster.

    ``copies_led`` and ``copies_followed`` are numbers of replicated homes. ``copies_alarm`` is true if a led home has
    too few copies, ``keeps_copies`` if a running process of the node keeps copies.
    """
    if not (listed := broker.copies.listed()):
        return {}
    members = [one for one in listed if len(one.members) > 1 and node in one.members]
    led = sum(one.leader == node for one in members)
    lacks = any(one.stands for one in members if one.leader == node)
    keeps = any(node in one.online for one in members)
    return {"copies_led": led, "copies_followed": len(members) - led, "copies_alarm": lacks, "keeps_copies": keeps}


def _workers(request: Request, name: str) -> list[dict[str, Any]]:
    """Return the processes of a node, with their homes. JumpMQ's own.

    ``served_by`` is the node whose process serves the home while the node's own process does not run.
    ``cpu`` is the processor time per second: 1.0 is a whole processor.
    ``messages`` of a process that does not answer is its last known number of messages.
    """
    broker, rates = requested.broker(request), request.app.state.rates
    absences, states = request.app.state.watch.absences.of, {one.home: one for one in broker.figures.states()}
    found = []
    for number, home in enumerate(broker.topology.nodes.get(name, ()), 1):
        state, absence = states.get(home), absences.get(home)
        at = name if state is None else state.node.name
        one: dict[str, Any] = {
            "worker": number,
            "home": home,
            "running": state is not None and absence is None and at == name,
            "leaves": home in broker.topology.left,
            "queues": broker.topology.holdings.queues_by_home[home],
            "messages": rates.latest.of_homes.get(home, 0) if absence is None else absence.messages,
        }
        if absence is not None:
            one["down_since"] = round(absence.since, 3)
        elif at != name:
            one["served_by"] = at
        elif state is not None:
            one |= {
                "os_pid": str(state.node.pid),
                "mem_used": state.node.resident,
                "mem_messages": state.node.memory,
                "cpu": rates.last_cpu_of_home(home),
                "connections": state.node.connections,
                "uptime": int((time.time() - state.node.started_at) * 1000),
            }
        found.append(one)
    return found


def _sampled(request: Request) -> dict[str, Any]:
    """Return the local node, with the samples in the query, and the rates of the node's metrics."""
    overall: Track = request.app.state.history.overall
    found = shown(request, requested.broker(request).figures.node())
    for name, of in OF_NODE.items():
        found[f"{name}_details"] = {"rate": growth(overall.samples(of, LOOKS, 1))}
    return add_samples(request, found, lambda: overall)


def shown(request: Request, node: NodeFigures) -> dict[str, Any]:
    """Return a node in the format of RabbitMQ's management API."""
    tls = requested.broker(request).config.tls
    mechanisms = ["AMQPLAIN", "PLAIN", *(["EXTERNAL"] if tls is not None and tls.client != "none" else [])]
    return {
        "name": node.name,
        "type": "disc" if node.durable else "ram",
        "running": True,
        "os_pid": str(node.pid),
        "uptime": int((time.time() - node.started_at) * 1000),
        "processors": os.cpu_count(),
        "mem_used": node.resident,
        "mem_limit": node.memory_limit,
        "mem_alarm": node.memory_alarm,
        "mem_calculation_strategy": "account",
        "mem_messages": node.memory,
        "disk_free": node.disk_free,
        "disk_free_limit": node.disk_free_limit,
        "disk_free_alarm": node.disk_alarm,
        "fd_used": node.files,
        "fd_total": node.files_limit,
        "sockets_used": node.connections,
        "sockets_total": node.connections_limit,
        "cpu": request.app.state.rates.last_cpu(node.name),
        "partitions": [],
        "cluster_links": _links(request, node),
        "rates_mode": "basic",
        "auth_mechanisms": [{"name": name, "enabled": True} for name in mechanisms],
    }


def _links(request: Request, node: NodeFigures) -> list[dict[str, Any]]:
    """Return the nodes linked with a node, each with octets waiting to be sent and octets sent per second."""
    at, rates = requested.broker(request).node_serving, request.app.state.rates
    found: dict[str, dict[str, Any]] = {}
    for home, unsent, _ in node.links:
        if (name := at(home)) != node.name:
            one = found.setdefault(name, {"name": name, "unsent": 0, "send_oct_details": {"rate": 0.0}})
            one["unsent"] += unsent
    for name, one in found.items():
        one["send_oct_details"]["rate"] = rates.last_link_rate(node.name, name)
    return list(found.values())


ROUTES = [
    Endpoint("GET", "/api/nodes", all_nodes, access=Access.MONITORING),
    Endpoint("GET", "/api/nodes/{node}", one_node, access=Access.MONITORING),
    Endpoint("GET", "/api/nodes/{node}/contents", contents, access=Access.MONITORING),
    Endpoint("DELETE", "/api/nodes/{node}", forget_node, access=Access.ADMINISTRATOR),
]
