"""The order in which changes of definitions are decided, as seen by the topology.

A broker of one process decides changes in the order in which it is asked (:class:`LocalLog`). Workers and nodes share a
log, and each process decides its entries in the same order: proposing a change sends it to the log, whose entries come
back by :meth:`Topology.decide`. An entry is the JSON form of a change (:mod:`~jumpmq.topology.json_form`) with its
asker; the outcome of a :class:`~jumpmq.topology.proposals.Pending` is that of the entry, once it is applied here.
"""

from collections.abc import Callable
from typing import Protocol

from jumpmq.topology.changes.base import Change
from jumpmq.topology.proposals import Pending

ANYWHERE = 0
"""Home in a new queue's definition that the log replaces by the home with the fewest queues."""


class CommonLog(Protocol):
    """The log.

    Attributes:
        is_shared: whether other processes decide the same changes.
        has_copies: whether homes may have copies, which queues can ask for.
    """

    is_shared: bool
    has_copies: bool

    def propose(self, pending: Pending) -> None:
        """A change is asked for here."""

    def placed(self, change: Change) -> Change:
        """Return a change with the home chosen where it is :data:`ANYWHERE`."""

    def note(self, pending: Pending) -> None:
        """A change took effect here with a number; its records are not yet on disk."""


class LocalLog:
    """The order of a single process: first come, first decided.

    Args:
        decide: decides a change when those before it are: :meth:`Topology.decide`.
    """

    is_shared = has_copies = False

    def __init__(self, decide: Callable[[Pending], None]) -> None:
        self.propose = decide

    def placed(self, change: Change) -> Change:
        """See :meth:`CommonLog.placed`: queues are declared with the home of this process."""
        return change

    def note(self, pending: Pending) -> None:
        """Do nothing: unlike :meth:`CommonLog.note`, only the records are kept."""
