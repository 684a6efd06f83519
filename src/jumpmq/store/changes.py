"""What one commit changes."""

from collections.abc import Callable

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import Batch


class Changes:
    """The work of a commit while it gathers, and until it is on disk. False where there is nothing to write.

    Within a commit removals come first, in the file as here: what is put or appended after a removal stays.

    Attributes:
        number: of the commit.
        definitions: JSON text by (kind, key), in the order in which they are to be inserted.
        removed: keys of definitions that go, also those that are then inserted anew, at the end.
        batches: new batches, in order.
        finished: ids of batches with no message left.
        dropped: ids of queues that lose all they have.
        bytes: octets of the bodies in ``batches``.
        final: whether this is the commit of a clean stop.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.definitions: dict[tuple[str, str], str] = {}
        self.removed: set[tuple[str, str]] = set()
        self.batches: list[Batch] = []
        self.finished: list[int] = []
        self.dropped: list[int] = []
        self.bytes = 0
        self.final = False
        self._growing: dict[int, Batch] = {}

    def __bool__(self) -> bool:
        return bool(self.definitions or self.removed or self.batches or self.finished or self.dropped)

    @property
    def pressing(self) -> bool:
        """Whether somebody may wait for it: all but the removal of batches that have no message left."""
        return bool(self.definitions or self.removed or self.batches or self.dropped)

    def put(self, kind: str, key: str, value: str) -> None:
        """Insert or change a definition; a changed one keeps its place in the order."""
        self.definitions[kind, key] = value

    def delete(self, kind: str, key: str) -> None:
        """Remove a definition, if it is there."""
        self.definitions.pop((kind, key), None)
        self.removed.add((kind, key))

    def append(self, queue_id: int, messages: list[Message], new_batch: Callable[[int], Batch]) -> int:
        """Add messages at the end of a queue; ``new_batch(queue_id)`` makes a batch. Returns the bodies' octets."""
        before = self.bytes
        while messages:
            batch = self._growing.get(queue_id)
            if batch is None or batch.full:
                batch = self._growing[queue_id] = new_batch(queue_id)
                self.batches.append(batch)
            taken = -batch.bytes
            messages = batch.take(messages)
            self.bytes += taken + batch.bytes
        return self.bytes - before

    def drop(self, queue_id: int) -> None:
        """Forget all messages of a queue."""
        self._growing.pop(queue_id, None)
        self._leave_out({batch for batch in self.batches if batch.queue_id == queue_id})
        self.dropped.append(queue_id)

    def seal(self) -> set[Batch]:
        """Let the batches grow no more; returns those that were settled before they were ever written, now left out."""
        for batch in self.batches:
            batch.sealed = True
        self._growing.clear()
        return self.leave_out_settled()

    def leave_out_settled(self) -> set[Batch]:
        """Leave out batches that have no message left, and return them."""
        settled = {batch for batch in self.batches if not batch.remaining}
        self._leave_out(settled)
        return settled

    def absorb(self, later: "Changes") -> None:
        """Become one commit with the changes that followed."""
        for kind, key in later.removed:
            self.delete(kind, key)
        for (kind, key), value in later.definitions.items():
            self.put(kind, key, value)
        for queue_id in later.dropped:
            self.drop(queue_id)
        self.batches += later.batches
        self.finished += later.finished
        self.bytes += later.bytes
        self.number = later.number
        self.final = later.final

    def _leave_out(self, batches: set[Batch]) -> None:
        if not batches:
            return
        for batch in batches:
            batch.sealed = True
            batch.messages = []  # Messages and batch refer to each other: let go, for brokers that run without gc.
        self.batches = [batch for batch in self.batches if batch not in batches]
