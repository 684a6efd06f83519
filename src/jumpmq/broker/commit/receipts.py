"""Receipts: whether what was published is safe.

A publish is *refused*, or its receipt is *pending* until it is *done*. Receipts come from a source that completes what
it was given in order, by growing numbers, so that a receipt is a source and a number. This node's store is a source:
its numbers are those of its commits, and asking for a receipt is a comparison of integers. A link to another node
would be one too: its numbers would be those of what it sent, completed by what the node answers.
"""

from enum import Enum
from typing import NamedTuple, Protocol


class State(Enum):
    """What a publisher may be told: no, not yet, yes."""

    REFUSED = "refused"
    PENDING = "pending"
    DONE = "done"


PENDING, DONE = State.PENDING, State.DONE
"""As globals: a member is found in its class ten times as slowly, and every publish waits for these."""


class Source(Protocol):
    """Where receipts come from."""

    def state(self, number: int) -> State:
        """What has become of everything up to this number. Once it is done or refused, it stays so."""


class Receipt(NamedTuple):
    """What a publisher waits for."""

    source: Source
    number: int

    @property
    def state(self) -> State:
        """Whether it still has to wait."""
        return self.source.state(self.number)


class _Refusing:
    def state(self, number: int) -> State:
        return State.REFUSED


REFUSED = Receipt(_Refusing(), 0)
"""The receipt of what a queue did not take."""
