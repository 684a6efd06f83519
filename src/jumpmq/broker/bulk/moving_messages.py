"""Moving messages at an operator's request, such as dead-lettered messages: the broker publishes messages of a queue
again, and removes them from the queue.

Messages to classic and quorum queues of this home are published and settled in one commit: after any kill, each message
is in exactly one queue. Messages to streams or to other homes are settled when they have arrived: after a kill in
between, a message is in both queues, and no message is lost. Messages that cannot be moved return to their place.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Protocol

from jumpmq.amqp.errors import AMQPError, NotFound, PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import EXPIRATION, HEADERS, Properties
from jumpmq.broker.channel.publishing import set_expiry
from jumpmq.broker.channel.returning import put_back
from jumpmq.broker.routing import routing
from jumpmq.broker.routing.sending import Sender, Sent
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.upkeep.slices import SLICE, Sliced, in_turns
from jumpmq.queues import Outcome, Queue
from jumpmq.queues.memory import Held
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.envelope import Envelope

AT_ONCE, AT_LEAST = 200, 8
"""Maximum and minimum number of messages moved together. The number falls while a step takes longer than a time slice,
for example at an exchange with many queues.
"""

UNCOMMITTED = 8 << 20
"""Octets of bodies after which a move waits for the disk: a larger backlog delays publishers."""


class Running(Sliced, Protocol):
    """Broker interface required by moves.

    Attributes:
        authorization: permissions of users.
    """

    authorization: Authorization

    @property
    def sender(self) -> Sender:
        """Sender to queues of other homes; without any, :data:`~jumpmq.broker.routing.sending.NOWHERE`."""

    async def committed(self) -> None:
        """Wait until all changes are on disk."""

    async def count_published(self, user: Principal, messages: int) -> None:
        """Count a user's published messages, and wait until the user may publish again."""


@dataclass(frozen=True)
class MoveDestination:
    """Destination of moved messages. With neither a queue nor an exchange, every message goes to the queue of its last
    death, with the exchange and routing key of its arrival there.

    Attributes:
        queue: name of the queue; the messages are addressed as by the default exchange.
        exchange: name of the exchange.
        routing_key: routing key for the exchange; None keeps the key of each message.
    """

    queue: str | None = None
    exchange: str | None = None
    routing_key: bytes | None = None


@dataclass
class MovedMessages:
    """Outcome of a move.

    Attributes:
        moved: number of messages at their destination, and no longer in the queue.
        kept: number of messages that could not be moved, and are in their places again, by reason.
    """

    moved: int = 0
    kept: dict[str, int] = field(default_factory=dict)


async def move_messages(
    broker: Running, user: Principal, host: VirtualHost, queue: Queue, destination: MoveDestination, count: int
) -> MovedMessages:
    """Move up to ``count`` messages from the front of a queue, in steps; other clients are served in between.

    Raises:
        AMQPError: the user may not publish to the destination, the destination is missing, or the queue is a stream,
            its own destination, or consumed by a consumer group.
    """
    moving = _Moving(broker, user, host, queue, destination)
    left = count
    async with moving.going_on():
        while left > 0 and not queue.deleted:
            if not queue.knows_next:
                await _next_known(queue)
            taken = await moving.step(partial(moving.take_next, left))
            if not taken and queue.knows_next:
                break
            left -= taken
    return moving.done


async def move_numbered(
    broker: Running,
    user: Principal,
    host: VirtualHost,
    queue: Queue,
    destination: MoveDestination,
    numbers: Iterable[int],
) -> MovedMessages:
    """Move the messages with these numbers, in steps, in order; messages no longer ready are skipped.

    Raises:
        AMQPError: as :func:`move_messages`.
    """
    moving = _Moving(broker, user, host, queue, destination, Held.RESERVED)
    runs = deque(_runs(sorted(set(numbers))))
    async with moving.going_on():
        while runs and not queue.deleted:
            await moving.step(partial(_take_numbered, queue, runs))
    return moving.done


