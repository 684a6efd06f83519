"""Interface of queues, and the declaration of a queue type. Queue types are files in this package."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from jumpmq.amqp.errors import PreconditionFailed, ResourceLocked
from jumpmq.amqp.messages import Message
from jumpmq.queues import clock
from jumpmq.queues.argument_checks import Check, DeclaredArguments
from jumpmq.queues.arguments import NO_POLICY, Limits
from jumpmq.queues.barriers import Barriers
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.clock import NEVER
from jumpmq.queues.columns import Columns
from jumpmq.queues.consumer import Consumer, SubscribedGroup
from jumpmq.queues.epochs import OwnerEpochs
from jumpmq.queues.fences import FencedMessages
from jumpmq.queues.figures import MessageFigures
from jumpmq.queues.journal import RecordJournal
from jumpmq.queues.memory import Held, MemoryAccount
from jumpmq.queues.ready import TakenColumns
from jumpmq.queues.records import QueueRecords
from jumpmq.queues.retries import Retries
from jumpmq.queues.runs import settle_stored
from jumpmq.queues.slots import Share, SlottedMessages
from jumpmq.queues.stored_run import StoredRun
from jumpmq.queues.stream_offsets import StreamOffsets
from jumpmq.queues.taken import TakenMessages
from jumpmq.queues.view import View
from jumpmq.store import Batch
from jumpmq.store.changes import Definitions
from jumpmq.store.definitions import named
from jumpmq.store.stream_files import StreamFiles

NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


class Outcome(Enum):
    """Outcome of messages taken from a queue."""

    ACKNOWLEDGED = "acknowledged"
    REJECTED = "rejected"
    REQUEUED = "requeued"
    """Requeued by a consumer."""
    FAILED = "failed"
    """Returned by a consumer with ``basic.reject``: the messages could not be handled."""
    CONSUMER_GONE = "consumer_gone"
    """Returned because the consumer, channel or reader is gone."""
    UNREAD = "unread"
    """Returned without a delivery: the delivery counts do not change."""


class Journal(BatchReader, RecordJournal, Protocol):
    """Storage of a durable queue's messages, for example the store."""

    def append(self, queue_id: int, messages: list[Message]) -> object: ...
    def change(self, definitions: Definitions) -> None: ...
    def drop_queue(self, queue_id: int) -> None: ...


class DeadLettering(Protocol):
    """Dead-lettering of messages that leave a queue undelivered, for queues with a dead letter exchange."""

    def is_behind(self, queue: "Queue") -> bool:
        """Return True on a backlog of dead-lettering: messages that can stay in the queue should stay."""

    def publish(self, queue: "Queue", messages: list[Message], reason: str) -> None:
        """Publish messages to the queue's dead letter exchange, then settle them.

        Args:
            reason: ``expired``, ``maxlen``, ``rejected`` or ``delivery_limit``; or one of ``HELD``
                (``broker/dead_letters/dead_lettering.py``), for messages held by an exchange.
        """

    def count_discarded(self, queue: "Queue", count: int, reason: str) -> None:
        """Count messages discarded by a queue without a dead letter exchange."""


class NoDeadLettering:
    """Discards messages, for queues without a dead letter exchange."""

    def is_behind(self, queue: "Queue") -> bool:
        return False

    def publish(self, queue: "Queue", messages: list[Message], reason: str) -> None:
        settle_stored(messages)

    def count_discarded(self, queue: "Queue", count: int, reason: str) -> None:
        pass


NO_DEAD_LETTERING = NoDeadLettering()


Wake = Callable[["Queue", float], None]
"""Schedules maintenance of a queue at a time of :mod:`~jumpmq.queues.clock`; a past time means soon."""


def never_wake(queue: "Queue", at: float) -> None:
    """Schedule nothing: the owner maintains the queue."""


