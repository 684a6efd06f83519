"""``/api/health/checks``: checks for operators and load balancers; 200 if healthy, otherwise 503.

Checks of objects that JumpMQ does not have (mirrors) always succeed, so that checks written for RabbitMQ keep working.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.channel.publishing import publish_one
from jumpmq.broker.figures.values import HomeState, NodeFigures
from jumpmq.broker.security.certificates import expires_at
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.warnings.moves import stalled_moves
from jumpmq.queues import QUEUE_TYPES, Outcome
from jumpmq.topology import DeclareQueue

if TYPE_CHECKING:
    from jumpmq.broker.figures.figures import Figures

ALIVENESS_QUEUE = "aliveness-test"
AMQP_NAMES = frozenset({"amqp", "amqp091", "amqp0.9.1"})
NAMED = 1000
"""Maximum number of queues named by a check."""

UNITS = {"days": 1, "weeks": 7, "months": 30, "years": 365}


async def virtual_hosts(request: Request) -> JSONResponse:
    """``GET /api/health/checks/virtual-hosts``: fails if published messages are not committed."""
    complaint = _complaint(requested.node_figures(request).states())
    return JSONResponse({"status": "ok"}) if complaint is None else _failed(complaint)


async def mirrors(request: Request) -> JSONResponse:
    """``GET /api/health/checks/node-is-mirror-sync-critical``: always ok, because JumpMQ has no mirrors."""
    return JSONResponse({"status": "ok", "reason": "single node cluster"})


async def quorum(request: Request) -> JSONResponse:
    """``GET /api/health/checks/node-is-quorum-critical``: fails if queues would stop with the node.

    These are quorum queues and streams of homes without copies, and all durable queues of homes with too few copies.
    """
    broker = requested.broker(request)
    if len(broker.topology.nodes) < 2:
        return JSONResponse({"status": "ok", "reason": "single node cluster"})
    copies = {one.home: one for one in broker.copies.listed() if len(one.members) > 1}
    alone = [home for home in broker.topology.nodes[broker.node] if home not in copies]
    short = [home for home, one in copies.items() if one.stops_without(broker.node)]
    hosts = broker.topology.vhosts.values()
    there = (one for host in hosts for home in [*alone, *short] for one in host.queues_of(home))
    found = [
        one
        async for one in broker.slices.through(there)
        if (one.definition.is_kept if one.definition.home in copies else QUEUE_TYPES[one.type].replicated)
    ]
    if not found:
        return JSONResponse({"status": "ok"})
    queues = [
        {
            "readable_name": f"queue '{one.name}' in vhost '{one.vhost}'",
            "name": one.name,
            "virtual_host": one.vhost,
            "type": f"rabbit_{one.type}_queue",
        }
        for one in found[:NAMED]
    ]
    return _failed(
        "There are quorum queues that would lose their quorum if the target node is shut down", queues=queues
    )


async def moves(request: Request) -> JSONResponse:
    """``GET /api/health/checks/moves``: fails if moves of queues between homes make no progress. JumpMQ's own."""
    found = stalled_moves(requested.broker(request).figures.states())
    if not found:
        return JSONResponse({"status": "ok"})
    queues = [
        {"name": one.name, "virtual_host": one.vhost, "waits_for": one.waits_for, "seconds": round(one.seconds)}
        for one in found[:NAMED]
    ]
    return _failed("Moves of queues between homes make no progress", queues=queues)


async def definitions(request: Request) -> JSONResponse:
    """``GET /api/health/checks/definitions``: fails if definitions cannot be changed at this node. In a cluster,
    changes need a writable etcd with all of the node's definitions. JumpMQ's own."""
    stall = _stall(requested.node_figures(request).states())
    return JSONResponse({"status": "ok"}) if stall is None else _failed(_cannot_be_changed(stall))


async def alarms(request: Request) -> JSONResponse:
    """``GET /api/health/checks/alarms``: fails if memory, disk or copies are short, or definitions cannot be changed,
    anywhere in the cluster."""
    return _alarms(requested.broker(request).figures, "There are alarms in effect in the cluster")


