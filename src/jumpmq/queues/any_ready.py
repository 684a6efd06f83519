"""The ready messages of a queue, as the queue and its rules use them: the interface of all kinds of ready messages.

=========================  =============================================================================
:mod:`~.ready`             in order, in memory and in the store
:mod:`~.priorities`        by priority; two priorities of quorum queues
:mod:`~.delayed_messages`  by due time
:mod:`~.slots`             in order per slot
:mod:`~.fences`            behind ordering barriers, in front of another kind
=========================  =============================================================================
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.leftovers import AllLeftovers, Leftovers
from jumpmq.queues.runs import body_octets
from jumpmq.store import Batch

NO_SEQ = 1 << 63
"""A number above all message numbers."""


class AnyReady(ABC):
    """Ready messages of a queue.

    The first arguments of all kinds are ``reader``, ``prepare``, ``account`` and ``arrived``; see
    :class:`~jumpmq.queues.ready.ReadyMessages`.

    Attributes:
        by_priority: True if messages may be taken before older ones.
    """

    __slots__ = ()

    by_priority = False

    _reader: BatchReader | None
    _prepare: Callable[[list[Message]], None]
    _arrived: Callable[[], None]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of messages."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Octets of all ready bodies."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Memory of the messages here in octets, by :func:`~jumpmq.queues.memory.held_octets`."""

    # --- coming ---

    def restore(self, batch: Batch, delivered_seq: int) -> None:
        """Add a stored batch at the end; messages up to ``delivered_seq`` were delivered before. By default the batch
        is read, because keys and priorities are in the messages.
        """
        assert self._reader is not None
        messages = self._reader.read(batch)
        for message in messages:
            message.redelivered = message.seq <= delivered_seq
        self._prepare(messages)
        self.extend(messages, body_octets(messages))

    @abstractmethod
    def extend(self, messages: list[Message], size: int) -> None:
        """Add messages at the end; ``size`` is the octets of their bodies."""

    @abstractmethod
    def put_back(self, messages: list[Message]) -> None:
        """Return messages to the former positions."""

    # --- taking ---

    @abstractmethod
    def take(self, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from the front."""

    @abstractmethod
    def take_octets(self, count: int, most: int) -> list[Message]:
        """As :meth:`take`, but only as many messages as hold ``most`` octets of bodies, routing keys and properties; at
        least one, if any is in memory.

        If no message is in memory, the next ones are being read; ``arrived`` is called afterwards.
        """

    @abstractmethod
    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages numbered ``first_seq`` to ``last_seq``."""

    def take_oldest(self, count: int, last_seq: int = NO_SEQ) -> list[Message]:
        """Remove and return messages dropped by a length limit, at most up to ``last_seq``: by default those that would
        be delivered next.
        """
        return self.take(count) if last_seq == NO_SEQ else self.take_range(0, last_seq, count)

    @abstractmethod
    def take_expired(self, now: float, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages at the front that expire by ``now``; with several fronts, at any
        of them.
        """

    # --- looking ---

    @abstractmethod
    def first_seq(self) -> int:
        """Return the number of the oldest message; the collection must not be empty."""

    @abstractmethod
    def first_expiry(self) -> float:
        """Return the first expiry at the front, or at any of several fronts; 0 for none. A stored message may be read,
        but stays in the store.
        """

    @abstractmethod
    def count_upto(self, last_seq: int) -> int:
        """Return the number of messages up to ``last_seq``."""

    @abstractmethod
    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        """Yield the messages from ``first_seq`` to ``last_seq``, in the order of delivery, at most ``RUN`` at once.
        Stored messages are read temporarily.
        """

    def in_sequence(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        """Yield messages as :meth:`between`, ordered by number in spite of priorities."""
        return self.between(first_seq, last_seq)

    @abstractmethod
    def front(self) -> Message | None:
        """Return the first message, if in memory."""

    @abstractmethod
    def in_memory(self) -> tuple[int, int]:
        """Return number and octets of bodies of messages in memory."""

    @abstractmethod
    def spilled(self) -> tuple[int, int]:
        """Return number and octets of bodies of messages stored only for lack of memory."""

    def measure(self, segments: int) -> bool:
        """Measure up to ``segments`` segments with estimated sizes; return True if all sizes are exact. By default they
        are, because :meth:`restore` reads all batches.
        """
        return True

    # --- leaving, and memory ---

    @abstractmethod
    def leave(self) -> Leftovers | AllLeftovers:
        """Remove and return all messages, to be dropped in steps."""

    def close(self) -> None:
        """Drop references to the deleted queue: a circle would wait for a full garbage collection."""
        self._prepare, self._arrived = for_nobody, ignore_wait

    @abstractmethod
    def page_out(self, kept: int) -> int:
        """Run one step: move messages from memory to the store, or drop stored messages from memory.

        Args:
            kept: octets of memory at the front that may stay, because they are delivered next.

        Returns:
            The progress: messages moved plus octets freed; 0 if nothing is left to do for now.
        """


class DividedMessages(AnyReady):
    """Ready messages divided into several lists. What every queue calls often, such as ``len()``, is left to the
    subclasses.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def _parts(self) -> Collection[AnyReady]:
        """The lists, in the order of delivery."""

    def first_seq(self) -> int:
        return min(part.first_seq() for part in self._parts if len(part))

    def count_upto(self, last_seq: int) -> int:
        return sum(part.count_upto(last_seq) for part in self._parts)

    def in_memory(self) -> tuple[int, int]:
        return sums(part.in_memory() for part in self._parts)

    def spilled(self) -> tuple[int, int]:
        return sums(part.spilled() for part in self._parts)

    def measure(self, segments: int) -> bool:
        return all(part.measure(segments) for part in self._parts)

    def leave(self) -> AllLeftovers:
        return AllLeftovers([part.leave() for part in self._parts])

    def close(self) -> None:
        for part in self._parts:
            part.close()
        super().close()


def for_nobody(messages: list[Message]) -> None:
    """Discard messages read back only to be dropped."""


def ignore_wait() -> None:
    """Do nothing: the queue of messages being read is deleted."""


def each(ready: AnyReady, first_seq: int, last_seq: int) -> Iterator[Message]:
    """Yield the messages of a list numbered ``first_seq`` to ``last_seq``."""
    for messages in ready.between(first_seq, last_seq):
        yield from messages


def sums(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the sums of the first, and of the second numbers of pairs."""
    found = list(pairs)
    return sum(first for first, _ in found), sum(second for _, second in found)
