"""Assignment of partitions to the members of a consumer group: a pure function, with equal results in every process.

A member's exact share is the number of units times its part of all weights. It gets that share rounded down or up, so
it is less than one unit from it. Among all such divisions one is taken that takes the fewest units from those who have
them; who is rounded up is decided by the larger fraction, then by the order of the members.

Where the units of a group are at several homes, each home divides its own, and all of them by one *sequence of seats*
(:func:`seats`), of which each takes its part: then the shares of all homes together are as even as those of one. A few
more units may move, as the sequence decides who is rounded up.
"""

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count, islice
from math import gcd
from typing import Generic, TypeVar

MAX_WEIGHT = 10_000
"""The highest weight of a member."""

SEATS_AT_ONCE = 256
"""Seats taken between two checks of the clock."""

M = TypeVar("M", bound=Hashable)
U = TypeVar("U", bound=Hashable)


def targets(weights: Mapping[M, int], held: Mapping[M, int], units: int) -> dict[M, int]:
    """Return the target number of partitions per member.

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
    """Yield members, without end: among the first n every member has its share of n, rounded down or up, for every n.

    The next is, among those who would not have more than their share rounded up, the one whose share will be that much
    first (Tijdeman, "The Chairman Assignment Problem", 1980).

    Args:
        weights: of each member; in order, the same wherever it is computed.
    """
    total, order = sum(weights.values()), list(weights.items())
    early = [(1, place, 0) for place in range(len(order))]  # (first seat, member, count)
    due: list[tuple[float, int, int]] = []  # by the seat at which the share grows
    for given in count(1):
        while early and early[0][0] <= given:
            _, place, had = heappop(early)
            heappush(due, ((had + 1) / order[place][1], place, had))
        _, place, had = heappop(due)
        member, weight = order[place]
        heappush(early, ((had + 1) * total // weight + 1, place, had + 1))
        yield member


def counting(
    weights: Mapping[M, int], first: int, units: int, more: Callable[[], bool]
) -> Generator[None, None, dict[M, int]]:
    """Count the target number of partitions of one home per member, a number of seats at a time; return the counts.

    Args:
        weights: of each member, in the order of their names.
        first: how many units the homes before this one have.
        units: how many this one has.
        more: whether there is time to go on.
    """
    if not weights:
        return {}
    divisor = gcd(*weights.values())
    period = sum(weights.values()) // divisor
    rounds, rest = divmod(units, period)  # all have their exact share of each period
    wanted = {member: weight // divisor * rounds for member, weight in weights.items()}
    first %= period
    if period == len(weights):  # the weights are equal
        members = list(weights)
        for seat in range(first, first + rest):
            wanted[members[seat % period]] += 1
        return wanted
    for seat, member in enumerate(islice(seats(weights), first + rest)):
        if seat >= first:
            wanted[member] += 1
        if seat % SEATS_AT_ONCE == SEATS_AT_ONCE - 1 and not more():
            yield
    return wanted


class Shares(Generic[M]):
    """Target number of partitions per member, while neither members nor partitions change."""

    def __init__(self) -> None:
        self._of: object = None  # inputs of the assignment
        self._counting: Generator[None, None, dict[M, int]] | None = None
        self._counted: dict[M, int] = {}

    def of(
        self,
        weights: Mapping[M, int],
        owned: Mapping[M, Collection[object]],
        units: int,
        first: int | None,
        more: Callable[[], bool] = lambda: True,
    ) -> dict[M, int] | None:
        """Return the target number of partitions per member; None if time runs out first.

        Args:
            weights: of each member; in order, the first to join first.
            owned: current partitions of each member.
            first: how many units the homes before this one have; None where the units of all are here.
            more: whether there is time to go on.
        """
        if first is None:
            return targets(weights, {member: len(has) for member, has in owned.items()}, units)
        ordered = dict(sorted(weights.items()))  # all homes go by one order
        if self._of != (subject := (ordered, first, units)):
            self._of, self._counting = subject, counting(ordered, first, units, more)
        if self._counting is not None:
            try:
                next(self._counting)
            except StopIteration as end:
                self._counting, self._counted = None, end.value
        return dict(self._counted) if self._counting is None else None


def divide(
    wanted: Mapping[M, int],
    owned: Mapping[M, Collection[U]],
    unowned: Iterable[U],
    holders: Mapping[U, M],
    *,
    moving: bool,
) -> Iterator[tuple[U, M]]:
    """Yield partitions for members below target, in single steps.

    Whoever stops in between and asks again with what is so by then comes to the same shares.

    Args:
        wanted: how many each member is to have.
        owned: partitions of each member, in the order of assignment.
        unowned: units that no member has, in order.
        holders: who still holds messages of a unit that is on its way to another: it gets the unit back, if any moves.
        moving: whether members give away what they have beyond that.
    """
    left = list(unowned)
    lacking: dict[M, int] = {}
    for member, share in wanted.items():
        missing = share - len(owned.get(member, ()))
        if missing > 0:
            lacking[member] = missing
        elif missing < 0 and moving:
            left += list(owned[member])[missing:]
    if holders:
        given = set()
        for unit in left:
            holder = holders.get(unit)
            if holder is not None and lacking.get(holder):
                lacking[holder] -= 1
                given.add(unit)
                yield unit, holder
        left = [unit for unit in left if unit not in given]
    takers = (member for member, missing in lacking.items() for _ in range(missing))
    yield from zip(left, takers, strict=False)