async def delete_numbered(broker: Running, queue: Queue, numbers: Iterable[int]) -> int:
    """Delete the messages with these numbers, in steps; return the number of deleted messages when the deletion is on
    disk. Messages no longer ready are skipped.

    Raises:
        AMQPError: the queue is a stream, or consumed by a consumer group.
    """
    if queue.append_only:
        raise PreconditionFailed(f"queue '{queue.name}' is a stream: its messages are read, not deleted")
    queue.require_unshared()
    queue.touch()
    runs, deleted = deque(_runs(sorted(set(numbers)))), 0
    while runs and not queue.deleted:
        with broker.turns.turn(), broker.turns.together():
            queue.require_unshared()
            taken = _take_numbered(queue, runs, AT_ONCE)
            queue.settle(taken, Outcome.ACKNOWLEDGED, Held.RESERVED)
        deleted += len(taken)
        await broker.slices.next()
    await broker.committed()
    return deleted


def _take_numbered(queue: Queue, runs: deque[tuple[int, int]], count: int) -> list[Message]:
    """Take messages of the first runs for half a slice, and remove finished runs."""
    taken: list[Message] = []
    until = time.perf_counter() + SLICE / 2
    while runs and len(taken) < count and time.perf_counter() < until:
        first, last = runs[0]
        some = queue.take_range(first, last, count - len(taken))
        taken += some
        if not some or len(some) > last - first:
            runs.popleft()
    return taken


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of every consecutive run; the numbers are in order."""
    for _, run in groupby(enumerate(numbers), key=lambda numbered: numbered[1] - numbered[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


async def _next_known(queue: Queue) -> None:
    """Wait until the next message of the queue is known."""
    known = asyncio.get_running_loop().create_future()
    queue.when_next_known(lambda: None if known.done() else known.set_result(None))
    await known


@dataclass
class _Step:
    """Messages moved together.

    Attributes:
        taken: messages taken from the queue.
        copies: published messages, each with its original.
        sent: messages sent to other homes.
        settled: True if the originals are settled without a wait.
    """

    taken: list[Message]
    copies: list[tuple[Message, Message]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    settled: bool = True


class _Moving:
    def __init__(
        self,
        broker: Running,
        user: Principal,
        host: VirtualHost,
        queue: Queue,
        destination: MoveDestination,
        holding: Held = Held.UNACKNOWLEDGED,
    ) -> None:
        self.done = MovedMessages()
        self._broker = broker
        self._user = user
        self._host = host
        self._queue = queue
        self._to = destination
        self._holding = holding  # how the queue counts the taken messages
        # Maximum number of messages of the next step; octets of moved bodies that may not be on disk.
        self._at_once, self._uncommitted = AT_LEAST, 0
        self._held: dict[int, Message] = {}  # messages taken from the queue and not settled, in order, by id()

    def require_destination(self) -> None:
        """Check source and destination.

        Raises:
            AMQPError: see :func:`move_messages`.
        """
        exchange = self._to.exchange or ""
        self._broker.authorization.require(self._user, self._host.name, "write", "exchange", exchange)
        self._host.publishable(exchange)
        if self._to.queue is not None and self._to.queue not in self._host.declared:
            raise NotFound(f"no queue '{self._to.queue}' in vhost '{self._host.name}'")
        if self._queue.append_only:
            raise PreconditionFailed(f"queue '{self._queue.name}' is a stream: its messages are read, not moved")
        if self._to.queue == self._queue.name:
            raise PreconditionFailed(f"queue '{self._queue.name}' cannot be its own destination")
        self._queue.require_unshared()

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Context of a move: at the end, unmoved messages return to the queue, and all changes are on disk."""
        self.require_destination()
        self._queue.touch()
        try:
            yield
        finally:
            await in_turns(self._broker, put_back(self._queue, self._not_moved(), self._holding))
        await self._broker.committed()

    async def step(self, take: Callable[[int], list[Message]]) -> int:
        """Move the messages returned by ``take``, called with the maximum count; return the number taken."""
        broker, began = self._broker, time.perf_counter()
        # Publish and settlement are in one commit, so that a crash neither loses nor doubles a message.
        with broker.turns.turn(), broker.turns.together():
            # A consumer group may have begun to read the queue since the last step.
            self._queue.require_unshared()
            step = self._publish(take(self._at_once))
        took_long = time.perf_counter() - began > SLICE
        self._at_once = max(AT_LEAST, self._at_once // 2) if took_long else min(AT_ONCE, self._at_once * 2)
        self._uncommitted += sum(len(message.body) for message in step.taken)
        if not step.settled:
            await self._settle_when_there(step)
        elif self._uncommitted > UNCOMMITTED:
            await broker.committed()
            self._uncommitted = 0
        await broker.count_published(self._user, len(step.taken))
        await broker.slices.next()
        return len(step.taken)

    def take_next(self, most: int, count: int) -> list[Message]:
        """Take messages from the front, up to the lower of the two numbers."""
        count = min(most, count)
        return self._queue.take_for_delivery(count) or self._queue.take(1)  # take(1) reads a paged body

    def _publish(self, taken: list[Message]) -> _Step:
        """Publish messages, and settle them unless a wait is required; called within an event-loop iteration of the
        broker.
        """
        step = _Step(taken)
        if not taken:
            return step
        # Noted first: after an error, `going_on` returns the messages to the queue.
        self._held |= {id(message): message for message in step.taken}
        to_queues: dict[DeclaredQueue, list[Message]] = {}
        to_exchange: list[Message] = []
        for message in step.taken:
            try:
                copy, declared = self._addressed(message)
            except AMQPError as error:
                self._keep(error.text)
                continue
            step.copies.append((copy, message))
            if declared is None:
                to_exchange.append(copy)
            else:
                to_queues.setdefault(declared, []).append(copy)
        flags = _flags(step.copies)
        refused = self._push_to_queues(step, to_queues, flags)
        if to_exchange:
            refused |= self._push_to_exchange(step, to_exchange, flags)
        step.copies = [(copy, message) for copy, message in step.copies if id(copy) not in refused]
        if step.settled:
            self._settle([message for _, message in step.copies])
        return step

    def _addressed(self, message: Message) -> tuple[Message, DeclaredQueue | None]:
        """Return the copy to publish for a message, and its destination queue; None for the exchange.

        Raises:
            AMQPError: the message has no destination.
        """
        copy, to = message.copy(), self._to
        properties = Properties.parse(copy.properties)
        copy.redelivered = False
        # At the destination, the message's own TTL begins again.
        set_expiry(copy, properties)
        if to.exchange is not None:
            copy.exchange = to.exchange
            copy.routing_key = message.routing_key if to.routing_key is None else to.routing_key
            # Read now: malformed headers keep one message in its queue, instead of failing the whole run.
            Envelope.opened(copy)
            self._broker.authorization.require_publish(self._user, self._host.publishable(to.exchange), (copy,))
            return copy, None
        if to.queue is not None:
            name, copy.exchange, copy.routing_key = to.queue, "", to.queue.encode(errors="surrogateescape")
        else:
            name, copy.exchange, copy.routing_key = _last_death(properties.headers or [])
        declared = self._host.declared.get(name)
        if declared is None or declared.is_internal:
            raise NotFound(f"no queue '{name}' in vhost '{self._host.name}'")
        if declared.contents is self._queue:
            raise NotFound("it died in this queue")
        return copy, declared

    def _push_to_queues(self, step: _Step, shares: dict[DeclaredQueue, list[Message]], flags: int) -> set[int]:
        """Push shares to queues; return the ids of refused messages."""
        refused: set[int] = set()
        away: dict[DeclaredQueue, list[Message]] = {}
        for declared, share in shares.items():
            if declared.contents is None:
                away[declared] = share
                continue
            step.settled &= not declared.contents.append_only
            refused.update(map(id, routing.push_to(declared.contents, share, flags)))
        if away:
            step.sent.append(self._broker.sender.send(away, flags))
            # The other home may refuse messages, so the originals are settled after its answer.
            step.settled = False
        self._keep_copies(step, refused, "the queue has refused it")
        return refused

    def _push_to_exchange(self, step: _Step, copies: list[Message], flags: int) -> set[int]:
        """Push copies to the exchange; return the ids of refused and of unroutable messages."""
        host, broker = self._host, self._broker
        tally = host.past.channels
        pushed = routing.push(host, copies[0].exchange, copies, flags, tally, True, broker.sender)
        refused, unroutable = set(map(id, pushed.refused)), set(map(id, pushed.unroutable))
        if pushed.sent is not None:
            step.sent.append(pushed.sent)
        step.settled &= pushed.sent is None and not any(queue.append_only for queue in pushed.routes)
        self._keep_copies(step, refused, "a queue has refused it")
        self._keep_copies(step, unroutable - refused, "it reaches no queue")
        return refused | unroutable

    async def _settle_when_there(self, step: _Step) -> None:
        """Wait until published messages are on the disks of streams and other homes, then settle."""
        await self._broker.committed()
        refused: set[int] = set()
        for sent in step.sent:
            refused |= await self._refused(sent)
        with self._broker.turns.turn():
            self._keep_copies(step, refused, "a queue has refused it, or its home is down")
            self._settle([message for copy, message in step.copies if id(copy) not in refused])

    async def _refused(self, sent: Sent) -> set[int]:
        known: asyncio.Future[set[int]] = asyncio.get_running_loop().create_future()

        def answered() -> None:  # the sender forgets single refusals after this call
            if not known.done():
                known.set_result({message for message in sent.sources if sent.was_refused(message)})

        with self._broker.turns.turn():
            self._broker.sender.when_answered(sent, answered)
        return await known

    def _keep_copies(self, step: _Step, copies: set[int], reason: str) -> None:
        for copy, _ in step.copies if copies else ():
            if id(copy) in copies:
                self._keep(reason)

    def _keep(self, reason: str) -> None:
        self.done.kept[reason] = self.done.kept.get(reason, 0) + 1

    def _settle(self, messages: list[Message]) -> None:
        if messages:
            self._queue.settle(messages, Outcome.ACKNOWLEDGED, self._holding)
            self.done.moved += len(messages)
        for message in messages:
            del self._held[id(message)]

    def _not_moved(self) -> list[Message]:
        """Return the messages taken but not settled."""
        held, self._held = list(self._held.values()), {}
        return held


def _flags(copies: list[tuple[Message, Message]]) -> int:
    """Return the property flags of all messages, or-ed, limited to flags the broker acts on."""
    flags = 0
    for copy, _ in copies:
        flags |= int.from_bytes(copy.properties[:2])
    return flags & (EXPIRATION | HEADERS)


def _last_death(headers: list[Field]) -> tuple[str, str, bytes]:
    """Return the queue of a dead letter's last death, with the exchange and routing key used there.

    Raises:
        NotFound: the header is missing or malformed.
    """
    deaths: Any = next((one.value for one in headers if one.name == "x-death" and one.type == "A"), [])
    kind, table = deaths[0] if deaths else (None, [])
    found: dict[str, Any] = {one.name: one.value for one in table} if kind == "F" else {}
    queue, exchange, keys = found.get("queue"), found.get("exchange"), found.get("routing-keys")
    key = keys[0][1] if isinstance(keys, list) and keys else None
    if not (isinstance(queue, str) and isinstance(exchange, str) and isinstance(key, str)):
        raise NotFound("it is no dead letter: its header x-death does not name its former queue")
    return queue, exchange, key.encode(errors="surrogateescape")
