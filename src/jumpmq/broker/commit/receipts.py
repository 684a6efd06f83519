"""Receipts: the safety of published messages.

A publish is *refused*, or its receipt is *pending* until it is *done*. A receipt has parts, one for each source that
was given a copy: it is done when all of them are, and refused when one is. A source completes what it was given in
order, by growing numbers, so that a part is a source and a number, and asking for it is a comparison of integers. The
store is a source; a link to another node is one too: its numbers are those of what it sent, completed by what the node
answers.

Sources are told apart by bits (:attr:`jumpmq.queues.Queue.source`): what a run of messages was given to is an integer.
"""

from enum import Enum
from typing import NamedTuple, Protocol

from jumpmq.store.completion import NO_RECEIPT


class ReceiptState(Enum):
    """Answer to a publisher: no, not yet, yes."""

    REFUSED = "refused"
    PENDING = "pending"
    DONE = "done"


REFUSED, PENDING, DONE = ReceiptState.REFUSED, ReceiptState.PENDING, ReceiptState.DONE
"""Members as globals: lookup in the class takes ten times as long, and every publish depends on the lookup."""


class ReceiptSource(Protocol):
    """Source of receipts."""

    def state(self, number: int) -> ReceiptState:
        """Return the state of everything up to a number. Done and refused are final."""


class Part(NamedTuple):
    """Position in a source up to the latest publish."""

    source: ReceiptSource
    number: int

    @property
    def state(self) -> ReceiptState:
        """State of the source at the number."""
        return self.source.state(self.number)


class ReceiptParts(NamedTuple):
    """Parts of several sources."""

    parts: tuple[Part, ...]

    @property
    def state(self) -> ReceiptState:
        """Refused if any part is refused, done if all parts are done."""
        states = {part.state for part in self.parts}
        if REFUSED in states:
            return REFUSED
        return PENDING if PENDING in states else DONE


Receipt = Part | ReceiptParts
"""A publisher's awaited receipt."""


class Numbered:
    """The store as a source, completing all messages in order.

    Attributes:
        completed: the last number that is complete.
    """

    def __init__(self) -> None:
        self.completed = NO_RECEIPT

    def state(self, number: int) -> ReceiptState:
        """Return the state of everything up to a number."""
        return DONE if number <= self.completed else PENDING


class _Refusing:
    def state(self, number: int) -> ReceiptState:
        return REFUSED


NOT_TAKEN = Part(_Refusing(), 0)
"""Receipt of messages not taken by a queue."""
