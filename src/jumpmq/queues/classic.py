"""The classic queue: messages in the order of their arrival, each delivered to one consumer at a time."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.messages import Message, body_octets, enter_queue, settle
from jumpmq.amqp.properties import EXPIRATION, Properties
from jumpmq.queues.arguments import Limits
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.ready import BatchReader, ReadyMessages
from jumpmq.store import Batch

if TYPE_CHECKING:
    from jumpmq.queues.reader import Reader

CHUNK = 1000
"""The most messages handed to consumers before their capacity is asked again."""

CHUNK_OCTETS = 1 << 20
"""The most octets of bodies handed to consumers at once, give or take one message."""

SEQUENCE_BLOCK = 1 << 20
"""Message numbers are reserved in the journal in blocks of this size, so that none is ever given twice."""

DEFAULT_BUDGET = 64 << 20
"""Octets of memory that a queue's ready messages may take; beyond it the store holds them."""


class Journal(BatchReader, Protocol):
    """Where a durable queue keeps its messages; the store is one."""

    def append(self, queue_id: int, messages: list[Message]) -> object: ...
    def put(self, kind: str, key: str, value: Any) -> None: ...
    def delete(self, kind: str, key: str) -> None: ...
    def drop_queue(self, queue_id: int) -> None: ...


DeadLetter = Callable[["ClassicQueue", list[Message], str], None]
"""Told of messages that died in a queue, and why."""


def ignore_dead(queue: "ClassicQueue", messages: list[Message], reason: str) -> None:
    """Nobody wants the dead."""


