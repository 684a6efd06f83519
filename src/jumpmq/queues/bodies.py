"""Bodies that leave memory while their messages stay, and come back when they are wanted."""

from collections.abc import Callable
from itertools import groupby
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import PAGED
from jumpmq.store import Batch


class BatchReader(Protocol):
    """Stores messages for want of memory, and reads a stored batch back."""

    def spill(self, messages: list[Message]) -> None: ...

    def read(self, batch: Batch, first: int | None = None, last: int | None = None) -> list[Message]: ...

    def read_soon(
        self, ranges: list[tuple[Batch, int, int]], then: Callable[[list[list[Message]] | None], None]
    ) -> None: ...


def droppable(messages: list[Message], reader: BatchReader) -> list[Message]:
    """Those of the messages whose bodies are on disk as well as in memory.

    What is not stored is handed over, and droppable when this is asked again.
    """
    loaded = [message for message in messages if message.body is not PAGED and len(message.body) > len(PAGED)]
    if unstored := [message for message in loaded if message.batch is None]:
        reader.spill(sorted(unstored, key=lambda message: message.seq))
    return [message for message in loaded if message.batch is not None and message.batch.is_written(message.seq)]


def read_back(messages: list[Message], reader: BatchReader) -> list[Message]:
    """Give messages their bodies again; returns those whose body cannot be read any more."""
    messages = sorted(messages, key=lambda message: message.seq)
    for batch, group in groupby(messages, key=lambda message: message.batch):
        run = list(group)
        found = {one.seq: one.body for one in reader.read(batch, run[0].seq, run[-1].seq)}
        for message in run:
            message.body = found.get(message.seq, PAGED)
    return [message for message in messages if message.body is PAGED]
