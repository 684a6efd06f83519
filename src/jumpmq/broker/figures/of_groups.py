"""Metrics of a consumer group, read from the live objects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict

from jumpmq.broker.channel.group_consumer import GroupConsumer
from jumpmq.broker.consumer_groups.group import GroupMember, Partition, PartitionPlace
from jumpmq.broker.consumer_groups.live import GroupPrincipal, LiveGroup
from jumpmq.broker.figures.of_connections import peer_of
from jumpmq.broker.figures.values import ConsumerGroupFigures, GroupMemberFigures, GroupUnitFigures, UnitSupply
from jumpmq.queues import clock
from jumpmq.queues.slot_states import SlotFigures


def group_figures(live: LiveGroup) -> ConsumerGroupFigures:
    """Return the metrics of a consumer group, with members and units."""
    group, now = live.group, asyncio.get_running_loop().time()
    slots = {
        (queue.id, one.slot): one
        for queue in live.queues.values()
        if queue.slots is not None
        for one in queue.slots.states.figures()
    }
    return ConsumerGroupFigures(
        vhost=live.vhost,
        name=live.name,
        source_kind=live.kind,
        source=live.source,
        state=group.state,
        rebalance_delay=group.rebalance_delay,
        members=tuple(_member_figures(one, now) for one in group.members.values()),
        units=tuple(_unit_figures(live, unit, place, slots, now) for unit, place in group.places.items()),
        refused=dict(live.refused),
        **asdict(group.counts),
    )


def _member_figures(member: GroupMember, now: float) -> GroupMemberFigures:
    session = member.session if isinstance(member.session, GroupConsumer) else None
    user, by_token = member.reader.user.identity if isinstance(member.reader, GroupPrincipal) else ("", False)
    return GroupMemberFigures(
        name=member.name,
        user=user,
        by_token=by_token,
        weight=member.weight,
        grace=member.grace,
        joined_since=now - member.joined_at,
        away_for=max(0.0, member.away_until - now) if session is None else None,
        units=member.units,
        prefetch=session.prefetch if session is not None else 0,
        unacknowledged=session.unacknowledged if session is not None else 0,
        delivered=session.delivered if session is not None else 0,
        tag=session.tag if session is not None else None,
        channel=session.channel.name if session is not None else None,
        peer=peer_of(session.channel.connection) if session is not None else None,
    )


def _unit_figures(
    live: LiveGroup, unit: Partition, place: PartitionPlace, slots: Mapping[tuple[int, int], SlotFigures], now: float
) -> GroupUnitFigures:
    queue, holder = live.queues[unit.queue_id], place.holder
    position = queue.offsets.get(live.name) if queue.offsets is not None else None
    if position is not None:
        ready, held, oldest = position.ready(queue.next_seq), position.unacknowledged, None
    elif unit.slot is None:
        front = queue.front()
        ready, held = queue.ready_count, queue.unacknowledged_count
        oldest = front.published_at if front is not None else None
    else:
        figures = slots.get((unit.queue_id, unit.slot))
        ready, held, oldest = (figures.ready, figures.unacknowledged, figures.oldest) if figures else (0, 0, None)
    return GroupUnitFigures(
        queue=unit.queue,
        slot=unit.slot,
        owner=place.owner.name if place.owner is not None else None,
        owned_since=now - place.owned_since,
        holder=(holder.connection_name, holder.tag) if isinstance(holder, GroupConsumer) else None,
        held=holder.held(unit) if holder is not None else 0,
        draining_since=now - place.draining_since if place.draining_since is not None else None,
        ready=ready,
        unacknowledged=held,
        fenced=queue.fenced_count,
        oldest=clock.now() - oldest if oldest is not None else None,
        unbound=unit.queue in live.unbound,
        offset=position.offset if position is not None else None,
        epoch=max(place.epoch, queue.owner_floor) if place.epoch else None,
    )


def unit_supply(live: LiveGroup, unit: Partition) -> UnitSupply:
    """Return the state of a consumer group's deliveries from a queue or slot."""
    group, now = live.group, asyncio.get_running_loop().time()
    found = UnitSupply(live.name, gathers=group.state == "gathering")
    place = group.places.get(unit)
    if place is None:
        return found
    if place.draining_since is not None:
        found, holder = found._replace(drains=True), place.holder
        if isinstance(holder, GroupConsumer):
            seconds = now - place.draining_since
            found = found._replace(drained=(holder.tag, holder.connection_name, holder.held(unit), seconds))
    if place.owner is None:
        return found
    found, session = found._replace(owner=place.owner.name), place.owner.session
    if not isinstance(session, GroupConsumer):
        return found._replace(away_for=max(0.0, place.owner.away_until - now))
    return found._replace(
        connection=session.connection_name,
        has_room=session.capacity() > 0,
        unacknowledged=session.unacknowledged,
        prefetch=session.prefetch,
    )
