"""``/api/copies``: copies of the homes of a cluster. JumpMQ's own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.copies import CopyPositions, HomeCopies
from jumpmq.broker.telemetry import audit
from jumpmq.http.copy_checks import AskCheck, CopyChecks
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.schema.shapes import INTEGER, NAME, Shape

COPIES = Shape({"copies": INTEGER, "min": INTEGER}, required=("copies",))
LEADER = Shape({"node": NAME}, required=("node",))


async def listed(request: Request) -> Response:
    """``GET /api/copies``: the homes of the cluster with their copies, as etcd has them; empty without a cluster."""
    broker = requested.broker(request)
    return await answer_list(request, broker.copies.listed(), partial(_shown, broker.running_homes), ("home",))


async def one_home(request: Request) -> Response:
    """``GET /api/copies/{home}``: a home with its copies."""
    home = _home(request)
    found = (one for one in requested.broker(request).copies.listed() if one.home == home)
    if (copies := next(found, None)) is None:
        raise NotFound(f"no home {home}")
    return answer_object(request, _shown(requested.broker(request).running_homes, copies))


async def set_copies(request: Request) -> Response:
    """``PUT /api/copies/{home}``: set the number of a home's copies, and ``min``, the number of copies that must store
    each confirmed message (by default half, rounded up). Answered when etcd has the request; the home's leader then
    makes the changes."""
    home, body = _home(request), await requested.shaped_body(request, COPIES)
    copies: int = body["copies"]
    least: int | None = body.get("min")
    await requested.broker(request).copies.set_copies(home, copies, least)
    audit.record("set copies", user=requested.user(request).name, home=home, to=copies, min=least)
    return changing.deleted()


async def set_leader(request: Request) -> Response:
    """``PUT /api/copies/{home}/leader``: let a member lead a home, as soon as the member's copy is complete."""
    node: str = (await requested.shaped_body(request, LEADER))["node"]
    return await _lead(request, node)


async def clear_leader(request: Request) -> Response:
    """``DELETE /api/copies/{home}/leader``: let a home be led by its own node again."""
    return await _lead(request, None)


async def _lead(request: Request, node: str | None) -> Response:
    home = _home(request)
    await requested.broker(request).copies.set_leader(home, node)
    audit.record("set leader", user=requested.user(request).name, home=home, to=node)
    return changing.deleted()


async def positions(request: Request) -> Response:
    """``GET /api/copies/{home}/positions``: positions in the log of each reachable copy of a home."""
    found = [CopyPositions(*one) for one in await _ask(request)("copy_positions", _home(request))]
    return await answer_list(request, found, CopyPositions._asdict, ("node",))


async def begin_check(request: Request) -> Response:
    """``POST /api/copies/{home}/check``: compare the copies of a home by checksums, in the background. Answered before
    the comparison begins; without effect while a comparison is running."""
    home = _home(request)
    _checks(request).begin(home, _ask(request))
    audit.record("check copies", user=requested.user(request).name, home=home)
    return changing.deleted()


async def check(request: Request) -> Response:
    """``GET /api/copies/{home}/check``: the last comparison begun at this node: ``state`` (``running``, ``equal``,
    ``damaged``, ``different``, ``failed``), progress, differences (file, offset, checksum by node), and the files with
    the same damage in all copies."""
    home = _home(request)
    if (found := _checks(request).of.get(home)) is None:
        raise NotFound(f"no comparison of home {home}'s copies was begun at this node")
    return answer_object(request, asdict(found))


def _ask(request: Request) -> AskCheck:
    """Return a function that runs an operation on copies in all reachable processes, the local process included."""
    copies, act = requested.broker(request).copies, requested.forwarder(request).act
    here: dict[str, AskCheck] = {
        "copy_positions": copies.positions,
        "copy_files": copies.files,
        "copy_checksum": copies.checksum,
        "copy_damaged": copies.is_damaged,
    }

    async def ask(name: str, *arguments: Any) -> list[Any]:
        own, others = await asyncio.gather(here[name](*arguments), act(name, *arguments))
        return [*([] if own is None else [own]), *others]

    return ask


def _checks(request: Request) -> CopyChecks:
    found: CopyChecks = request.app.state.copy_checks
    return found


def _home(request: Request) -> int:
    """Return the number of the home in the path.

    Raises:
        NotFound: the home does not exist.
    """
    text, nodes = requested.name(request, "home"), requested.broker(request).topology.nodes
    if text not in {str(home) for homes in nodes.values() for home in homes}:
        raise NotFound(f"no home {text}")
    return int(text)


def _shown(running: Collection[int], copies: HomeCopies) -> dict[str, Any]:
    lags, ages = copies.lag_octets, copies.lag_seconds
    return {
        "home": copies.home,
        "seat": copies.seat,
        "leader": copies.leader,
        "running": copies.home in running,
        "epoch": copies.epoch,
        "copies": copies.copies,
        "min": copies.min,
        "in_set": copies.in_set,
        "confirms": not copies.stands,
        "members": [
            {"node": node, "state": state}
            | ({"lag_bytes": lags[node], "lag_seconds": ages.get(node, 0.0)} if node in lags else {})
            | ({"rack": copies.racks[node]} if node in copies.racks else {})
            | ({"trouble": copies.troubles[node]} if node in copies.troubles else {})
            | ({"damaged": True} if node in copies.damaged else {})
            for node, state in copies.members.items()
        ],
        "wanted": {
            "copies": copies.wanted_copies,
            "min": copies.wanted_min,
            "members": list(copies.wanted_members),
            "leader": copies.wanted_leader or copies.seat,
        },
    }


ONE = "/api/copies/{home}"
ROUTES = [
    Endpoint("GET", "/api/copies", listed, access=Access.MONITORING),
    Endpoint("GET", ONE, one_home, access=Access.MONITORING),
    Endpoint("PUT", ONE, set_copies, access=Access.ADMINISTRATOR, shape=COPIES),
    Endpoint("GET", f"{ONE}/positions", positions, access=Access.MONITORING),
    Endpoint("GET", f"{ONE}/check", check, access=Access.MONITORING),
    Endpoint("POST", f"{ONE}/check", begin_check, access=Access.ADMINISTRATOR),
    Endpoint("PUT", f"{ONE}/leader", set_leader, access=Access.ADMINISTRATOR, shape=LEADER),
    Endpoint("DELETE", f"{ONE}/leader", clear_leader, access=Access.ADMINISTRATOR),
]