async def local_alarms(request: Request) -> JSONResponse:
    """``GET /api/health/checks/local-alarms``: fails if memory or disk of this node is short, or copies of a home
    served by this node. Unchangeable definitions do not count, because they affect all nodes: a balancer would take the
    clients from all of them."""
    return _alarms(requested.node_figures(request), "There are alarms in effect on the node", definitions=False)


async def node(request: Request) -> JSONResponse:
    """``GET /api/healthchecks/node``: fails if a home does not answer, commits fail, losses are unacknowledged,
    definitions cannot be changed, or memory or disk is short. The format is that of RabbitMQ's older check."""
    broker, figures = requested.broker(request), requested.node_figures(request)
    states = figures.states()
    if down := figures.down():
        return _failed(_do_not_answer(down))
    if (complaint := _complaint(states)) is not None:
        return _failed(complaint)
    if losses := _losses(states):
        return _failed(_missing(losses))
    if (stall := _stall(states)) is not None:
        return _failed(_cannot_be_changed(stall))
    if short := _short(states):
        limits = ",".join([f"{{resource_limit,{name},'{broker.node}'}}" for name in short])
        return _failed(f"resource alarm(s) in effect:[{limits}]")
    return JSONResponse({"status": "ok"})


def _alarms(figures: Figures, reason: str, *, definitions: bool = True) -> JSONResponse:
    names = {"memory": "memory", "disk": "disk space", "copies": "copies"}
    nodes: dict[str, list[HomeState]] = {}
    for state in figures.states():
        nodes.setdefault(state.node.name, []).append(state)
    found = []
    for node, states in nodes.items():
        found += [{"node": node, "resource": names[name]} | _reason(name, states) for name in _short(states)]
        if (complaint := _complaint(states)) is not None:
            found.append({"node": node, "resource": "commits", "reason": complaint})
        if losses := _losses(states):
            found.append({"node": node, "resource": "data", "reason": _missing(losses)})
        if definitions and (stall := _stall(states)) is not None:
            found.append({"node": node, "resource": "definitions", "reason": _cannot_be_changed(stall)})
    if down := figures.down():
        found.append({"node": next(iter(nodes)), "resource": "homes", "reason": _do_not_answer(down)})
    return _failed(reason, alarms=found) if found else JSONResponse({"status": "ok"})


def _reason(name: str, states: list[HomeState]) -> dict[str, str]:
    """Return the reason for an alarm of copies: the homes with too few copies; nothing for other alarms."""
    if name != "copies":
        return {}
    homes = [state.home for state in states if name in state.short]
    of = f"home {homes[0]} has" if len(homes) == 1 else f"homes {str(homes)[1:-1]} have"
    return {"reason": f"{of} fewer than min copies: nothing is confirmed"}


def _do_not_answer(homes: list[int]) -> str:
    return f"home {homes[0]} does not answer" if len(homes) == 1 else f"homes {str(homes)[1:-1]} do not answer"


def _short(states: list[HomeState]) -> list[str]:
    """Return the resources that are short at any home."""
    return list(dict.fromkeys(name for state in states for name in state.short))


def _complaint(states: list[HomeState]) -> str | None:
    return next((state.complaint for state in states if state.complaint is not None), None)


def _stall(states: list[HomeState]) -> str | None:
    return next((state.stall for state in states if state.stall is not None), None)


def _cannot_be_changed(stall: str) -> str:
    return f"definitions cannot be changed: {stall}"


def _losses(states: list[HomeState]) -> list[tuple[str, float]]:
    return [loss for state in states for loss in state.losses]


def _missing(losses: list[tuple[str, float]]) -> str:
    more = f", and {len(losses) - 1} more" if len(losses) > 1 else ""
    return f"messages or definitions are missing from the data directory: {losses[0][0]}{more}"


async def port_listener(request: Request) -> JSONResponse:
    """``GET /api/health/checks/port-listener/{port}``: fails if the broker does not listen on the port."""
    text = requested.name(request, "port")
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise BadRequest("Invalid port")
    ports = [listener["port"] for listener in listeners(request)]
    if int(text) not in ports:
        return _failed("No active listener", missing=int(text), ports=ports)
    return JSONResponse({"status": "ok", "port": int(text)})


