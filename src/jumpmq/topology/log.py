"""The log of changes, as the topology knows it."""

from typing import Protocol

from jumpmq.topology.changes import Change
from jumpmq.topology.proposals import Pending

ANYWHERE = 0
"""In the definition of a queue that is to be declared: its home is chosen by the first one, in the queue's turn."""


class CommonLog(Protocol):
    """The log, as the topology knows it."""

    def propose(self, pending: Pending) -> None:
        """A change is asked for here."""

    def placed(self, change: Change) -> Change:
        """A change whose turn has come, with the home of a queue that may be anywhere."""

    def note(self, pending: Pending) -> None:
        """A change has taken effect here, and got its number; its records are not on disk yet."""
