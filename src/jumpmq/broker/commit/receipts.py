"""Receipts: whether what was published is safe.

A publish is *refused*, or its receipt is *pending* until it is *done*. A receipt has parts, one for each source that
was given a copy: it is done when all of them are, and refused when one is. A source completes what it was given in
order, by growing numbers, so that a part is a source and a number, and asking for it is a comparison of integers. The
store is a source; a link to another node is one too: its numbers are those of what it sent, completed by what the node
answers.

Sources are told apart by bits (:attr:`jumpmq.queues.Queue.source`): what a run of messages was given to is an integer.
"""

from enum import Enum
from typing import NamedTuple, Protocol


class State(Enum):
    """What a publisher may be told: no, not yet, yes."""

    REFUSED = "refused"
    PENDING = "pending"
    DONE = "done"


REFUSED, PENDING, DONE = State.REFUSED, State.PENDING, State.DONE
"""As globals: a member is found in its class ten times as slowly, and every publish waits for these."""


class Source(Protocol):
    """Where receipts come from."""

    def state(self, number: int) -> State:
        """What has become of everything up to this number. Once it is done or refused, it stays so."""


class Part(NamedTuple):
    """What one source was given up to now."""

    source: Source
    number: int

    @property
    def state(self) -> State:
        """Whether it is complete."""
        return self.source.state(self.number)


class Parts(NamedTuple):
    """What several sources were given."""

    parts: tuple[Part, ...]

    @property
    def state(self) -> State:
        """Refused where one is, else done where all are."""
        states = {part.state for part in self.parts}
        if REFUSED in states:
            return REFUSED
        return PENDING if PENDING in states else DONE


Receipt = Part | Parts
"""What a publisher waits for."""


class Numbered:
    """A source that completes all that it was given, in order.

    Attributes:
        completed: the last number that is complete.
    """

    def __init__(self) -> None:
        self.completed = 0

    def state(self, number: int) -> State:
        """Whether everything up to a number is complete."""
        return DONE if number <= self.completed else PENDING


class _Refusing:
    def state(self, number: int) -> State:
        return REFUSED


NOT_TAKEN = Part(_Refusing(), 0)
"""The receipt of what a queue did not take."""
