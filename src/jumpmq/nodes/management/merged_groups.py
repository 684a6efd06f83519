"""Consumer group of an exchange, merged from several homes with shares of the queues."""

from collections.abc import Iterable

from jumpmq.broker.figures.values import ConsumerGroupFigures, GroupMemberFigures

STATES = ["gathering", "draining", "rebalancing", "stable"]
"""Group states by precedence: the first state found at any home is the state of the whole group."""


def merged_groups(parts: Iterable[ConsumerGroupFigures]) -> list[ConsumerGroupFigures]:
    """Return groups with the members and partitions of all homes."""
    found: dict[tuple[str, str, str, str], list[ConsumerGroupFigures]] = {}
    for part in parts:
        found.setdefault((part.vhost, part.source_kind, part.source, part.name), []).append(part)
    return [same[0] if len(same) == 1 else _merged(same) for same in found.values()]


def _merged(parts: list[ConsumerGroupFigures]) -> ConsumerGroupFigures:
    members: dict[str, list[GroupMemberFigures]] = {}
    for part in parts:
        for member in part.members:
            members.setdefault(member.name, []).append(member)
    return parts[0]._replace(
        state=min((part.state for part in parts if part.units), key=STATES.index, default=parts[0].state),
        rebalance_delay=max(part.rebalance_delay for part in parts),
        members=tuple(_merged_member(same) for same in members.values()),
        units=tuple(unit for part in parts for unit in part.units),
        refused={queue: reason for part in parts for queue, reason in part.refused.items()},
        joins=max(part.joins for part in parts),
        leaves=max(part.leaves for part in parts),
        moves=sum(part.moves for part in parts),
        handovers=sum(part.handovers for part in parts),
        forced_handovers=sum(part.forced_handovers for part in parts),
        late_acknowledgements=sum(part.late_acknowledgements for part in parts),
    )


def _merged_member(parts: list[GroupMemberFigures]) -> GroupMemberFigures:
    """Return a member merged from all homes; away only without a consumer at any home."""
    shown = next((part for part in parts if part.peer is not None), parts[0])
    return shown._replace(
        joined_since=max(part.joined_since for part in parts),
        units=sum(part.units for part in parts),
        unacknowledged=sum(part.unacknowledged for part in parts),
        delivered=sum(part.delivered for part in parts),
    )
