"""Epochs of owners: the numbers in the header ``x-owner-epoch``, which tell a late owner of a key from the present one.

A queue (or slot) that one consumer at a time has is given a number whenever another consumer gets it. An application
that keeps the highest number with what it writes refuses the writes of a consumer that was stopped, has lost its queue,
and wakes: its number is lower (:mod:`jumpmq.ordering`).

**A number is a hybrid clock's** (Kulkarni et al., *Logical Physical Clocks*, 2014): microseconds since 1970 by the
system's clock, or the last number plus one, whichever is higher. One clock serves all queues of a home. So

- numbers of a home never repeat and never fall while the process runs, whatever the system's clock does;
- they are ordered, give or take the clocks' difference, also between what knows nothing of each other: a queue that was
  deleted and declared at another home, a data directory that was lost or restored from a backup. A counter that
  starts at 0 there would have applications refuse every write;
- deletion and re-creation of a group or queue need no record that outlives them;
- queries that read by reservations (:mod:`jumpmq.broker.bulk.reader_groups`) and consumers of the same queues have
  numbers of one order;
- they stay below 2^53 until the year 2255, so that JSON and JavaScript hold them exactly.

**Through restarts and kills**: the journal has a ceiling, and a run gives only numbers below it. A number at or above
the ceiling first raises it by :data:`AHEAD`; the deliveries that carry the number wait for that commit
(``defer_answers``), so that no client has seen a number which the next run, beginning at the ceiling, could give again.
A ceiling lasts for seconds of handovers, so that few of them write anything. A home that is copied takes its ceiling
along.

**Between homes** the exact order is carried where a key's messages pass from one to another, as Lamport's clocks do:
with a queue that moves, once its consumers at the old home are cancelled; and with the news that nothing is left at a
mark (:mod:`jumpmq.queues.fences`). The receiver's clock is then at least there (:meth:`OwnerEpochs.observe`), and the
queue that gets the keys gives its owners new numbers (:meth:`~jumpmq.queues.base.Queue.renew_owners`). So does a queue
that gets keys within a home. A number may thus also grow while a consumer keeps its queue.
"""

import time
from collections.abc import Callable

OWNER_EPOCH = "x-owner-epoch"
"""Header of deliveries from a queue or slot owned by one consumer at a time."""

AHEAD = 10_000_000
"""Distance by which the ceiling is raised above the number in need: 10 s, in microseconds. After a kill, numbers may be
ahead of the clock by this distance."""

LARGEST = (1 << 63) - 1


def _not_kept(ceiling: int) -> None:
    """There is no journal: the system's clock alone orders the numbers of two runs."""


class OwnerEpochs:
    """Gives epochs.

    Args:
        keep: records the ceiling, in the commit of this turn.
        now: seconds since 1970.

    Attributes:
        last: the highest number that was given here, or at another home whose keys came here.
    """

    def __init__(self, keep: Callable[[int], None] = _not_kept, now: Callable[[], float] = time.time) -> None:
        self.last = 0
        self._keep = keep
        self._now = now
        self._ceiling = 0  # as recorded last: the next run begins here

    def restore(self, ceiling: int) -> None:
        """Begin at the ceiling of the run before."""
        self.last = self._ceiling = max(self._ceiling, ceiling)

    def draw(self) -> int:
        """Draw a number above all earlier numbers. Deliveries with the number wait for the commit of the current
        event-loop iteration.
        """
        self._reach(max(self.last + 1, int(self._now() * 1e6)))
        return self.last

    def observe(self, number: int) -> None:
        """Raise the numbers above a remote home's number, for keys that are here from now on."""
        if self.last < number <= LARGEST - AHEAD:
            self._reach(number)

    def _reach(self, number: int) -> None:
        self.last = number
        if number >= self._ceiling:
            self._ceiling = number + AHEAD
            self._keep(self._ceiling)
