"""Taken, unsettled messages of a queue: their memory, and bodies that are on disk only.

A body leaves memory in two stages. :meth:`TakenMessages.page` drops bodies that are on disk; the holder keeps the
message objects. If the holder parks the messages (:mod:`jumpmq.queues.parked`), the objects are freed, too.
"""

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import BatchReader, drop, droppable, read_back
from jumpmq.queues.columns import Columns
from jumpmq.queues.memory import IN_COLUMNS, OVERHEAD, PAGED, PARKED, RUN_ON_DISK, Held, MemoryAccount
from jumpmq.queues.runs import body_octets, of_body
from jumpmq.queues.stored_run import StoredRun
from jumpmq.store.layout import octets


class TakenMessages:
    """Memory of one queue's taken, unsettled messages.

    Args:
        store: stores paged bodies; None pages nothing.
        account: the memory account.

    Attributes:
        memory: octets of memory.
        paged: number of messages with a body on disk only.
        paged_octets: octets of these bodies.
    """

    __slots__ = ("_account", "_bodies", "_closed", "_parked", "_store", "memory", "paged", "paged_octets")

    def __init__(self, store: BatchReader | None, account: MemoryAccount) -> None:
        self._store = store
        self._account = account
        self.memory = self.paged = self.paged_octets = 0
        self._bodies = 0  # octets of bodies; a paged, unparked body counts as the placeholder
        self._parked = 0  # paged messages without an object
        self._closed = False  # True after the deletion of the queue

    @property
    def octets_in_memory(self) -> int:
        """Octets of bodies in memory."""
        return self._bodies - len(PAGED) * (self.paged - self._parked)

    def hold(self, messages: list[Message], held: Held) -> None:
        """Count messages as taken."""
        bodies, memory = octets(messages)
        memory += OVERHEAD * len(messages)
        self._bodies += bodies
        self.memory += memory
        self._account.charge(held, memory)

    def hold_paged(self, messages: list[Message], octets: int, held: Held) -> None:
        """Count messages as taken, with bodies on disk only.

        Args:
            octets: octets of the bodies.
        """
        self.paged += len(messages)
        self.paged_octets += octets
        self.hold(messages, held)

    def release(self, messages: list[Message], held: Held) -> None:
        """Stop counting messages as taken. Messages that are paged stay counted so until :meth:`not_paged`."""
        bodies, memory = octets(messages)
        memory += OVERHEAD * len(messages)
        self._bodies -= bodies
        self.memory -= memory
        self._account.charge(held, -memory)

    def lay_out(self, messages: list[Message]) -> Columns | None:
        """Take messages from the front of a list of reserved messages as columns; None if there are few, or memory
        is tight.
        """
        columns = None if self._account.tight else Columns.of(messages)
        if columns is not None:
            self._charge(len(columns) * (IN_COLUMNS - OVERHEAD), Held.RESERVED)
        return columns

    def as_messages(self, columns: Columns) -> list[Message]:
        """Return reserved messages as objects; their columns must not be used afterwards."""
        self._charge(len(columns) * (OVERHEAD - IN_COLUMNS), Held.RESERVED)
        return columns.messages()

    def hold_columns(self, columns: Columns) -> None:
        """Count reserved messages as taken."""
        self._bodies += columns.bodies
        self._charge(columns.octets + IN_COLUMNS * len(columns), Held.RESERVED)

    def release_columns(self, columns: Columns) -> None:
        """Stop counting reserved messages as taken."""
        self._bodies -= columns.bodies
        self._charge(-columns.octets - IN_COLUMNS * len(columns), Held.RESERVED)

    def hold_run(self, run: StoredRun) -> None:
        """Count reserved messages on disk as taken."""
        self._count_run(run, 1)

    def release_run(self, run: StoredRun) -> None:
        """Stop counting reserved messages on disk as taken."""
        self._count_run(run, -1)

    def _count_run(self, run: StoredRun, sign: int) -> None:
        self.paged += sign * len(run)
        self.paged_octets += sign * run.octets
        self._parked += sign * len(run)
        self._charge(sign * RUN_ON_DISK, Held.RESERVED)

    def page(self, messages: list[Message], held: Held = Held.UNACKNOWLEDGED) -> int:
        """Drop stored bodies from memory until needed; return the freed octets.

        Transient messages are stored first; the next call drops their bodies.
        """
        if self._store is None or self._closed:
            return 0
        dropped = droppable(messages, self._store)
        bodies = body_octets(dropped)
        freed = drop(dropped)
        self.paged += len(dropped)
        self.paged_octets += bodies
        self._bodies -= bodies - len(PAGED) * len(dropped)
        self._charge(-freed, held)
        return freed

    def count_parked(self, count: int, held: Held) -> None:
        """Count paged messages whose objects were freed; a negative number counts objects made again."""
        self._parked += count
        self._bodies -= count * len(PAGED)
        self._charge(count * (PARKED - OVERHEAD - len(PAGED)), held)

    def _charge(self, octets: int, held: Held) -> None:
        self.memory += octets
        self._account.charge(held, octets)

    def readable(self, messages: list[Message]) -> list[Message]:
        """Return messages with bodies: a body dropped by :meth:`page` is read into a copy of the message. Unreadable
        messages are left out.
        """
        paged = of_body(messages, PAGED)
        if not paged:
            return messages
        copies = {message.seq: _copied(message) for message in paged}
        for lost in self.read_back([*copies.values()]):
            del copies[lost.seq]
        found = [copies.get(message.seq) if message.body is PAGED else message for message in messages]
        return [message for message in found if message is not None]

    def read_back(self, messages: list[Message]) -> list[Message]:
        """Read the bodies of paged messages, which stay counted as paged; return the unreadable messages."""
        assert self._store is not None
        return read_back(messages, self._store)

    def not_paged(self, messages: list[Message]) -> None:
        """Stop counting messages as paged: read back or gone."""
        self.paged -= len(messages)
        self.paged_octets -= sum([message.paged for message in messages])

    def close(self) -> None:
        """Page nothing from now on: the queue is deleted, and the store drops its messages."""
        self._closed = True


def _copied(message: Message) -> Message:
    """Copy a taken message, to give the copy a body temporarily."""
    copied = message.copy()
    copied.seq, copied.batch, copied.redelivered = message.seq, message.batch, message.redelivered
    return copied
