"""The order in which changes of definitions are decided, as the topology knows it.

A broker of one process decides changes in the order in which it is asked (:class:`LocalLog`). Workers and nodes share a
log, and each process decides its entries in the same order: proposing a change sends it to the log, whose entries come
back by :meth:`Topology.decide`. An entry is the JSON form of a change (:mod:`~jumpmq.topology.json_form`) with its
asker; the outcome of a :class:`~jumpmq.topology.proposals.Pending` is that of the entry, once it is applied here.
"""

from collections.abc import Callable
from typing import Protocol

from jumpmq.topology.changes import Change
from jumpmq.topology.proposals import Pending

ANYWHERE = 0
"""In the definition of a queue that is to be declared: its home is chosen by the log, with the fewest queues."""


class CommonLog(Protocol):
    """The log.

    Attributes:
        is_shared: whether other processes decide the same changes.
    """

    is_shared: bool

    def propose(self, pending: Pending) -> None:
        """A change is asked for here."""

    def placed(self, change: Change) -> Change:
        """A change whose turn has come, with the home of a queue that may be :data:`ANYWHERE`."""

    def note(self, pending: Pending) -> None:
        """A change has taken effect here, and got its number; its records are not on disk yet."""


class LocalLog:
    """The order of one process: first come, first decided.

    Args:
        decide: decides a change when those before it are: :meth:`Topology.decide`.
    """

    is_shared = False

    def __init__(self, decide: Callable[[Pending], None]) -> None:
        self.propose = decide

    def placed(self, change: Change) -> Change:
        """See :meth:`CommonLog.placed`: queues are declared with the home of this process."""
        return change

    def note(self, pending: Pending) -> None:
        """See :meth:`CommonLog.note`: its records are all that is kept of a change."""
