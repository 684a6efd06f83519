"""Owner epochs: the numbers in the header ``x-owner-epoch``, by which an application detects a late owner of a key.

A queue, or slot, with one consumer at a time gets a new number whenever another consumer becomes its owner. An
application stores the highest number with its data, and refuses writes with a lower one. A consumer that was suspended,
has lost its queue, and wakes up has a lower number (:mod:`jumpmq.ordering`).

**A number is a hybrid clock's** (Kulkarni et al., *Logical Physical Clocks*, 2014): microseconds since 1970 by the
system's clock, or the last number plus one, whichever is higher. One clock serves all queues of a home. Therefore:

- The numbers of a home never repeat and never decrease while the process runs, whatever the system's clock does.
- Numbers of unrelated queues are ordered, too, up to the difference of their clocks: a queue deleted and declared again
  at another home, a data directory that was lost or restored from a backup. With a counter that restarts at 0,
  applications would refuse every write.
- The deletion and re-creation of a group or queue needs no record that survives it.
- Queries that read by reservations (:mod:`jumpmq.broker.bulk.reader_groups`) and consumers of the same queues have
  numbers in one order.
- The numbers stay below 2^53 until the year 2255, so that JSON and JavaScript represent them exactly.

**Restarts and kills**: the journal has a ceiling, and a run of the process assigns only numbers below it. A number at
or above the ceiling first raises the ceiling by :data:`AHEAD`; deliveries with the number wait for that commit
(``defer_answers``). The next run begins at the ceiling, and so never assigns a number that a client has seen. A ceiling
suffices for seconds of handovers, so that few of them write anything. The copies of a home have its ceiling in the log.

**Between homes** the exact order is carried along when keys pass from one home to another, as by Lamport's clocks: with
a queue that moves, once its consumers at the old home are cancelled; and with the report that no message is left before
a marker (:mod:`jumpmq.queues.fences`). The receiver's clock is then at least as high (:meth:`OwnerEpochs.observe`), and
the queue that gets the keys gives its owners new numbers (:meth:`~jumpmq.queues.base.Queue.renew_owners`). The same
holds for a queue that gets keys within a home. A number may therefore increase while a consumer keeps its queue.
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
    """Do nothing: without a journal, only the system's clock orders the numbers of two runs."""


class OwnerEpochs:
    """Assigns owner epochs.

    Args:
        keep: records the ceiling, in the commit of the current turn.
        now: seconds since 1970.

    Attributes:
        last: highest number assigned here, or received from another home with keys.
    """

    def __init__(self, keep: Callable[[int], None] = _not_kept, now: Callable[[], float] = time.time) -> None:
        self.last = 0
        self._keep = keep
        self._now = now
        self._ceiling = 0  # as last recorded: the next run begins here

    def restore(self, ceiling: int) -> None:
        """Begin at the ceiling of the previous run."""
        self.last = self._ceiling = max(self._ceiling, ceiling)

    def draw(self) -> int:
        """Draw a number above all earlier numbers. Deliveries with the number wait for the commit of the current
        event-loop iteration.
        """
        self._reach(max(self.last + 1, int(self._now() * 1e6)))
        return self.last

    def observe(self, number: int) -> None:
        """Raise the numbers above another home's number, for keys that were passed on to this home."""
        if self.last < number <= LARGEST - AHEAD:
            self._reach(number)

    def _reach(self, number: int) -> None:
        self.last = number
        # Recorded ahead, so that most numbers need no record.
        if number >= self._ceiling:
            self._ceiling = number + AHEAD
            self._keep(self._ceiling)
