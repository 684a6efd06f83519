"""Reading of ready messages in place: nothing is taken, and deliveries continue."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.queues.any_ready import AnyReady
from jumpmq.queues.fences import FencedMessages

if TYPE_CHECKING:
    import pyarrow as pa


class View(ABC):
    """Ready messages of a queue. A view is made for one use: it may not show later changes of the queue.

    Args:
        next_seq: number of the queue's next message.
    """

    __slots__ = ("_next_seq",)

    def __init__(self, next_seq: int) -> None:
        self._next_seq = next_seq

    @abstractmethod
    def browse(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        """Yield messages numbered ``first_seq`` to ``last_seq``, in the order of delivery, some thousands at a time."""

    def in_sequence(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        """Yield messages as :meth:`browse`, ordered by number in spite of priorities."""
        return self.browse(first_seq, last_seq)

    def browse_takeable(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        """Yield messages as :meth:`browse`, without those behind ordering barriers."""
        return self.browse(first_seq, last_seq)

    def peek(self, first_seq: int, last_seq: int, limit: int | None = None) -> list[Message]:
        """Return at most ``limit`` messages of :meth:`browse`."""
        return list(islice(chain.from_iterable(self.browse(first_seq, last_seq)), limit))

    def record_batches(self, first_seq: int, last_seq: int) -> "Iterator[pa.RecordBatch] | None":
        """As :meth:`browse`, in record batches with the columns of :func:`jumpmq.store.columns.schema`, cut from
        files without examining each message; None for a kind that stores messages differently.
        """
        return None

    @property
    def by_priority(self) -> bool:
        """True if messages may be delivered before older ones."""
        return False

    def ready_range(self) -> tuple[int, int]:
        """Return the lowest number of a ready message, and the number of the youngest message."""
        last = self._next_seq - 1
        first = next(chain.from_iterable(self.in_sequence(1, last)), None)
        return (last + 1 if first is None else first.seq, last)

    def lowest_takeable(self, last_seq: int) -> int | None:
        """Return the lowest number, up to ``last_seq``, of a ready message without ordering barrier; None if there is
        none.
        """
        first = next(chain.from_iterable(self.in_sequence(1, last_seq)), None)
        return None if first is None else first.seq

    def seq_at(self, timestamp: float) -> int | None:
        """Return the number of the first message published at ``timestamp`` (seconds since the epoch) or later, or
        else the next number; None for a kind without times.
        """
        return None

    def mark_of(self, seq: int) -> int | None:
        """Return a fingerprint to distinguish a message from earlier messages of equal number, after a restored backup;
        None if unsupported, or if the message is gone.
        """
        return None


class ReadyView(View):
    """Ready messages of a queue that is not a stream.

    Args:
        ready: all ready messages.
        fences: messages possibly behind ordering barriers; None without any.
    """

    __slots__ = ("_fences", "_ready")

    def __init__(self, next_seq: int, ready: AnyReady, fences: FencedMessages | None) -> None:
        super().__init__(next_seq)
        self._ready = ready
        self._fences = fences

    def browse(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        return self._ready.between(first_seq, last_seq)

    def in_sequence(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        return self._ready.in_sequence(first_seq, last_seq)

    def browse_takeable(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        ready = self._ready if self._fences is None else self._fences.inner
        return ready.between(first_seq, last_seq)

    @property
    def by_priority(self) -> bool:
        return self._ready.by_priority

    def lowest_takeable(self, last_seq: int) -> int | None:
        if self._fences is None:
            return super().lowest_takeable(last_seq)
        first = next(chain.from_iterable(self.browse_takeable(1, last_seq)), None)
        return None if first is None else first.seq
