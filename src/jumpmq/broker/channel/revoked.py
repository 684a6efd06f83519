"""Delivery tags revoked from a client that has not been notified yet."""

from bisect import bisect_right

from jumpmq.broker.consumer_groups.group import GroupCounts


class Revoked:
    """Tags in runs: a million consecutive tags take no memory."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: list[tuple[int, int, GroupCounts]] = []

    def add(self, tags: list[int], counts: GroupCounts) -> None:
        """Add revoked tags.

        Args:
            tags: in ascending order.
            counts: statistics of the consumer group that has revoked the deliveries.
        """
        runs: list[tuple[int, int, GroupCounts]] = []
        for tag in tags:
            if runs and runs[-1][1] == tag - 1:
                runs[-1] = runs[-1][0], tag, counts
            else:
                runs.append((tag, tag, counts))
        self._runs = sorted([*self._runs, *runs], key=lambda run: run[0])
        self._firsts = [run[0] for run in self._runs]

    def settled(self, tag: int) -> bool:
        """Return True for a revoked tag, and count its settlement by the client."""
        place = bisect_right(self._firsts, tag) - 1
        if place < 0 or self._runs[place][1] < tag:
            return False
        self._runs[place][2].late_acknowledgements += 1
        return True
