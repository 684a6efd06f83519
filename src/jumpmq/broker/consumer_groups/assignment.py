"""Assignment of partitions to the members of a consumer group: a pure function, with equal results in every process.

A member's exact share is the number of partitions times its part of all weights. The member gets this share rounded
down or up. Of all such divisions, the group chooses one that takes the fewest partitions from their owners. Shares are
rounded up for the members with the largest fractions, among equal fractions in the order of the members.

If the partitions of a group are at several homes, each home divides its own. All homes use one *sequence of seats*
(:func:`seats`), and each home takes its section of the sequence: then the shares of all homes together are as even as
those of a single home. This may move a few more partitions than the minimum, because the sequence, not the ownership,
decides which shares are rounded up.
"""

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count, islice
from math import gcd
from typing import Generic, TypeVar

MAX_WEIGHT = 10_000
"""The highest weight of a member."""

SEATS_AT_ONCE = 256
"""Number of seats between two checks of the clock."""

M = TypeVar("M", bound=Hashable)
U = TypeVar("U", bound=Hashable)


def targets(weights: Mapping[M, int], held: Mapping[M, int], units: int) -> dict[M, int]:
    """Return the target number of partitions per member.

    Args:
        weights: weight of each member, 1 to ``MAX_WEIGHT``; in the order of joining.
        held: number of partitions of each member now; members not in ``held`` have none.
        units: number of partitions to share.
    """
    if not weights:
        return {}
    total = sum(weights.values())
    share = {member: units * weight // total for member, weight in weights.items()}
    rest = units - sum(share.values())
    fractions = {member: units * weight % total for member, weight in weights.items()}
    # Members with more than their share rounded down come first, so that they keep a partition.
    first = sorted(
        (member for member in weights if fractions[member]),
        key=lambda member: (held.get(member, 0) <= share[member], -fractions[member]),
    )
    for member in first[:rest]:
        share[member] += 1
    return share


def seats(weights: Mapping[M, int]) -> Iterator[M]:
    """Yield an infinite sequence of members. In every prefix of n seats, each member has its share of n, rounded down
    or up.

    A member is a candidate for seat n + 1 if it would not exceed its share of n + 1, rounded up. The seat goes to the
    candidate whose share first grows to the next whole number (Tijdeman, "The Chairman Assignment Problem", 1980).

    Args:
        weights: weight of each member, in an order that is the same in all processes.
    """
    total, order = sum(weights.values()), list(weights.items())
    early = [(1, place, 0) for place in range(len(order))]  # (first seat, member, count)
    due: list[tuple[float, int, int]] = []  # ordered by the seat at which the share grows
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
        weights: weight of each member, in the order of names.
        first: number of partitions at homes with a lower number.
        units: number of partitions at this home.
        more: returns True while time is left.
    """
    if not weights:
        return {}
    divisor = gcd(*weights.values())
    period = sum(weights.values()) // divisor
    rounds, rest = divmod(units, period)  # in each period all members get their exact share
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
            weights: weight of each member, in the order of joining.
            owned: current partitions of each member.
            first: number of partitions at homes with a lower number; None if all partitions are at this home.
            more: returns True while time is left.
        """
        if first is None:
            return targets(weights, {member: len(has) for member, has in owned.items()}, units)
        ordered = dict(sorted(weights.items()))  # the same order at all homes
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

    The division may be interrupted: a second call, with the ownership reached by then, comes to the same shares.

    Args:
        wanted: target number of partitions per member.
        owned: partitions of each member, in the order of assignment.
        unowned: partitions without an owner, in order.
        holders: by partition, the member that still holds messages of the partition: preferred as the new owner, to
            end the handover.
        moving: True to take partitions from members above target.
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