class ClassicQueue:
    """A queue of a virtual host.

    Args:
        vhost, name: where it is.
        id: its number in the store, never reused.
        durable, exclusive, auto_delete, arguments: as declared.
        node: its home node.
        journal: where persistent messages are kept; None keeps them in memory only.
        owner: name of the connection that an exclusive queue belongs to.
        budget: octets of memory for ready messages; what is beyond stays in the store alone.

        on_dead: called with messages that expired, overflowed or were rejected, and the reason
            (``expired``, ``maxlen``, ``rejected``), after they left the queue.

    Attributes:
        readers: the groups that hold reservations of it, by name.
        published, delivered, acknowledged: message counts since the broker started.
    """

    type = "classic"

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
        journal: Journal | None = None,
        owner: str | None = None,
        budget: int = DEFAULT_BUDGET,
        on_dead: DeadLetter = ignore_dead,
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.id = id
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = dict(arguments or {})
        self.node = node
        self.owner = owner
        self.limits = Limits.of(self.arguments)
        self.consumers: list[Consumer] = []
        self.readers: dict[str, Reader] = {}
        self.last_used = time.time()
        self.deleted = False
        self._on_dead = on_dead
        self.published = self.delivered = self.acknowledged = 0
        self.unacknowledged_count = 0
        self._journal = journal if durable and not exclusive else None
        self._ready = ReadyMessages(journal, self._prepare, budget)
        self._next_seq = 1
        self._reserved_seq = 0
        self._delivered_seq = 0
        self._turn = 0
        self._active: Consumer | None = None
        self._expiring = False
        self._limited = self.limits.has_length

    def __repr__(self) -> str:
        return f"<queue {self.name!r} in vhost {self.vhost!r}>"

    # --- contents ---

    @property
    def ready_count(self) -> int:
        """Messages waiting for a consumer."""
        return len(self._ready)

    @property
    def message_count(self) -> int:
        """Ready and unacknowledged messages."""
        return len(self._ready) + self.unacknowledged_count

    @property
    def memory(self) -> int:
        """Octets of memory that the ready messages take, roughly."""
        return self._ready.memory

    @property
    def next_seq(self) -> int:
        """The number that the next message will get."""
        return self._next_seq

    def restore(self, batches: list[Batch], next_seq: int, delivered_seq: int | None) -> None:
        """Take back what the store kept, without reading it.

        Args:
            batches: in order.
            next_seq: the lowest number not yet reserved.
            delivered_seq: the highest number that was delivered; None where that is unknown, as the broker did not
                stop cleanly: any message may have been delivered before.
        """
        for batch in batches:
            self._ready.restore(batch, batch.last_seq if delivered_seq is None else delivered_seq)
            next_seq = max(next_seq, batch.last_seq + 1)
        if delivered_seq is None:
            delivered_seq = batches[-1].last_seq if batches else 0
        self._next_seq = next_seq
        self._delivered_seq = delivered_seq
        self._expiring = bool(batches)

    def push(self, messages: list[Message]) -> list[Message]:
        """Add messages at the end and deliver what consumers have room for.

        A message that already is in another queue is copied. Messages must have been given their own expiry, if any,
        in ``expires_at``.

        Returns:
            The messages that were refused (``x-overflow`` is ``reject-publish``).
        """
        if self._limited and self.limits.overflow != "drop-head":
            return self._push_what_fits(messages)
        self._enter(messages)
        return []

    def _enter(self, messages: list[Message]) -> None:
        messages = enter_queue(messages, self, self._next_seq)
        self._next_seq += len(messages)
        self.published += len(messages)
        if self.limits.message_ttl is not None:
            self._set_ttl(messages, self.limits.message_ttl)
        self._store(messages)
        self._ready.extend(messages, body_octets(messages))
        if self.consumers:
            self.dispatch()
        if self._limited or self._expiring:
            self.trim(time.time())

    @property
    def expiring(self) -> bool:
        """Whether messages may expire here, so that somebody must :meth:`trim` the queue now and then."""
        return self._expiring and len(self._ready) > 0

    def touch(self) -> None:
        """Somebody used the queue: it does not expire for another while (``x-expires``)."""
        self.last_used = time.time()

    def note_expiry(self) -> None:
        """Messages with an ``expires_at`` are coming."""
        self._expiring = True

    def take(self, count: int) -> list[Message]:
        """Remove up to ``count`` messages from the front; they count as unacknowledged until acked or requeued."""
        if self._expiring:
            self.trim(time.time())
        return self._note_taken(self._ready.take(count))

    def _take_chunk(self, count: int) -> list[Message]:
        """As :meth:`take`, but no more than consumers should be handed at once."""
        if self._expiring:
            self.trim(time.time())
        return self._note_taken(self._ready.take_octets(min(count, CHUNK), CHUNK_OCTETS))

    def _note_taken(self, messages: list[Message]) -> list[Message]:
        if messages:
            self.unacknowledged_count += len(messages)
            self.delivered += len(messages)
            self._delivered_seq = max(self._delivered_seq, messages[-1].seq)
        return messages

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """As :meth:`take`, but only messages numbered ``first_seq`` to ``last_seq``."""
        if self._expiring:
            self.trim(time.time())
        return self._note_taken(self._ready.take_range(first_seq, last_seq, count))

    def browse(self, first_seq: int, last_seq: int) -> Iterator[Message]:
        """Ready messages numbered ``first_seq`` to ``last_seq``, in order; they stay in the queue, which may go on."""
        return self._ready.between(first_seq, last_seq)

    def ack(self, messages: list[Message]) -> None:
        """Forget taken messages for good."""
        if self.deleted:
            return
        self.unacknowledged_count -= len(messages)
        self.acknowledged += len(messages)
        settle(messages)

    def requeue(self, messages: list[Message]) -> None:
        """Return taken messages to their places, marked redelivered, and deliver anew."""
        if self.deleted or not messages:
            return
        self.unacknowledged_count -= len(messages)
        for message in messages:
            message.redelivered = True
            message.consumer = None
        self._ready.put_back(messages)
        if self._limited:
            self.trim(time.time())
        self.dispatch()

    def reject(self, messages: list[Message]) -> None:
        """Forget taken messages, or dead-letter them where the queue has a dead letter exchange."""
        if self.deleted:
            return
        self.unacknowledged_count -= len(messages)
        self._bury(messages, "rejected")

    def checkpoint(self) -> None:
        """Note where numbering and deliveries stand, for a restart after a clean stop."""
        if self._journal is None:
            return
        if self._reserved_seq:
            self._journal.put("sequence", str(self.id), self._next_seq)
        if self._delivered_seq:
            self._journal.put("delivered", str(self.id), self._delivered_seq)

    def purge(self) -> int:
        """Remove all ready messages; returns how many there were."""
        count = len(self._ready)
        messages, batches = self._ready.drop_all()
        settle(messages)
        for batch in batches:
            batch.settle_all()
        return count

    def peek(self, first_seq: int, last_seq: int, limit: int | None = None) -> list[Message]:
        """Ready messages numbered ``first_seq`` to ``last_seq``, in order, at most ``limit``; they stay ready."""
        return list(islice(self._ready.between(first_seq, last_seq), limit))

    def delete(self) -> int:
        """Drop everything and cancel the consumers; returns how many messages were ready."""
        count = len(self._ready)
        self.deleted = True
        self._ready.drop_all()
        if self._journal is not None:
            self._journal.drop_queue(self.id)
            self._journal.delete("sequence", str(self.id))
            self._journal.delete("delivered", str(self.id))
            for reader in self.readers.values():
                self._journal.delete("reservation", reader.key)
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            consumer.cancelled()
        return count

    # --- consumers ---

    def add_consumer(self, consumer: Consumer) -> None:
        """Serve a consumer from now on.

        Raises:
            AccessRefused: it, or one that is here, wants the queue for itself.
        """
        wanted_alone = consumer.exclusive and (self.consumers or self.limits.single_active_consumer)
        if wanted_alone or any(other.exclusive for other in self.consumers):
            raise AccessRefused(f"queue '{self.name}' in vhost '{self.vhost}' in exclusive use")
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda one: -one.priority)
        self._choose_active()
        self.last_used = time.time()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Serve it no longer; what it holds unacknowledged stays its own."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.last_used = time.time()
            if self.limits.single_active_consumer:
                self._choose_active()
                self.dispatch()

    @property
    def active_consumer(self) -> Consumer | None:
        """The one that is served where one is at a time: the first to come, until it leaves; then by priority."""
        return self._active

    def _choose_active(self) -> None:
        if not self.limits.single_active_consumer or not self.consumers:
            self._active = None
        elif self._active not in self.consumers:
            self._active = self.consumers[0]

    def dispatch(self) -> None:
        """Deliver ready messages to consumers with room, in turn."""
        while len(self._ready):
            eligible = self._eligible()
            if not eligible:
                return
            room = min(capacity for _, capacity in eligible)
            taken = self._take_chunk(room * len(eligible))
            if len(eligible) == 1:
                self._hand(eligible[0][0], taken)
                continue
            self._turn += len(taken)
            for place, (consumer, _) in enumerate(eligible):
                if share := taken[place :: len(eligible)]:
                    self._hand(consumer, share)

    def _eligible(self) -> list[tuple[Consumer, int]]:
        """The consumers of the highest priority that have room, next in turn first."""
        found: list[tuple[Consumer, int]] = []
        for consumer in self.consumers if self._active is None else (self._active,):
            if found and consumer.priority < found[0][0].priority:
                break
            capacity = consumer.capacity()
            if capacity > 0:
                found.append((consumer, capacity))
        if len(found) > 1:
            start = self._turn % len(found)
            return found[start:] + found[:start]
        return found

    def _hand(self, consumer: Consumer, messages: list[Message]) -> None:
        if not messages:
            return
        consumer.deliver(messages)
        if consumer.no_ack:
            self.ack(messages)

    # --- limits ---

    def set_limits(self, limits: Limits) -> None:
        """Act by other limits from now on: what is too much goes at once, messages that are here keep their expiry."""
        self.limits = limits
        self._limited = limits.has_length
        self._choose_active()
        self.touch()
        self.trim(time.time())
        self.dispatch()

    def trim(self, now: float) -> None:
        """Let go of what has expired at the front, and of what is beyond the length limits.

        Args:
            now: seconds since the epoch.
        """
        if self._expiring:
            self._bury(list(self._expired(now)), "expired")
        while self._is_over() and (first := self._ready.take(1)):
            self._bury(first, "maxlen")

    def _expired(self, now: float) -> Iterator[Message]:
        while (message := self._ready.first()) is not None and 0.0 < message.expires_at <= now:
            yield from self._ready.take(1)

    def _is_over(self) -> bool:
        """Whether the ready messages are beyond a length limit."""
        limits = self.limits
        return (limits.max_length is not None and len(self._ready) > limits.max_length) or (
            limits.max_length_bytes is not None and self._ready.size > limits.max_length_bytes
        )

    def _push_what_fits(self, messages: list[Message]) -> list[Message]:
        """Push one by one, as each may be delivered and so make room for the next; returns what found none."""
        refused = []
        for message in messages:
            if self._has_room(message):
                self._enter([message])
            else:
                refused.append(message)
        if refused and self.limits.overflow == "reject-publish-dlx":
            self._on_dead(self, refused, "maxlen")
        return refused

    def _has_room(self, message: Message) -> bool:
        """Whether the length limits admit one more."""
        limits = self.limits
        return (limits.max_length is None or len(self._ready) < limits.max_length) and (
            limits.max_length_bytes is None or self._ready.size + len(message.body) <= limits.max_length_bytes
        )

    def _set_ttl(self, messages: list[Message], ttl: int) -> None:
        expires_at = time.time() + ttl / 1000
        self._expiring = True
        for message in messages:
            if not 0.0 < message.expires_at < expires_at:
                message.expires_at = expires_at

    def _bury(self, messages: list[Message], reason: str) -> None:
        if messages:
            if self.limits.dead_letter_exchange is not None:
                self._on_dead(self, messages, reason)
            settle(messages)

    # --- the store ---

    def _store(self, messages: list[Message]) -> None:
        """Keep the persistent ones."""
        if self._journal is None:
            return
        if self._next_seq > self._reserved_seq:
            self._reserved_seq = self._next_seq + SEQUENCE_BLOCK
            self._journal.put("sequence", str(self.id), self._reserved_seq)
        stored = [message for message in messages if message.persistent]
        if stored:
            self._journal.append(self.id, stored)

    def _prepare(self, messages: list[Message]) -> None:
        """Make messages that were read back from the store the queue's again."""
        ttl = self.limits.message_ttl
        for message in messages:
            message.queue = self
            own = expiration_of(message)
            lifetimes = [one for one in (ttl, own) if one is not None]
            if lifetimes:
                message.expires_at = message.published_at + min(lifetimes) / 1000


def expiration_of(message: Message) -> int | None:
    """The message's own time to live in milliseconds, if it was published with one."""
    if not message.properties[0] & EXPIRATION >> 8:
        return None
    expiration = Properties.parse(message.properties).expiration
    return int(expiration) if expiration else None
