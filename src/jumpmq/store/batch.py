"""Batches: what one queue received between two commits, the unit in which messages are stored and forgotten."""

from collections.abc import Callable, Iterable

from jumpmq.amqp.messages import Message

MAX_COUNT = 4096
"""Most messages in a batch: turning so many into Arrow columns holds the interpreter for about a millisecond."""

MAX_BYTES = 4 << 20
"""A batch takes no further message once its bodies hold this many octets, so that reading one back stays cheap."""


class Batch:
    """A row of the store: consecutive persistent messages of one queue.

    Only the thread that owns the store (the broker's event loop) appends and settles.

    Attributes:
        id: number of the row, unique in the store.
        queue_id: whose messages these are.
        first_seq, last_seq, count, bytes: the range of the messages' numbers (it may have gaps: transient messages are
            not stored), how many there are, and the octets of their bodies.
        settled: the numbers that are gone for good, acknowledged or purged.
        messages: the messages themselves until they are written, then None.
        sealed: whether the batch was handed to the writer and grows no more.
        unnoted: whether something was settled since the store last noted it.
        emptied: whether everything was settled at once.
    """

    __slots__ = (
        "_on_settle",
        "bytes",
        "count",
        "emptied",
        "first_seq",
        "id",
        "last_seq",
        "messages",
        "queue_id",
        "sealed",
        "settled",
        "unnoted",
    )

    def __init__(self, id: int, queue_id: int, on_settle: Callable[["Batch"], None]) -> None:
        self.id = id
        self.queue_id = queue_id
        self.first_seq = 0
        self.last_seq = 0
        self.count = 0
        self.bytes = 0
        self.settled: set[int] = set()
        self.messages: list[Message] | None = []
        self.sealed = False
        self.unnoted = False
        self.emptied = False
        self._on_settle = on_settle

    @classmethod
    def stored(
        cls,
        summary: tuple[int, int, int, int, int, int],
        settled: Iterable[int],
        on_settle: Callable[["Batch"], None],
    ) -> "Batch":
        """A batch found in the file, by its row (id, queue_id, first_seq, last_seq, count, bytes)."""
        batch = cls(summary[0], summary[1], on_settle)
        batch.first_seq, batch.last_seq, batch.count, batch.bytes = summary[2:]
        batch.settled.update(settled)
        batch.messages = None
        batch.sealed = True
        return batch

    def __repr__(self) -> str:
        return f"<Batch {self.id} of queue {self.queue_id}: {self.first_seq}-{self.last_seq}, {self.remaining} left>"

    @property
    def summary(self) -> tuple[int, int, int, int, int, int]:
        """The columns of the row but for the messages."""
        return (self.id, self.queue_id, self.first_seq, self.last_seq, self.count, self.bytes)

    @property
    def remaining(self) -> int:
        """How many messages are not settled."""
        return 0 if self.emptied else self.count - len(self.settled)

    @property
    def full(self) -> bool:
        """Whether the next message needs another batch."""
        return self.count >= MAX_COUNT or self.bytes >= MAX_BYTES

    def settle(self, seq: int) -> None:
        """Message ``seq`` is gone for good. Called once an acknowledged message: the hottest line of the store."""
        settled = self.settled
        settled.add(seq)
        if not self.unnoted or len(settled) == self.count:
            self._on_settle(self)

    def settle_all(self) -> None:
        """All messages are gone for good, without a look at which they are."""
        if self.sealed:
            self.emptied = True
        elif self.messages:
            self.settled.update(message.seq for message in self.messages)
        self._on_settle(self)

    def take(self, messages: list[Message]) -> list[Message]:
        """Add messages that follow those within, as many as there is room for; the others are returned."""
        assert self.messages is not None
        sizes = [len(message.body) for message in messages]
        rest: list[Message] = []
        if self.count + len(sizes) > MAX_COUNT or self.bytes + sum(sizes) > MAX_BYTES:
            room = self._room(sizes)
            messages, rest, sizes = messages[:room], messages[room:], sizes[:room]
        for message in messages:
            message.batch = self
        if not self.count:
            self.first_seq = messages[0].seq
        self.last_seq = messages[-1].seq
        self.count += len(messages)
        self.bytes += sum(sizes)
        self.messages += messages
        return rest

    def _room(self, sizes: list[int]) -> int:
        """How many messages of such sizes fit; one at least, as the batch is not full."""
        total = self.bytes
        for room, size in enumerate(sizes[: MAX_COUNT - self.count]):
            if total >= MAX_BYTES:
                return room
            total += size
        return min(len(sizes), MAX_COUNT - self.count)
