"""The order in which changes of definitions are decided, as seen by the topology.

A broker of one process decides changes in the order of the requests (:class:`LocalLog`). Workers and nodes share a log,
and each process decides the log's entries in the same order: a proposal is sent to the log, and its entry comes back by
:meth:`Topology.decide`. An entry is the JSON form of a change (:mod:`~jumpmq.topology.json_form`), with its principal.
A :class:`~jumpmq.topology.proposals.Pending` gets the outcome of its entry, once the entry is applied here.
"""

from collections.abc import Callable
from typing import Protocol

from jumpmq.topology.changes.base import Change
from jumpmq.topology.proposals import Pending

ANYWHERE = 0
"""Home in a new queue's definition that the log replaces by the home with the fewest queues."""


class CommonLog(Protocol):
    """The log of changes.

    Attributes:
        is_shared: True if other processes decide the same changes.
        has_copies: True if homes may have copies, which queues may request.
    """

    is_shared: bool
    has_copies: bool

    def propose(self, pending: Pending) -> None:
        """Propose a change of this process."""

    def placed(self, change: Change) -> Change:
        """Return the change, with a home in place of :data:`ANYWHERE`."""

    def note(self, pending: Pending) -> None:
        """Note a change that took effect here with a number; its records are not on disk yet."""


class LocalLog:
    """The order of a single process: first come, first decided.

    Args:
        decide: :meth:`Topology.decide`, called for each change after the earlier ones.
    """

    is_shared = has_copies = False

    def __init__(self, decide: Callable[[Pending], None]) -> None:
        self.propose = decide

    def placed(self, change: Change) -> Change:
        """Return the change: queues are declared with the home of this process."""
        return change

    def note(self, pending: Pending) -> None:
        """Do nothing: the records suffice without a log."""