class DeliveryGate:
    """Time up to which the queues of a home deliver: the end of a lease, if another node may lead the home.

    Attributes:
        until: time by the clock that counts suspended time (:func:`~jumpmq.queues.clock.boot_time`); infinite without a
            lease.
    """

    def __init__(self) -> None:
        self.until = math.inf
        self._held: set[Queue] = set()
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_closed(self) -> bool:
        """True if nothing may be delivered now."""
        return self.until != math.inf and clock.boot_time() >= self.until

    @property
    def is_waited_for(self) -> bool:
        """True if a queue or a function waits for the gate to open."""
        return bool(self._held or self._waiting)

    def when_open(self, go_on: Callable[[], None]) -> None:
        """Call a function when queues may deliver again."""
        self._waiting.append(go_on)

    def holds(self, queue: "Queue") -> bool:
        """Return True if a queue may not deliver now; the gate then dispatches the queue when it opens."""
        if not self.is_closed:
            return False
        self._held.add(queue)
        return True

    def extend(self, until: float) -> None:
        """Set the end of the lease. Waiting queues deliver if the end is in the future."""
        self.until = until
        if self.is_closed:
            return
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()
        held, self._held = self._held, set()
        for queue in held:
            if not queue.deleted:
                queue.dispatch()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """The broker's services for queues; all queues of a broker share one instance.

    Attributes:
        journal: stores persistent messages of durable queues, and paged bodies of other queues; None keeps everything
            in memory.
        streams: stores the messages of streams; None for a temporary directory per stream.
        memory: account of messages in memory.
        dead_letters: publishes messages that leave a queue undelivered, if the queue has a dead letter exchange.
        wake: called with a queue and the time of its next maintenance (see :meth:`Queue.maintain`).
        epochs: assigns the owner epochs of queues.
        gate: restricts the deliveries of queues.
    """

    journal: Journal | None = None
    streams: StreamFiles | None = None
    memory: MemoryAccount = field(default_factory=MemoryAccount)
    dead_letters: DeadLettering = NO_DEAD_LETTERING
    wake: Wake = never_wake
    epochs: OwnerEpochs = field(default_factory=OwnerEpochs)
    gate: DeliveryGate = field(default_factory=DeliveryGate)


STORE, FIRST_LINK = 1, 4
"""Bits of the storages that confirm messages: the store; ``FIRST_LINK << home`` for the link to a home, counted from 1.
``source`` of a queue type is the bit of the type's storage.
"""


