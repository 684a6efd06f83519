"""Dead letters that some destination queue lacks, from queues that dead-letter at least once. They are tried again.

A queue's dead letters are tried in pieces, and the next piece only after a success. A million letters for a full queue
therefore cost no more than a few hundred.
"""

import time
from collections import deque
from collections.abc import Iterator

from jumpmq.amqp.messages import Message
from jumpmq.broker.dead_letters.dead_letters import Dead
from jumpmq.queues import Queue
from jumpmq.queues.runs import body_octets

RETRY_INTERVAL = 1.0
"""Seconds between attempts."""

PIECE = 200
"""Messages of a queue tried at once."""


class UndeliveredDeadLetters:
    """Unsettled originals of undelivered dead-lettered messages."""

    def __init__(self) -> None:
        self._kept: deque[Dead] = deque()
        self._reached: dict[int, set[str]] = {}
        self._next = 0.0

    def keep(self, dead: Dead) -> None:
        """Retry messages dead in a queue."""
        dead.queue.undelivered_count += len(dead.messages)
        dead.queue.undelivered_octets += body_octets(dead.messages)
        self._kept.append(dead)

    def hurry(self, queue: Queue) -> None:
        """Try the rest of a queue's letters soon, because letters of the queue have arrived."""
        if any(dead.queue is queue for dead in self._kept):
            self._next = 0.0

    def forget(self, originals: list[Message]) -> None:
        """Forget finished originals."""
        if self._reached:
            for original in originals:
                self._reached.pop(id(original), None)

    def due(self) -> Iterator[Dead]:
        """Yield the messages due for a retry: a batch per queue."""
        now = time.monotonic()
        if not self._kept or now < self._next:
            return
        self._next = now + RETRY_INTERVAL
        tried: dict[int, int] = {}
        for _ in range(len(self._kept)):
            dead = self._kept.popleft()
            queue = dead.queue
            room = PIECE - tried.get(queue.id, 0)
            if room <= 0:
                self._kept.append(dead)
                continue
            piece, rest = dead.cut(room)
            if rest is not None:
                self._kept.append(rest)
            tried[queue.id] = tried.get(queue.id, 0) + len(piece.messages)
            queue.undelivered_count -= len(piece.messages)
            queue.undelivered_octets -= body_octets(piece.messages)
            yield piece

    def has_reached(self, original: Message, queue: str) -> bool:
        """Return True if a queue already has the dead-lettered message."""
        return queue in self._reached.get(id(original), ())

    def reached(self, originals: list[Message], queue: str) -> None:
        """Record the delivery of dead-lettered messages to a queue."""
        for original in originals:
            self._reached.setdefault(id(original), set()).add(queue)
