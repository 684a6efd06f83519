"""Metrics of consumer groups and their members. JumpMQ's own."""

from __future__ import annotations

from starlette.requests import Request

from jumpmq.broker.figures.values import ConsumerGroupFigures, GroupMemberFigures, GroupOffsetFigures
from jumpmq.http.plumbing import requested
from jumpmq.http.resources.object_families import Family, Figure, lines
from jumpmq.http.resources.ring_families import PREFIX


def _of_group(group: ConsumerGroupFigures) -> tuple[float | None, ...]:
    drains = [one.draining_since for one in group.units if one.draining_since is not None]
    return (
        sum(one.peer is not None for one in group.members),
        sum(one.peer is not None and not one.units for one in group.members),
        len(group.units),
        sum(one.owner is None for one in group.units),
        len(drains),
        round(max(drains, default=0.0), 3),
        sum(one.ready for one in group.units),
        sum(one.unacknowledged for one in group.units),
        len(group.refused),
        *(group.joins, group.leaves, group.moves, group.handovers),
        *(group.forced_handovers, group.late_acknowledgements),
    )


def _of_member(member: tuple[ConsumerGroupFigures, GroupMemberFigures]) -> tuple[float | None, ...]:
    figures = member[1]
    return figures.units, figures.weight, figures.unacknowledged


def _of_offset(found: GroupOffsetFigures) -> tuple[float | None, ...]:
    return found.offset, found.ready + found.unacknowledged, found.skipped


GROUPS = Family(
    "consumer_group",
    ("vhost", "source", "group"),
    lambda group: (group.vhost, group.source, group.name),
    (
        Figure("group_members", "Members of a consumer group that have a consumer"),
        Figure("group_members_standby", "Members without a unit"),
        Figure("group_units", "Queues, or slots of queues, that the consumer group shares"),
        Figure("group_units_unassigned", "Units without a member"),
        Figure("group_units_draining", "Units with messages still held by the last owner"),
        Figure("group_longest_drain_seconds", "Longest time since deliveries to the last owner of a unit were stopped"),
        Figure("group_messages_ready", "Messages of the units that wait for a member"),
        Figure("group_messages_unacknowledged", "Messages of the units that members have not settled"),
        Figure("group_queues_refused", "Queues left out because consumers outside the group use them"),
        Figure("group_joins", "Members that joined", counted=True),
        Figure("group_leaves", "Members that left", counted=True),
        Figure("group_moves", "Units moved from a member to another member", counted=True),
        Figure("group_handovers", "Completed handovers", counted=True),
        Figure("group_forced_handovers", "Consumers cancelled after the handover timeout", counted=True),
        Figure("group_late_acknowledgements", "Settlements by cancelled consumers, ignored", counted=True),
    ),
    lambda request: _of_group,
)

MEMBERS = Family(
    "consumer_group_member",
    ("vhost", "source", "group", "member"),
    lambda member: (member[0].vhost, member[0].source, member[0].name, member[1].name),
    (
        Figure("group_member_units", "Units of a member of a consumer group"),
        Figure("group_member_weight", "Weight of a member"),
        Figure("group_member_messages_unacknowledged", "Messages that a member has not settled"),
    ),
    lambda request: _of_member,
)

OFFSETS = Family(
    "group_offset",
    ("vhost", "queue", "group"),
    lambda found: (found.vhost, found.queue, found.group),
    (
        Figure("group_stream_offset", "Lowest offset of a stream that a consumer group has not settled"),
        Figure("group_stream_lag_messages", "Unsettled messages of the stream"),
        Figure(
            "group_stream_skipped_messages",
            "Messages removed by retention before the group had read them",
            counted=True,
        ),
    ),
    lambda request: _of_offset,
)


async def consumer_groups(request: Request) -> dict[str, list[str]]:
    """Return the metrics of all consumer groups and of their offsets in streams: lines of text by metric."""
    broker = requested.broker(request)
    groups = await requested.node_figures(request).consumer_groups(broker.topology.vhosts)
    members = [(group, member) for group in groups for member in group.members]
    offsets = await requested.node_figures(request).group_offsets(broker.topology.vhosts)
    return (
        await lines(request, GROUPS, PREFIX, groups)
        | await lines(request, MEMBERS, PREFIX, members)
        | await lines(request, OFFSETS, PREFIX, offsets)
    )
