"""Where the broker's thread leaves work and the writer's thread fetches it."""

import threading
import time
from itertools import count

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import Batch
from jumpmq.store.changes import Changes

NOTE_INTERVAL = 1.0
"""Seconds between commits that also note partial settlements. Most batches are gone before they are noted once."""


class Staging:
    """Gathers the changes of the next commit while the last is being written.

    The lock is held for moments only: while work is added, and while the writer exchanges it for an empty set.
    Settling takes no lock, except for the first message of a batch since it was noted, and for its last.
    """

    def __init__(self, first_batch_id: int) -> None:
        self.uncommitted_bytes = 0
        self._condition = threading.Condition()
        self._changes = Changes(number=1)
        self._requested = 0
        self._closing = False
        self._unnoted: dict[int, Batch] = {}
        self._noted_at = 0.0
        self._batch_ids = count(first_batch_id)

    @property
    def dirty(self) -> bool:
        """Whether a flush would write anything."""
        return bool(self._changes or self._unnoted)

    @property
    def requested(self) -> bool:
        """Whether work waits for the writer."""
        return self._closing or self._requested >= self._changes.number

    def put(self, kind: str, key: str, value: str) -> None:
        """See :class:`Changes`, also for the next three."""
        with self._condition:
            self._changes.put(kind, key, value)

    def delete(self, kind: str, key: str) -> None:
        with self._condition:
            self._changes.delete(kind, key)

    def append(self, queue_id: int, messages: list[Message]) -> None:
        with self._condition:
            self.uncommitted_bytes += self._changes.append(queue_id, messages, self._new_batch)

    def drop(self, queue_id: int) -> None:
        with self._condition:
            self._changes.drop(queue_id)

    def on_settle(self, batch: Batch) -> None:
        """Called by a batch when its first message since the last note, or its last message, is settled."""
        with self._condition:
            if batch.remaining or not batch.sealed:
                batch.unnoted = True
                self._unnoted[batch.id] = batch
            else:
                self._unnoted.pop(batch.id, None)
                self._changes.finished.append(batch.id)

    def flush(self, settlements: bool) -> int:
        """Ask for a commit of everything staged; returns the number of the commit that covers it."""
        with self._condition:
            if not (self.dirty if settlements else self._changes.pressing):
                return self._changes.number - 1
            self._requested = self._changes.number
            self._condition.notify()
            return self._requested

    def close(self) -> None:
        """Ask for the final commit."""
        with self._condition:
            self._closing = True
            self._condition.notify()

    def take(self) -> Changes:
        """Wait for a flush or the close, then take what is staged. Of the writer's thread."""
        with self._condition:
            self._condition.wait_for(lambda: self.requested)
            return self._exchange()

    def take_later(self, seconds: float) -> Changes:
        """Take what is staged after so many seconds, or at once at the close. Of the writer's thread."""
        with self._condition:
            self._condition.wait_for(lambda: self._closing, timeout=seconds)
            return self._exchange()

    def note_settled(self) -> None:
        """Have the next commit note what is settled, also if it was noted a moment ago."""
        with self._condition:
            self._noted_at = 0.0

    def take_unnoted(self, changes: Changes) -> list[Batch]:
        """Partly settled batches to note along with ``changes``: none where they were noted a moment ago."""
        now = time.monotonic()
        with self._condition:
            if changes and not changes.final and now - self._noted_at < NOTE_INTERVAL:
                return []
            self._noted_at = now
            batches = [batch for batch in self._unnoted.values() if batch.sealed]
            for batch in batches:
                # Before its settlements are read, so that one which comes meanwhile is noted next time.
                batch.unnoted = False
                del self._unnoted[batch.id]
            return [batch for batch in batches if batch.remaining]

    def put_back_unnoted(self, batches: list[Batch]) -> None:
        """They could not be noted."""
        with self._condition:
            self._noted_at = 0.0
            for batch in batches:
                batch.unnoted = True
                self._unnoted[batch.id] = batch

    def written(self, changes: Changes) -> None:
        """The changes are on disk: let go of the messages."""
        with self._condition:
            self.uncommitted_bytes -= changes.bytes
        for batch in changes.batches:
            batch.messages = None

    def _exchange(self) -> Changes:
        changes = self._changes
        changes.final = self._closing
        for batch in changes.seal():
            self._unnoted.pop(batch.id, None)
        self._changes = Changes(changes.number + 1)
        return changes

    def _new_batch(self, queue_id: int) -> Batch:
        return Batch(next(self._batch_ids), queue_id, self.on_settle)
