"""Receipts: whether published messages are safe.

A publish is *refused*, or its receipt is *pending* until it is *done*. A receipt has a part for each source that got a
copy of the message. It is done when all parts are done, and refused when any part is refused. A source completes
messages in order of growing numbers. A part is therefore a source and a number, and its state is a comparison of
integers. The store is a source. A link to another node is a source too: it numbers what it sends, and the node's
answers complete the numbers.

Each source has a bit (:attr:`jumpmq.queues.Queue.source`). The sources of a run of messages are thus an integer.
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
    """The store as a source: it completes all messages in order.

    Attributes:
        completed: the last complete number.
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
