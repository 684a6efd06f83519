"""Bodies paged out of memory while their messages stay, and read back when needed."""

from collections.abc import Callable
from itertools import groupby
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import PAGED
from jumpmq.queues.runs import of_body
from jumpmq.store import Batch
from jumpmq.store.column_layout import Layout
from jumpmq.store.layout import octets

READ_AT_ONCE = 1 << 20
"""Maximum octets of bodies read back at a time; the last message may exceed them."""


class BatchReader(Protocol):
    """Stores messages for lack of memory, and reads stored batches."""

    def spill(self, messages: list[Message]) -> None: ...

    def read(self, batch: Batch, first: int | None = None, last: int | None = None) -> list[Message]: ...

    def layouts(self, batch: Batch, first: int, last: int) -> list[Layout] | None: ...

    def may_expire(self, batch: Batch, first: int, last: int) -> bool: ...

    def read_soon(
        self, ranges: list[tuple[Batch, int, int]], then: Callable[[list[list[Message]] | None], None]
    ) -> None: ...


def droppable(messages: list[Message], reader: BatchReader) -> list[Message]:
    """Return the messages whose bodies are both on disk and in memory.

    Messages that are not stored yet are given to the store; a later call returns them.
    """
    loaded = [message for message in messages if message.body is not PAGED]
    if unstored := [message for message in loaded if message.batch is None]:
        reader.spill(sorted(unstored, key=lambda message: message.seq))
    return [message for message in loaded if message.batch is not None and message.batch.is_written(message.seq)]


def drop(messages: list[Message]) -> int:
    """Drop the stored parts of messages from memory, large headers as well as large bodies, until :func:`read_back`.

    Returns:
        The octets freed, by the memory account.
    """
    freed = octets(messages)[1] - len(PAGED) * len(messages)
    for message in messages:
        message.paged, message.body = len(message.body), PAGED
        message.routing_key = message.properties = b""
    return freed


def read_back(messages: list[Message], reader: BatchReader) -> list[Message]:
    """Read back bodies and all further published parts; return the unreadable messages."""
    # In order of numbers, so that each batch is read once.
    messages = sorted(messages, key=lambda message: message.seq)
    for batch, group in groupby(messages, key=lambda message: message.batch):
        run = list(group)
        found = {one.seq: one for one in reader.read(batch, run[0].seq, run[-1].seq)}
        for message in run:
            if (stored := found.get(message.seq)) is not None:
                _restore(message, stored)
    return [message for message in messages if message.body is PAGED]


def _restore(message: Message, stored: Message) -> None:
    message.exchange, message.routing_key, message.properties = stored.exchange, stored.routing_key, stored.properties
    message.published_at, message.expires_at = stored.published_at, stored.expires_at
    message.body = stored.body


def at_once(messages: list[Message], *, last: bool = False) -> int:
    """Return the number of first, or last, messages that may be read back at a time.

    The limit concerns the octets on disk, headers included; a message counts with the average of its batch.
    """
    if not of_body(messages, PAGED):
        return len(messages)
    count, octets, each = 0, 0.0, 0.0
    batch = None
    for message in reversed(messages) if last else messages:
        count += 1
        if message.body is PAGED:
            if message.batch is not batch and (batch := message.batch) is not None:
                each = batch.stored / batch.count
            octets += max(message.paged, each)
            if octets >= READ_AT_ONCE:
                break
    return count
