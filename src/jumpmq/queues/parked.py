"""Taken messages reduced to the data for settling and reading back.

Unacknowledged deliveries soon are on disk when memory is tight, but a million objects for them would stay in memory.
"""

from array import array
from collections import Counter
from typing import Any

from jumpmq.amqp.messages import Message
from jumpmq.queues.base import Queue
from jumpmq.queues.memory import PAGED, Held
from jumpmq.queues.runs import of_body


class Parked:
    """Some thousand taken messages, in order, whose bodies are on disk only. Common values are stored once.

    Attributes:
        published_at: publishing time of the first message, in seconds since the epoch.
        seqs: numbers of the messages.
    """

    __slots__ = ("_common", "_commons", "_held", "_sizes", "published_at", "seqs")

    def __init__(self, messages: list[Message], held: Held) -> None:
        """Park messages whose bodies are on disk only. The objects must not be used afterwards."""
        commons: dict[tuple[Any, ...], int] = {}
        self.seqs = array("q", [message.seq for message in messages])
        self._sizes = array("I", [message.paged for message in messages])
        self._common = array("H", [commons.setdefault(_common(message), len(commons)) for message in messages])
        self._commons = list(commons)
        self._held = held
        self.published_at = messages[0].published_at
        self._count(1)

    @classmethod
    def of(cls, messages: list[Message], held: Held = Held.UNACKNOWLEDGED) -> "Parked | None":
        """Park messages if all their bodies are on disk only; None otherwise."""
        return cls(messages, held) if messages and len(of_body(messages, PAGED)) == len(messages) else None

    def __len__(self) -> int:
        return len(self.seqs)

    def taken_back(self) -> list[Message]:
        """Return the messages without bodies, and end the use of this object."""
        self._count(-1)
        return self.messages()

    def cut(self, first: int, end: int) -> "Parked":
        """Return a part for reading only."""
        part = Parked.__new__(Parked)
        part.seqs, part._sizes, part._common = self.seqs[first:end], self._sizes[first:end], self._common[first:end]
        part._commons, part._held, part.published_at = self._commons, self._held, self.published_at
        return part

    def messages(self) -> list[Message]:
        """Return the messages as new objects."""
        found = []
        for seq, size, common in zip(self.seqs, self._sizes, self._common, strict=True):
            message = Message("", b"", b"", PAGED)
            message.seq, message.paged = seq, size
            (
                message.queue,
                message.consumer,
                message.batch,
                message.persistent,
                message.redelivered,
                message.attempts,
                message.slot,
            ) = self._commons[common]
            found.append(message)
        return found

    def _count(self, sign: int) -> None:
        for common, count in Counter(self._common).items():
            queue: Queue = self._commons[common][0]
            taken = queue.taken
            assert taken is not None
            taken.count_parked(sign * count, self._held)


def _common(message: Message) -> tuple[Any, ...]:
    return (
        message.queue, message.consumer, message.batch,
        message.persistent, message.redelivered, message.attempts, message.slot,
    )  # fmt: skip