async def protocol_listener(request: Request) -> JSONResponse:
    """``GET /api/health/checks/protocol-listener/{protocol}``: fails if the broker does not listen for the protocol."""
    wanted = requested.name(request, "protocol").lower()
    wanted = "amqp" if wanted in AMQP_NAMES else wanted
    protocols = [listener["protocol"] for listener in listeners(request)]
    if wanted not in protocols:
        return _failed("No active listener", missing=wanted, protocols=protocols)
    return JSONResponse({"status": "ok", "protocol": wanted})


async def certificate_expiration(request: Request) -> JSONResponse:
    """``GET /api/health/checks/certificate-expiration/{within}/{unit}``: fails if the broker's certificate expires
    within the time."""
    within, unit = requested.name(request, "within"), requested.name(request, "unit")
    if not within.isdecimal() or len(within) > 6:
        raise BadRequest("Invalid expiration value.")
    if unit not in UNITS:
        raise BadRequest(f"Time unit not recognised. Supported units: {', '.join(UNITS)}.")
    tls = requested.broker(request).config.tls
    if tls is not None:
        expiry = await asyncio.to_thread(expires_at, tls.certificate)
        if expiry <= time.time() + int(within) * UNITS[unit] * 86400:
            expired = [one for one in listeners(request) if one["protocol"] in ("amqp/ssl", "https")]
            return _failed("Certificates expiring", expired=expired)
    return JSONResponse({"status": "ok"})


async def aliveness(request: Request) -> JSONResponse:
    """``GET /api/aliveness-test/{vhost}``: fails if a test message is not delivered.

    The message passes the queue ``aliveness-test`` of this home. If another home has that queue, the message passes
    ``aliveness-test-HOME``.
    """
    host, broker = requested.virtual_host(request), requested.broker(request)
    home, name = broker.config.home, ALIVENESS_QUEUE
    if (declared := host.declared.get(name)) is not None and declared.definition.home != home:
        name = f"{ALIVENESS_QUEUE}-{home}"
    for kind in ("configure", "read"):
        changing.check_permission(request, host.name, kind, name)
    await changing.apply(request, DeclareQueue(broker.topology.define_queue(host.name, name, home=home)))
    queue = host.queue(name)
    message = Message("", name.encode(), Properties().encode(), b"test_message", False, time.time())
    with broker.turns.turn():
        publish_one(broker.authorization, requested.principal(request), host, message, sender=broker.sender)
        queue.settle(queue.take(1), Outcome.ACKNOWLEDGED)
    return JSONResponse({"status": "ok"})


def listeners(request: Request) -> list[dict[str, Any]]:
    """Return the local node's listeners, in RabbitMQ's format."""
    return _listeners(requested.node_figures(request).node())


def all_listeners(request: Request) -> list[dict[str, Any]]:
    """Return the listeners of all running nodes."""
    nodes = requested.broker(request).figures.nodes()
    return [one for name in sorted(nodes) for one in _listeners(nodes[name])]


def _listeners(node: NodeFigures) -> list[dict[str, Any]]:
    return [
        {"node": node.name, "protocol": protocol, "ip_address": address, "port": port}
        for protocol, address, port in node.listeners
    ]


def _failed(reason: str, **details: Any) -> JSONResponse:
    return JSONResponse({"status": "failed", "reason": reason, **details}, 503)


CHECKS = "/api/health/checks"
ROUTES = [
    Endpoint("GET", f"{CHECKS}/alarms", alarms),
    Endpoint("GET", f"{CHECKS}/local-alarms", local_alarms),
    Endpoint("GET", f"{CHECKS}/virtual-hosts", virtual_hosts),
    Endpoint("GET", f"{CHECKS}/port-listener/{{port}}", port_listener),
    Endpoint("GET", f"{CHECKS}/protocol-listener/{{protocol}}", protocol_listener),
    Endpoint("GET", f"{CHECKS}/certificate-expiration/{{within}}/{{unit}}", certificate_expiration),
    Endpoint("GET", f"{CHECKS}/node-is-mirror-sync-critical", mirrors),
    Endpoint("GET", f"{CHECKS}/node-is-quorum-critical", quorum),
    Endpoint("GET", f"{CHECKS}/moves", moves),
    Endpoint("GET", f"{CHECKS}/definitions", definitions),
    Endpoint("GET", "/api/healthchecks/node", node),
    Endpoint("GET", "/api/aliveness-test/{vhost}", aliveness),
]
