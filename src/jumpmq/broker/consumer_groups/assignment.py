"""Which member of a consumer group gets which units: a pure function, the same wherever it is computed.

A member's exact share is the number of units times its part of all weights. It gets that share rounded down or up, so
it is less than one unit from it. Among all such divisions one is taken that takes the fewest units from those who have
them; who is rounded up is decided by the larger fraction, then by the order of the members.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

MAX_WEIGHT = 10_000
"""The highest weight of a member."""

M = TypeVar("M", bound=Hashable)
U = TypeVar("U", bound=Hashable)


def targets(weights: Mapping[M, int], held: Mapping[M, int], units: int) -> dict[M, int]:
    """How many units each member is to have.

    Args:
        weights: of each member, 1 to ``MAX_WEIGHT``; in order, the first to join first.
        held: how many units each has now; those it lacks have none.
        units: how many there are to share.
    """
    if not weights:
        return {}
    total = sum(weights.values())
    share = {member: units * weight // total for member, weight in weights.items()}
    rest = units - sum(share.values())
    fractions = {member: units * weight % total for member, weight in weights.items()}
    # One who has more than its share rounded down keeps a unit that would move else.
    first = sorted(
        (member for member in weights if fractions[member]),
        key=lambda member: (held.get(member, 0) <= share[member], -fractions[member]),
    )
    for member in first[:rest]:
        share[member] += 1
    return share


def assign(
    weights: Mapping[M, int], units: Sequence[U], owners: Mapping[U, M], holders: Mapping[U, M] | None = None
) -> dict[U, M]:
    """The member of each unit, with shares by weight and the fewest moves.

    Args:
        weights: of each member; in order, the first to join first.
        units: what is shared, in order.
        owners: who has which unit now; members that are gone count as none.
        holders: who still holds messages of a unit that is on its way to another: it gets the unit back, if any moves.

    Returns:
        A member for each unit; nothing where there are no members.
    """
    had = {unit: owners[unit] for unit in units if owners.get(unit) in weights}
    wanted = targets(weights, _counted(had), len(units))
    found: dict[U, M] = {}
    for unit, member in had.items():
        if wanted[member]:
            wanted[member] -= 1
            found[unit] = member
    return _share_out(units, found, wanted, holders or {})


def assign_unowned(
    weights: Mapping[M, int], units: Sequence[U], owners: Mapping[U, M], holders: Mapping[U, M] | None = None
) -> dict[U, M]:
    """As :func:`assign`, but what a member has stays where it is: only what no member has is given."""
    found = {unit: owners[unit] for unit in units if owners.get(unit) in weights}
    counts = _counted(found)
    wanted = {member: max(0, count - counts.get(member, 0)) for member, count in
              targets(weights, counts, len(units)).items()}  # fmt: skip
    return _share_out(units, found, wanted, holders or {})


def _share_out(units: Sequence[U], found: dict[U, M], wanted: dict[M, int], holders: Mapping[U, M]) -> dict[U, M]:
    """Give units without a member to those who want more, the first to the first."""
    left = [unit for unit in units if unit not in found]
    for unit in left:
        member = holders.get(unit)
        if member is not None and wanted.get(member):
            wanted[member] -= 1
            found[unit] = member
    takers = (member for member, count in wanted.items() for _ in range(count))
    found.update(zip((unit for unit in left if unit not in found), takers, strict=False))
    return {unit: found[unit] for unit in units if unit in found}


def _counted(owners: Mapping[U, M]) -> dict[M, int]:
    counts: dict[M, int] = {}
    for member in owners.values():
        counts[member] = counts.get(member, 0) + 1
    return counts
