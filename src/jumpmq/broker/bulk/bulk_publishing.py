"""Publishing of many messages at once, without a channel.

A run of messages is validated as a whole before any message is published: the user's permissions, each message's
properties, and the routes. The validated messages are then pushed to the queues. Validating and pushing are generators
of small steps, because a run may be long and its exchange slow: other clients are served between two steps. The
validation decides the routes; a binding changed before the push has no effect, as if the messages had been published
before the change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from jumpmq.amqp.errors import NoRoute, NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.messages import Message, examine
from jumpmq.amqp.properties import HEADERS, Properties
from jumpmq.amqp.undelivered import FULL, UNROUTABLE, undelivered
from jumpmq.broker.channel.publishing import check_user_id, set_expiry
from jumpmq.broker.routing import routing
from jumpmq.broker.routing.sending import may_refuse
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authorization import Authorization
from jumpmq.queues import Queue
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.routing import Routes

Q = TypeVar("Q", Queue, DeclaredQueue)

VALIDATED_FIRST = 64
"""Number of messages validated in the first step: a topic exchange of 300 patterns takes some 20 microseconds per
message.
"""

VALIDATED_LAST = 4096
"""Maximum number of messages validated in a step."""

STEP = 0.001
"""Target duration of a validation step, in seconds: the next step has twice or half as many messages."""

PUSHED_AT_ONCE = 1024
"""Number of copies pushed to a queue per step."""

MAX_COPIES = 500_000
"""Maximum number of copies in queues per run: messages pushed in a single commit delay the commits of others, by some
0.1 s.
"""

MAX_BOUNDED_COPIES = 20_000
"""Maximum number of copies per run in queues that refuse messages when full: pushed in a single step."""


Keep = Callable[[DeclaredQueue, list[Message]], None]
"""Function that keeps messages for a queue of another home until their delivery to that home."""


class TooManyCopies(Exception):
    """The copies of a run in all queues together would exceed a limit."""


class Addressed(NamedTuple):
    """Messages of an exchange, at least one, and the destination queue; None if the exchange routes the messages."""

    queue: str | None
    messages: list[Message]


@dataclass
class Published:
    """Outcome of a bulk publish.

    Attributes:
        published: number of messages accepted by a queue.
        unroutable: number of messages that reached no queue, and were dropped.
        refused: number of messages refused by a full queue.
        undelivered: number of messages that went to the exchange for undelivered messages.
    """

    published: int = 0
    unroutable: int = 0
    refused: int = 0
    undelivered: int = 0


@dataclass
class ValidatedRun:
    """A validated run and the destinations of messages.

    Attributes:
        count: number of messages.
        user: the publisher.
        undelivered_to: exchange for undelivered (unroutable or refused) messages; None without one.
        unroutable: number of messages that reach no queue.
        undelivered: number of messages for ``undelivered_to``.
        shares: the messages of each local queue, in published order.
        remote: the messages of each queue of other homes.
        copies: number of messages in ``shares`` and ``remote``.
        bounded_copies: number of messages in ``shares`` for queues that refuse messages when full.
        flags: the property flags of all messages, or-ed.
        routes: routes by the exchanges, each with its exchange and the number of routed messages.
    """

    vhost: VirtualHost
    user: Principal
    count: int
    undelivered_to: str | None = None
    unroutable: int = 0
    undelivered: int = 0
    shares: dict[Queue, list[Message]] = field(default_factory=dict)
    remote: dict[DeclaredQueue, list[Message]] = field(default_factory=dict)
    copies: int = 0
    bounded_copies: int = 0
    flags: int = 0
    routes: list[tuple[Exchange, int, Routes]] = field(default_factory=list)

    def require_one_step(self) -> None:
        """Refuse a run with too many copies for the single step of :func:`push_all_or_none`.

        Raises:
            TooManyCopies: more than :data:`MAX_BOUNDED_COPIES`.
        """
        if self.bounded_copies > MAX_BOUNDED_COPIES:
            raise TooManyCopies(
                f"the messages would be more than {MAX_BOUNDED_COPIES} in queues that may refuse some: publish "
                "fewer at once"
            )

    def add(self, queue: Queue, messages: list[Message]) -> None:
        """Add messages to the share of a local queue, after earlier messages.

        Raises:
            TooManyCopies: more than :data:`MAX_COPIES`.
        """
        self._count(len(messages))
        if queue.limits.overflow != "drop-head":
            self.bounded_copies += len(messages)
        self.shares.setdefault(queue, []).extend(messages)

    def add_remote(self, queue: DeclaredQueue, messages: list[Message]) -> None:
        """Add messages to the share of a remote queue.

        Raises:
            TooManyCopies: more than :data:`MAX_COPIES`.
            NotImplementedByServer: the queue may refuse messages: a refusal would come after the publish.
        """
        self._count(len(messages))
        if may_refuse(self.vhost, queue):
            where = f"queue '{queue.name}' in vhost '{queue.vhost}' is at home {queue.definition.home} of this broker"
            raise NotImplementedByServer(f"{where}, and may refuse messages: a batch cannot publish to this queue")
        self.remote.setdefault(queue, []).extend(messages)

    def _count(self, copies: int) -> None:
        self.copies += copies
        if self.copies > MAX_COPIES:
            raise TooManyCopies(f"the messages would be more than {MAX_COPIES} in all queues: publish fewer at once")


def validate(
    authorization: Authorization,
    user: Principal,
    vhost: VirtualHost,
    messages: list[Addressed],
    *,
    drop_unroutable: bool,
    undelivered_to: str | None = None,
) -> Generator[None, None, ValidatedRun]:
    """Validate and route messages; every step is some milliseconds of work at most.

    Args:
        drop_unroutable: True to drop messages that reach no queue, instead of an error.
        undelivered_to: exchange for messages that reach no queue; None without one.

    Raises:
        NoRoute: a message reaches no queue, nor a queue of ``undelivered_to``.
        TooManyCopies: the run needs too many copies; publish fewer messages at once.
        NotImplementedByServer: a message reaches a queue of another home that may refuse messages.
        AMQPError: the user may not publish to an exchange, an exchange is missing, or a message is malformed.
    """
    validated = ValidatedRun(vhost, user, sum(len(one.messages) for one in messages), undelivered_to)
    lost: dict[str, list[Message]] = {}
    due = 0.0
    for queue, exchange, run in _runs(messages):
        flags = _examined(authorization, user, run)
        validated.flags |= flags
        _require_allowed(authorization, user, vhost, exchange if queue is None else "", run)
        missed = _find_routes(validated, queue, exchange, run, flags)
        if missed and undelivered_to is not None:
            _send_on(validated, authorization, missed, UNROUTABLE)
        elif missed and not drop_unroutable:
            if queue is not None:
                raise NoRoute(f"no queue '{queue}' in vhost '{vhost.name}'")
            lost.setdefault(exchange, []).extend(missed)
        validated.unroutable += len(missed)
        if time.perf_counter() >= due:
            yield
            due = time.perf_counter() + STEP
    for exchange, missed in lost.items():
        # Behind the validation, so that the error has the number of all lost messages.
        key = missed[0].routing_key.decode("utf-8", "replace")
        raise NoRoute(f"{len(missed)} messages to exchange '{exchange}' reach no queue, one of them with key '{key}'")
    return validated


def push(validated: ValidatedRun, keep: Keep) -> Generator[None, None, Published]:
    """Push the routed messages to their queues; every step is some milliseconds of work, to be done in an event-loop
    iteration.

    Args:
        keep: gets the messages for queues of other homes.
    """
    for _, _, routes in validated.routes:
        routes.strip()
        yield
    refused = yield from _push_shares(validated, validated.shares)
    yield from _keep_shares(validated, keep)
    yield from _count(validated)
    return _published(validated, len(refused))


def push_all_or_none(
    validated: ValidatedRun, authorization: Authorization, keep: Keep
) -> Generator[None, None, Published]:
    """As :func:`push`, but send messages refused by a full queue to the exchange for undelivered messages; without such
    an exchange, or with a full queue behind it, no queue gets any message.

    One step checks the room in queues and pushes the messages, because other publishers may fill the room between two
    steps. After an error, no message is pushed.

    Raises:
        AMQPError: the user may not publish to the exchange for undelivered messages, or a refused message reaches no
            queue there.
        TooManyCopies: the run needs too many copies.
    """
    vhost = validated.vhost
    for _, _, routes in validated.routes:
        routes.strip()
        yield
    refused = _refused(validated)
    if refused and validated.undelivered_to is not None:
        ids = {id(message) for message in refused}
        validated.shares = _without(validated.shares, ids)
        validated.remote = _without(validated.remote, ids)
        _send_on(validated, authorization, refused, FULL)
        validated.require_one_step()
        refused_there = _refused(validated)
    else:
        refused_there = refused
    if refused_there:
        return Published(refused=len(refused))
    bounded = _bounded(validated)
    for queue, share in bounded.items():
        # The queue may have been deleted since the validation.
        if vhost.queues.get(queue.name) is queue:
            routing.push_to(queue, share, validated.flags, fitting=True)
    # Queues that may refuse messages have theirs, so the rest needs no single step.
    yield
    yield from _push_shares(
        validated, {queue: share for queue, share in validated.shares.items() if queue not in bounded}
    )
    yield from _keep_shares(validated, keep)
    yield from _count(validated)
    return _published(validated, 0)


def _without(shares: dict[Q, list[Message]], ids: set[int]) -> dict[Q, list[Message]]:
    """Return the shares, with the messages of the given ``id`` values removed."""
    return {queue: [message for message in share if id(message) not in ids] for queue, share in shares.items()}


def _bounded(validated: ValidatedRun) -> dict[Queue, list[Message]]:
    """Return the shares of queues with an overflow policy that may refuse messages."""
    return {queue: share for queue, share in validated.shares.items() if queue.limits.overflow != "drop-head"}


def _refused(validated: ValidatedRun) -> list[Message]:
    """Return the messages refused by some queue, without duplicates."""
    found = {
        id(message): message for queue, share in _bounded(validated).items() for message in queue.would_refuse(share)
    }
    return list(found.values())


def _published(validated: ValidatedRun, refused: int) -> Published:
    unroutable = validated.unroutable if validated.undelivered_to is None else 0
    return Published(
        validated.count - refused - unroutable - validated.undelivered, unroutable, refused, validated.undelivered
    )


def _send_on(validated: ValidatedRun, authorization: Authorization, messages: list[Message], reason: str) -> None:
    """Send undeliverable messages to the exchange for undelivered messages.

    Raises:
        AMQPError: the user may not publish to the exchange, the exchange is missing, or a message reaches no queue
            there.
        TooManyCopies: the run needs too many copies.
    """
    exchange, vhost = validated.undelivered_to, validated.vhost
    assert exchange is not None
    found = []
    for message in messages:
        properties = undelivered(message.properties, message.exchange, reason)
        letter = Message(
            exchange, message.routing_key, properties, message.body, message.persistent, message.published_at
        )
        letter.expires_at = message.expires_at
        found.append(letter)
    _require_allowed(authorization, validated.user, vhost, exchange, found)
    validated.flags |= HEADERS
    if _find_routes(validated, None, exchange, found, HEADERS):
        raise NoRoute(f"messages that are {reason} go to exchange '{exchange}', and reach no queue there")
    validated.undelivered += len(found)


def _push_shares(validated: ValidatedRun, shares: dict[Queue, list[Message]]) -> Generator[None, None, set[int]]:
    """Push the shares to their queues; return the ids of messages refused by a queue."""
    vhost = validated.vhost
    refused: set[int] = set()
    for queue, share in shares.items():
        for first in range(0, len(share), PUSHED_AT_ONCE):
            # The queue may have been deleted between two steps.
            if vhost.queues.get(queue.name) is queue:
                refused.update(map(id, routing.push_to(queue, share[first : first + PUSHED_AT_ONCE], validated.flags)))
            yield
    return refused


def _keep_shares(validated: ValidatedRun, keep: Keep) -> Generator[None, None, None]:
    """Keep the shares of remote queues."""
    vhost = validated.vhost
    for queue, share in validated.remote.items():
        for first in range(0, len(share), PUSHED_AT_ONCE):
            if vhost.declared.get(queue.name) is queue:
                keep(queue, share[first : first + PUSHED_AT_ONCE])
            yield


def _count(validated: ValidatedRun) -> Generator[None, None, None]:
    """Count the pushed messages in the statistics of exchanges and of the virtual host."""
    tally = validated.vhost.past.channels
    messages, all_copies, unroutable = validated.count + validated.undelivered, validated.copies, validated.unroutable
    for exchange, count, routes in validated.routes:
        shares = chain(routes.queues.values(), (routes.remote or {}).values())
        copies, missed = sum(map(len, shares)), len(routes.unroutable)
        exchange.received += count
        routing.count(tally, exchange, count, copies, missed)
        messages, all_copies, unroutable = messages - count, all_copies - copies, unroutable - missed
        routes.count()
        yield
    routing.count(tally, None, messages, all_copies, unroutable)


def _runs(messages: list[Addressed]) -> Iterator[tuple[str | None, str, list[Message]]]:
    """Yield pieces of messages of one queue or exchange, of the number validated in a :data:`STEP` before."""
    size, began = VALIDATED_FIRST, 0.0
    for queue, run in messages:
        first = 0
        while first < len(run):
            now = time.perf_counter()
            if began:
                size = max(1, size // 2) if now - began > STEP else min(VALIDATED_LAST, size * 2)
            began = now
            piece = run if first == 0 and len(run) <= size else run[first : first + size]
            yield queue, piece[0].exchange, piece
            first += len(piece)


def _require_allowed(
    authorization: Authorization, user: Principal, vhost: VirtualHost, exchange: str, run: list[Message]
) -> None:
    authorization.require(user, vhost.name, "write", "exchange", exchange)
    authorization.require_publish(user, vhost.publishable(exchange), run)


def _find_routes(
    validated: ValidatedRun, queue: str | None, exchange: str, run: list[Message], flags: int
) -> list[Message]:
    """Add a run to the shares of its destinations; return the messages that reach no queue."""
    vhost = validated.vhost
    if queue is not None:
        if queue not in vhost.declared or vhost.declared[queue].is_internal:
            return run
        if queue not in vhost.queues:
            validated.add_remote(vhost.declared[queue], run)
            return []
        validated.add(vhost.queues[queue], run)
        return []
    source = vhost.publishable(exchange)
    routes = vhost.preview(source, run, plain=not flags & HEADERS)
    if routes.error is not None:
        raise routes.error
    for declared, share in (routes.remote or {}).items():
        validated.add_remote(declared, share)
    for target, share in routes.queues.items():
        validated.add(target, share)
    validated.routes.append((source, len(run), routes))
    return routes.unroutable


def _examined(authorization: Authorization, user: Principal, messages: list[Message]) -> int:
    """Check the properties of messages and set persistence accordingly; return the properties' flags, or-ed.

    Raises:
        AMQPError: a message's properties are malformed, or have a user id that the user may not set.
    """
    flags, acted_on = examine(messages)
    if flags < 0:
        raise PreconditionFailed("the properties of a message are malformed")
    for message in acted_on:
        properties = Properties.parse(message.properties)
        set_expiry(message, properties)
        check_user_id(authorization, message, properties, user)
    return flags
