"""``/api/consumer-groups``: consumer groups, members, and assignment of queues. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.figures.values import ConsumerGroupFigures, GroupMemberFigures, GroupUnitFigures
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import monitors
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import Unauthorized
from jumpmq.http.resources.connections import provided_name
from jumpmq.topology import VirtualHost

ORDER = ("vhost", "source", "name")


async def all_consumer_groups(request: Request) -> Response:
    """``GET /api/consumer-groups``: consumer groups of all virtual hosts; without a monitoring tag, groups with a
    member of the user."""
    return await _answer(request, requested.visible_hosts(request))


async def consumer_groups_of_host(request: Request) -> Response:
    """``GET /api/consumer-groups/{vhost}``: consumer groups of a virtual host."""
    return await _answer(request, [requested.virtual_host(request)])


async def _answer(request: Request, hosts: list[VirtualHost]) -> Response:
    user = requested.user(request)
    found = await requested.broker(request).figures.consumer_groups([host.name for host in hosts])
    if not monitors(user):
        own = requested.principal(request).identity
        found = [group for group in found if any((one.user, one.by_token) == own for one in group.members)]
    return await answer_list(request, found, shown, ORDER)


async def end_member(request: Request) -> Response:
    """``DELETE /api/consumer-groups/{vhost}/{kind}/{source}/{group}/members/{member}``: remove a present or absent
    member."""
    host = requested.virtual_host(request)
    kind, source, group = (requested.name(request, part) for part in ("kind", "source", "group"))
    key = (host.name, kind, source, group)
    name = requested.name(request, "member")
    found = await requested.broker(request).figures.consumer_groups([host.name])
    groups = [one for one in found if (one.vhost, one.source_kind, one.source, one.name) == key]
    member = next((one for shared in groups for one in shared.members if one.name == name), None)
    user, principal = requested.user(request), requested.principal(request)
    is_own = member is not None and (member.user, member.by_token) == principal.identity
    if not is_own and "administrator" not in user.tags:
        raise Unauthorized("User not authorised to access object")
    if member is None:
        raise NotFound(f"consumer group '{group}' of {kind} '{source}' in vhost '{host.name}' has no member '{name}'")
    reason = f"user '{principal}' has ended the member"
    broker = requested.broker(request)
    with broker.turns.turn():
        broker.consumer_groups.end_member(key, name, reason)
    await requested.forwarder(request).act("end_group_member", list(key), name, reason)
    return changing.deleted()


def shown(group: ConsumerGroupFigures) -> dict[str, Any]:
    """Return a group as JSON; times are in seconds."""
    units = [_unit(one) for one in group.units]
    return {
        "vhost": group.vhost,
        "name": group.name,
        "source": group.source,
        "source_kind": group.source_kind,
        "state": group.state,
        "rebalance_delay": group.rebalance_delay,
        "members": [_member(one) for one in group.members],
        "units": units,
        "unassigned": sum(one.owner is None for one in group.units),
        "draining": sum(one.draining_since is not None for one in group.units),
        "ready": sum(one.ready for one in group.units),
        "unacknowledged": sum(one.unacknowledged for one in group.units),
        "fenced": sum({one.queue: one.fenced for one in group.units}.values()),
        "refused": [{"queue": queue, "reason": reason} for queue, reason in group.refused.items()],
        "joins": group.joins,
        "leaves": group.leaves,
        "moves": group.moves,
        "handovers": group.handovers,
        "forced_handovers": group.forced_handovers,
        "late_acknowledgements": group.late_acknowledgements,
    }


def _member(member: GroupMemberFigures) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": member.name,
        "user": member.user,
        "weight": member.weight,
        "grace": member.grace,
        "seconds": round(member.joined_since, 3),
        "units": member.units,
        "state": "away" if member.peer is None else "serving" if member.units else "standby",
        "prefetch_count": member.prefetch,
        "messages_unacknowledged": member.unacknowledged,
        "messages_delivered": member.delivered,
    }
    if member.away_for is not None:
        found["grace_left"] = round(member.away_for, 3)
    if member.peer is not None:
        found["consumer_tag"] = member.tag
        found["channel_details"] = {
            "name": member.channel,
            "user": member.peer.user,
            "connection_name": member.peer.name,
            **provided_name(member.peer),
            "peer_host": member.peer.host,
            "peer_port": member.peer.port,
        }
    return found


def _unit(unit: GroupUnitFigures) -> dict[str, Any]:
    found: dict[str, Any] = {
        "queue": unit.queue,
        "slot": unit.slot,
        "owner": unit.owner,
        "seconds": round(unit.owned_since, 3) if unit.owner is not None else None,
        "ready": unit.ready,
        "unacknowledged": unit.unacknowledged,
        "fenced": unit.fenced,
        "oldest": round(unit.oldest, 3) if unit.oldest is not None else None,
        "unbound": unit.unbound,
        "offset": unit.offset,
        "owner_epoch": unit.epoch,
        "draining": None,
    }
    if unit.draining_since is not None and unit.holder is not None:
        connection, tag = unit.holder
        found["draining"] = {
            "connection_name": connection,
            "consumer_tag": tag,
            "messages": unit.held,
            "seconds": round(unit.draining_since, 3),
        }
    return found


ROUTES = [
    Endpoint("GET", "/api/consumer-groups", all_consumer_groups),
    Endpoint("GET", "/api/consumer-groups/{vhost}", consumer_groups_of_host),
    Endpoint("DELETE", "/api/consumer-groups/{vhost}/{kind}/{source}/{group}/members/{member}", end_member),
]
