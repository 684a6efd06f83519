"""Segments of a log required by peers, and the lag of followers."""

from collections.abc import Mapping

from jumpmq.replication.configuration import ReplicaId, node_of
from jumpmq.replication.copies import Copy
from jumpmq.replication.leader import Leader
from jumpmq.replication.lineage import Lineage, offset_at, segment_at
from jumpmq.replication.replica import Replica

MOST_KEPT = 1 << 30
"""Maximum octets of consumed segments kept for members that lag or are down."""


def needed_by_members(leader: Leader, copy: Copy) -> int:
    """Return the first segment of a leader's log that members may need, without a limit of size."""
    known = {*leader.waits(), *leader.following}
    away = {*leader.known.members} - {node_of(one) for one in {*known, copy.me}}
    return 0 if away else min([segment_at(leader.stored.get(one, 0)) for one in known], default=copy.removable)


def needed_by_follower(roles: Replica) -> int:
    """Return the first segment that a follower keeps. Members that are down may need it if the follower leads later."""
    known, copy = roles.known, roles.copy
    # without the epoch's configuration, members that are down are unknown
    if known is None or known.epoch < copy.promised:
        return affordable(copy, 0)
    away = {*known.members} - {node_of(one) for one in known.set}
    return affordable(copy, 0) if away else copy.removable


def affordable(copy: Copy, first: int) -> int:
    """Return the first segment of a log to keep, given the first segment that members need."""
    octets = 0
    for stretch in reversed(copy.lineage):
        octets += stretch.end
        if octets > MOST_KEPT:
            return max(first, min(stretch.segment + 1, copy.removable))
    return min(first, copy.removable)


def lags(leader: Leader | None) -> Mapping[ReplicaId, int]:
    """Return the lag of each follower in octets; empty without a leader."""
    if leader is None:
        return {}
    stored = {peer: leader.stored.get(peer, 0) for peer in leader.following}
    return {peer: octets_behind(leader.copy.lineage, position) for peer, position in stored.items()}


def octets_behind(lineage: Lineage, position: int) -> int:
    """Return the octets of a log behind a position."""
    segment, offset = segment_at(position), offset_at(position)
    return sum(
        stretch.end - (min(offset, stretch.end) if stretch.segment == segment else 0)
        for stretch in lineage
        if stretch.segment >= segment
    )