class Queue(ABC):
    """A queue of a virtual host.

    Args:
        vhost, name: virtual host and name.
        id: id in the store, never reused.
        durable, exclusive, auto_delete, arguments: as declared.
        node: home node of the queue.
        owner: name of the connection that owns an exclusive queue.
        context: environment of the queue; without one, the queue is alone, in memory.

    Attributes:
        limits: the optional settings in force.
        on_gone: callbacks for the queue's deletion, before its messages are dropped.
        last_used: time of the last use by a client, by :func:`time.monotonic` (``x-expires``).
        wakes_at: time of the next scheduled maintenance.
        deleted: True after the deletion; later operations on its messages have no effect.
        moved: True if the queue has moved to another home; its messages here are moving, too.
        behind: buffer of messages published during a move, until older messages have arrived from the previous home;
            None otherwise.
        published, delivered, acknowledged: counts of messages since the broker's start.
        delivered_unasked: number of deliveries without acknowledgement.
        got, got_unasked: number of deliveries by ``basic.get``, with and without acknowledgement.
        got_nothing: number of ``basic.get`` without a message.
        redelivered: number of repeated deliveries.
        requeues_in_place: True if requeued messages return to their positions, so that their order of return does not
            matter.
        slots: ready messages by slot; None without slots.
        fences: its ready messages while some may be behind ordering barriers; None otherwise.
        retries: messages that rest until the next try; None before the first.
        taken: memory of unsettled messages; None for a kind without bodies in memory.
        returned: True if a message may have been delivered before.
        unacknowledged_count: number of taken, unsettled messages.
        undelivered_count, undelivered_octets: number of dead messages whose dead letters have not reached all their
            queues, and octets of their bodies.
        dead_count: number of dead messages, unsettled until their dead letters arrive.
        consumer_group: the consumer group that alone consumes the queue; None without one.
        offsets: offsets of consumer groups; None for a kind that removes settled messages.
        owner_floor: lowest epoch (:mod:`~jumpmq.queues.epochs`) of future deliveries to members of consumer groups.
        last_epoch: last epoch of an owner of this queue. Initially the last epoch of all queues, as an earlier queue of
            the name may have had owners.

    Class attributes declare the properties of a kind:
        type: name, the value of ``x-queue-type``.
        argument_checks: accepted arguments of a declaration with their checks, in RabbitMQ's order of checking; a
        second declaration has to have equal values. Arguments of other kinds are refused.
        refused_policy_keys: policy keys that keep a policy from applying to this kind.
        always_durable: True if a queue has to be durable, named, not exclusive and not deleted automatically.
        consumer_argument_names: accepted arguments of ``basic.consume``; arguments of other kinds are refused.
        takes_global_prefetch: True if channels with a ``global`` prefetch may consume.
        knows_exclusive_consumers: True if a consumer may request exclusive use; otherwise the request is ignored.
        is_internal: True if only the broker itself makes, feeds and reads the queue, for an exchange.
        append_only: True if reading removes nothing; as in RabbitMQ, such a queue can be deleted with ``if-empty``.
        holds_back: True if messages can wait here for older messages of their key in other queues.
        replicated: True if RabbitMQ replicates queues of this kind.
        group_size_argument: argument with the number of copies; empty without one.
        policy_target: value of ``apply-to`` for policies of this kind alone; empty for internal kinds.
    """

    __slots__ = (
        "__weakref__", "_account", "_dead_letters", "_epochs", "_gate", "_journal", "_next_wanted", "_spill_store",
        "_wake",
        "acknowledged", "arguments", "auto_delete", "behind", "consumer_group", "dead_count", "deleted", "delivered",
        "delivered_unasked", "durable", "exclusive", "fences", "got", "got_nothing", "got_unasked", "id", "last_epoch",
        "last_used", "limits", "moved", "name", "node", "offsets", "on_gone", "owner", "owner_floor", "published",
        "redelivered", "retries", "returned", "slots", "taken", "unacknowledged_count", "undelivered_count",
        "undelivered_octets", "vhost", "wakes_at",
    )  # fmt: skip

    type: ClassVar[str]
    argument_checks: ClassVar[Mapping[str, Check]]
    refused_policy_keys: ClassVar[frozenset[str]] = frozenset()
    always_durable: ClassVar[bool] = False
    consumer_argument_names: ClassVar[frozenset[str]] = frozenset({"x-priority"})
    takes_global_prefetch: ClassVar[bool] = True
    knows_exclusive_consumers: ClassVar[bool] = True
    append_only: ClassVar[bool] = False
    holds_back: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    policy_target: ClassVar[str] = ""
    group_size_argument: ClassVar[str] = ""
    is_internal: ClassVar[bool] = False
    requeues_in_place: bool = True
    source: int = STORE

    def __init__(
        self,
        vhost: str,
        name: str,
        *,
        id: int,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        node: str = "",
        owner: str | None = None,
        context: QueueContext | None = None,
    ) -> None:
        context = QueueContext() if context is None else context
        self.vhost = vhost
        self.name = name
        self.id = id
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments: Mapping[str, Any] = dict(arguments) if arguments else NO_ARGUMENTS
        self.node = node
        self.owner = owner
        self.limits = self.limits_under(NO_POLICY)
        self.on_gone: tuple[Callable[[Queue], None], ...] = ()
        self.last_used = time.monotonic()
        self.deleted = self.moved = False
        self.behind: Queue | None = None
        self.published = self.delivered = self.acknowledged = 0
        self.delivered_unasked = self.got = self.got_unasked = self.got_nothing = self.redelivered = 0
        self.returned = False
        self.slots: SlottedMessages | None = None
        self.fences: FencedMessages | None = None
        self.taken: TakenMessages | None = None
        self.retries: Retries | None = None
        self.consumer_group: SubscribedGroup | None = None
        self.offsets: StreamOffsets | None = None
        self.unacknowledged_count = self.undelivered_count = self.undelivered_octets = self.dead_count = 0
        # Storage of persistent messages; None for a queue that is not durable.
        self._journal = context.journal if durable and not exclusive else None
        self._spill_store = context.journal  # storage of paged bodies
        self._account = context.memory  # account of messages in memory
        self._dead_letters = context.dead_letters  # publishes dead letters
        self._wake = context.wake  # schedules maintenance
        self.wakes_at = NEVER
        self._epochs = context.epochs  # assigns owner epochs
        self._gate = context.gate  # restricts deliveries
        self._next_wanted: tuple[Callable[[], None], ...] = ()  # callbacks waiting until the next message is known
        self.owner_floor = 0
        self.last_epoch = context.epochs.last

    @classmethod
    def problem_with(cls, arguments: DeclaredArguments) -> str | None:
        """Return the problem with arguments that passed ``argument_checks``, in RabbitMQ's words; None for valid
        arguments.
        """
        return None

    @property
    def subject(self) -> str:
        """Name of the queue in refusals."""
        return named(self.name, self.vhost)

    def __repr__(self) -> str:
        return f"<{self.type} queue {self.name!r} in vhost {self.vhost!r}>"

    # --- contents ---

    @property
    @abstractmethod
    def ready_count(self) -> int:
        """Messages waiting for a consumer."""

    @property
    def fenced_count(self) -> int:
        """Number of ready messages behind ordering barriers (:mod:`jumpmq.queues.fences`)."""
        return 0 if self.fences is None else self.fences.held

    @property
    def message_count(self) -> int:
        """Number of ready and unacknowledged messages, including those of :attr:`behind`."""
        count = self.ready_count + self.unacknowledged_count
        return count if self.behind is None else count + self.behind.message_count

    @property
    @abstractmethod
    def memory(self) -> int:
        """Approximate memory of ready and unacknowledged messages, in octets."""

    @property
    def memory_is_tight(self) -> bool:
        """True if messages on disk should leave memory."""
        return self._account.tight

    def figures(self) -> MessageFigures | None:
        """Octets of messages by location; None if unknown for this queue type."""
        return None

    def front(self) -> Message | None:
        """The next ready message, if in memory."""
        return None

    def take_columns(self, last_seq: int, count: int) -> TakenColumns:
        """Take up to ``count`` messages from the front, at most up to ``last_seq``, for a reservation. Similar
        messages are returned as columns or unread, the others as a list. The result is empty only if there are no
        messages.
        """
        return [], self.take_range(1, last_seq, count)

    def settle_columns(self, columns: Columns | StoredRun) -> None:
        """Acknowledge reserved messages; the argument must not be used afterwards."""
        self.settle(columns.taken_back(), Outcome.ACKNOWLEDGED, Held.RESERVED)

    def leave_unread(self, messages: list[Message], held: Held) -> None:
        """Stop counting unreadable taken messages. Stored messages stay in the store, for the next start."""
        self.settle(messages, Outcome.ACKNOWLEDGED, held)

    def page_out(self, kept: int) -> int:
        """Drop one step of ready messages on disk from memory.

        Args:
            kept: octets at the front that may stay.

        Returns:
            0 if nothing is left to do for now.
        """
        return 0

    @property
    @abstractmethod
    def next_seq(self) -> int:
        """Number of the next message."""

    @abstractmethod
    def restore(self, batches: list[Batch], records: QueueRecords) -> None:
        """Restore the queue from the store, without reading messages.

        Args:
            batches: stored batches, in order.
            records: records of the queue.
        """

    @abstractmethod
    def checkpoint(self) -> None:
        """Record numbering and deliveries, for a restart after a clean stop."""

    def would_refuse(self, messages: list[Message]) -> list[Message]:
        """Return the messages that a push would refuse now, assuming no consumer takes any."""
        return []

    @abstractmethod
    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]:
        """Add messages at the end, and deliver them to consumers with capacity.

        A message that is already in another queue is copied. A message with an own expiry has the expiry in
        ``expires_at``.

        Args:
            fitting: True if :meth:`would_refuse` has just accepted all messages; then none is refused.

        Returns:
            The refused messages (``x-overflow`` is ``reject-publish``).
        """

    def put_behind(self, queue: "Queue") -> None:
        """Buffer published messages in a queue, :attr:`behind`, while older ones arrive from the previous home."""
        self.behind = queue

    @abstractmethod
    def leave_consumers(self) -> None:
        """Cancel all consumers: the queue has moved to a new home."""

    def note_redelivered(self) -> None:
        """Mark the messages of the last push as possibly delivered. A clean restart then sets ``redelivered``."""
        self.returned = True

    @abstractmethod
    def follow_up(self, count: int) -> bool:
        """Move up to ``count`` messages from :attr:`behind` into the queue; return True if there were any. After the
        last one the buffer is removed, and published messages enter directly."""

    @property
    def knows_next(self) -> bool:
        """True if the next messages are known; False while messages return or expire in steps."""
        return True

    def when_next_known(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once, when :attr:`knows_next` is true or the queue is deleted."""
        self._next_wanted += (tell,)
        self.tell_next()

    def tell_next(self) -> None:
        """Call the callbacks for the next message, if it is known now."""
        if self._next_wanted and (self.deleted or self.knows_next):
            # Cleared first: a callback may wait for the next message again.
            wanted, self._next_wanted = self._next_wanted, ()
            for tell in wanted:
                tell()

    @abstractmethod
    def take(self, count: int) -> list[Message]:
        """Take up to ``count`` messages from the front; they are unacknowledged until settled."""

    def take_for_delivery(self, count: int) -> list[Message]:
        """As :meth:`take`, but no more than consumers should be handed at once."""
        return self.take(count)

    @abstractmethod
    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """As :meth:`take`, but only messages from ``first_seq`` to ``last_seq``, and accounted for as reserved."""

    @property
    @abstractmethod
    def view(self) -> View:
        """The ready messages, for reading in place at once.

        Raises:
            ResourceError: the files of a stream have not arrived.
        """

    def peek(self, first_seq: int, last_seq: int, limit: int | None = None) -> list[Message]:
        """See :meth:`View.peek`."""
        return self.view.peek(first_seq, last_seq, limit)

    @abstractmethod
    def settle(self, messages: list[Message], outcome: Outcome, held: Held = Held.UNACKNOWLEDGED) -> None:
        """Settle taken messages: acknowledged, dead-lettered, or requeued to their positions."""

    @abstractmethod
    def purge(self) -> int:
        """Remove all ready messages and return the number removed."""

    def tell_gone(self) -> None:
        """Call the callbacks for the queue's deletion."""
        callbacks, self.on_gone = self.on_gone, ()
        for callback in callbacks:
            callback(self)

    @property
    def purging(self) -> bool:
        """True while purged messages are unsettled; maintenance continues the work."""
        return False

    def begin_return(self) -> None:  # noqa: B027  (not every kind can requeue)
        """Begin a return of messages in steps, from the highest number down. The queue delivers no message until
        :meth:`end_return`.
        """

    def end_return(self) -> None:  # noqa: B027
        """End a return begun by :meth:`begin_return`."""

    @abstractmethod
    def delete(self) -> int:
        """Drop all messages, and cancel the consumers; return the number of ready messages."""

    # --- consumers ---

    @property
    @abstractmethod
    def consumers(self) -> list[Consumer]:
        """The served consumers, highest priority first."""

    @property
    def active_consumer(self) -> Consumer | None:
        """The active consumer, of a queue with a single active consumer."""
        return None

    @abstractmethod
    def subscribe(self, consumer: Consumer, share: Share | None = None) -> None:
        """Serve a consumer from now on.

        Args:
            share: the consumer's share of the queue's slots; None for all messages.

        Raises:
            AccessRefused: the consumer, or another one, has requested exclusive use.
        """

    @abstractmethod
    def unsubscribe(self, consumer: Consumer) -> None:
        """Stop serving a consumer; unacknowledged messages stay with it."""

    def draw_epoch(self) -> int:
        """Draw an epoch for the new owner of the queue or of a slot; deliveries with it wait for the commit of this
        event-loop iteration.
        """
        self.last_epoch = self._epochs.draw()
        return self.last_epoch

    def renew_owners(self) -> None:
        """Raise the owner epoch after keys have come from another queue: deliveries from now on have a higher epoch
        than at the source.
        """
        self.owner_floor = self.draw_epoch()

    # --- fences ---

    def barriers(self) -> Barriers | None:
        """Return the ordering barriers, for keys that move to the queue or away. None for a kind that never loses
        messages.
        """
        return None

    def require_unshared(self) -> None:
        """Refuse consumers outside the queue's consumer group.

        Raises:
            ResourceLocked: the queue has a consumer group.
        """
        if self.consumer_group is not None:
            raise ResourceLocked(
                f"cannot obtain access to locked queue '{self.name}' in vhost '{self.vhost}'. "
                f"It is consumed by consumer group '{self.consumer_group.name}'"
            )

    def require_reservable(self) -> None:
        """Refuse readers that reserve many messages at once.

        Raises:
            PreconditionFailed: the queue limits the unacknowledged messages of a slot.
        """
        if self.slots is not None and self.slots.limit:
            raise PreconditionFailed(
                f"queue '{self.name}' in vhost '{self.vhost}' has x-in-flight-per-slot {self.slots.limit}, and readers "
                "reserve many messages at once: bind a queue without it, and read that"
            )

    def unshareable(self) -> str | None:
        """Return the reason against sharing by a consumer group; None if possible."""
        return None

    @abstractmethod
    def dispatch(self) -> None:
        """Deliver messages to consumers with capacity."""

    def admit(self, consumer: Consumer) -> None:  # noqa: B027  (not every kind passes consumers over)
        """Readmit a skipped consumer with new capacity; waiting messages are delivered with the next ones."""

    def serve(self, consumer: Consumer) -> None:
        """Deliver waiting messages to a consumer with capacity, and to further ones."""
        self.dispatch()

    # --- what the management API shows ---

    def status(self) -> dict[str, Any]:
        """Return type-specific fields for the management API, by RabbitMQ's keys."""
        return {}

    # --- limits and time ---

    def limits_under(self, policy: Mapping[str, Any]) -> Limits:
        """Return the limits under a validated policy definition."""
        return Limits.of(self.arguments, policy, self.type)

    @abstractmethod
    def set_limits(self, limits: Limits) -> None:
        """Change the limits: surplus messages go at once, present messages keep their expiry."""

    def expect_expiry(self) -> None:  # noqa: B027  (not every kind acts on it)
        """Prepare for messages with an ``expires_at``."""

    @abstractmethod
    def trim(self, now: float) -> None:
        """Do one bounded step of due work: drop expired messages, and messages beyond limits.

        For further work, the queue schedules maintenance with :meth:`wake`.

        Args:
            now: time by :mod:`~jumpmq.queues.clock`.
        """

    def maintain(self, now: float) -> bool:
        """Run due maintenance; return True if the queue's lease (``x-expires``) is over."""
        # Before the work, which may schedule the next maintenance.
        self.wakes_at = NEVER
        expires = self.limits.expires
        if expires is not None and not self.deleted:
            left = self.until_unused_for(expires)
            if left <= 0:
                return True
            self.wake(now + left)
        self.trim(now)
        return False

    def wake(self, at: float) -> None:
        """Schedule maintenance at a time, or earlier."""
        if at < self.wakes_at:
            self.wakes_at = at
            self._wake(self, at)

    def mind_lease(self) -> None:
        """Schedule maintenance for the end of the queue's lease (``x-expires``)."""
        if self.limits.expires is not None:
            self.wake(clock.now() + self.until_unused_for(self.limits.expires))

    def until_unused_for(self, expires: int) -> float:
        """Return the seconds until the queue is unused for ``expires`` milliseconds. Time in which the machine is
        suspended does not count: no client could use the queue then.
        """
        unused = 0.0 if self.consumers else time.monotonic() - self.last_used
        return expires / 1000 - unused

    def touch(self) -> None:
        """Note a use of the queue: restarts the lease (``x-expires``)."""
        self.last_used = time.monotonic()
