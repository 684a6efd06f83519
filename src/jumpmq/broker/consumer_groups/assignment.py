"""Which member of a consumer group gets which units: a pure function, the same wherever it is computed.

A member's exact share is the number of units times its part of all weights. It gets that share rounded down or up, so
it is less than one unit from it. Among all such divisions one is taken that takes the fewest units from those who have
them; who is rounded up is decided by the larger fraction, then by the order of the members.

Where the units of a group are at several homes, each home divides its own, and all of them by one *sequence of seats*
(:func:`seats`), of which each takes its part: then the shares of all homes together are as even as those of one. A few
more units may move, as the sequence decides who is rounded up.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from math import gcd
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


def seats(weights: Mapping[M, int]) -> Iterator[M]:
    """Members, without end: of the first n each has its share of n, rounded down or up, for every n.

    The next is, among those who would not have more than their share rounded up, the one whose share will be that much
    first (Tijdeman, "The Chairman Assignment Problem", 1980).

    Args:
        weights: of each member; in order, the same wherever it is computed.
    """
    total, order = sum(weights.values()), list(weights.items())
    early = [(1, place, 0) for place in range(len(order))]  # from which seat on, of whom, how many it has
    due: list[tuple[float, int, int]] = []  # by when its share is one more
    for given in count(1):
        while early and early[0][0] <= given:
            _, place, had = heappop(early)
            heappush(due, ((had + 1) / order[place][1], place, had))
        _, place, had = heappop(due)
        member, weight = order[place]
        heappush(early, ((had + 1) * total // weight + 1, place, had + 1))
        yield member


def targets_at(weights: Mapping[M, int], first: int, units: int) -> dict[M, int]:
    """How many of the units of one home each member is to have.

    Args:
        weights: of each member, in the order of their names.
        first: how many units the homes before this one have.
        units: how many this one has.
    """
    if not weights:
        return {}
    wanted = dict.fromkeys(weights, 0)
    if len(set(weights.values())) == 1:
        places = [one % len(weights) for one in range(first, first + units)]
        counted: Counter[M] = Counter(map(list(weights).__getitem__, places))
    else:
        period = sum(weights.values()) // gcd(*weights.values())
        counted = Counter(islice(seats(weights), first % period, first % period + units))
    return wanted | counted


def assign(
    weights: Mapping[M, int],
    units: Sequence[U],
    owners: Mapping[U, M],
    holders: Mapping[U, M] | None = None,
    first: int | None = None,
) -> dict[U, M]:
    """The member of each unit, with shares by weight and the fewest moves.

    Args:
        weights: of each member; in order, the first to join first.
        units: what is shared, in order.
        owners: who has which unit now; members that are gone count as none.
        holders: who still holds messages of a unit that is on its way to another: it gets the unit back, if any moves.
        first: how many units the homes before this one have; None where the units of all are here.

    Returns:
        A member for each unit; nothing where there are no members.
    """
    had = {unit: owners[unit] for unit in units if owners.get(unit) in weights}
    wanted = _targets(weights, _counted(had), len(units), first)
    found: dict[U, M] = {}
    for unit, member in had.items():
        if wanted[member]:
            wanted[member] -= 1
            found[unit] = member
    return _share_out(units, found, wanted, holders or {})


def assign_unowned(
    weights: Mapping[M, int],
    units: Sequence[U],
    owners: Mapping[U, M],
    holders: Mapping[U, M] | None = None,
    first: int | None = None,
) -> dict[U, M]:
    """As :func:`assign`, but what a member has stays where it is: only what no member has is given."""
    found = {unit: owners[unit] for unit in units if owners.get(unit) in weights}
    counts = _counted(found)
    wanted = {member: max(0, count - counts.get(member, 0)) for member, count in
              _targets(weights, counts, len(units), first).items()}  # fmt: skip
    return _share_out(units, found, wanted, holders or {})


def _targets(weights: Mapping[M, int], held: Mapping[M, int], units: int, first: int | None) -> dict[M, int]:
    return targets(weights, held, units) if first is None else targets_at(weights, first, units)


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
