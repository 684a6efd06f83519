"""Many messages published at once, by who needs no channel for it.

A run is judged as a whole before anything of it is published: whether the user may, whether each message is well-formed
and where it goes. What was judged is then pushed to the queues. Both are generators of small steps, as a run may be
long and its exchange slow: others are served between any two. Where the messages go is decided when they are judged;
what is bound or unbound before they are pushed changes nothing for them, as if they had been published before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from jumpmq.amqp.errors import NoRoute, PreconditionFailed
from jumpmq.amqp.messages import Message, check_properties
from jumpmq.amqp.properties import EXPIRATION, HEADERS, USER_ID, Properties
from jumpmq.broker.channel.publishing import check_properties_of
from jumpmq.broker.routing import routing
from jumpmq.broker.security.authorization import Authorization
from jumpmq.queues import Queue
from jumpmq.topology import VirtualHost
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.routing import Routes

JUDGED_AT_ONCE = 64
"""Messages: at a topic exchange of 300 patterns some 20 microseconds each."""

PUSHED_AT_ONCE = 1024
"""Copies that a queue is given at once."""

MAX_COPIES = 500_000
"""Of the messages of a run in queues: what is pushed in one commit holds up the commits of others, some 0.1 s."""

MAX_BOUNDED_COPIES = 20_000
"""The same of queues that refuse messages when they are full, which are given them in one step."""


class TooManyCopies(Exception):
    """The messages of a run would be too many in all queues together."""


class Addressed(NamedTuple):
    """A message, and the queue that it is for; None where its exchange decides."""

    queue: str | None
    message: Message


@dataclass
class Published:
    """What became of messages.

    Attributes:
        published: those that a queue has taken.
        unroutable: those that reached no queue, and are gone.
        refused: those that a queue refused, because it is full.
    """

    published: int = 0
    unroutable: int = 0
    refused: int = 0


@dataclass
class Judged:
    """A run that may be published, and where its messages go.

    Attributes:
        count: how many messages there are.
        unroutable: how many of them reach no queue.
        shares: the messages of each queue, in published order.
        copies: how many messages these are together.
        bounded_copies: how many of them go to queues that may refuse some.
        flags: the property flags of all messages, or-ed.
        routes: as exchanges gave them, each with its exchange, and how many messages it was asked for.
    """

    vhost: VirtualHost
    count: int
    unroutable: int = 0
    shares: dict[Queue, list[Message]] = field(default_factory=dict)
    copies: int = 0
    bounded_copies: int = 0
    flags: int = 0
    routes: list[tuple[Exchange, int, Routes]] = field(default_factory=list)

    def require_one_step(self) -> None:
        """Refuse what :func:`push_all_or_none` could not do in steps that are short enough.

        Raises:
            TooManyCopies: see there.
        """
        if self.bounded_copies > MAX_BOUNDED_COPIES:
            raise TooManyCopies(
                f"the messages would be more than {MAX_BOUNDED_COPIES} in queues that may refuse some: publish "
                "fewer at once"
            )

    def add(self, queue: Queue, messages: list[Message]) -> None:
        """Messages go to a queue, behind those that do already.

        Raises:
            TooManyCopies: see there.
        """
        self.copies += len(messages)
        if self.copies > MAX_COPIES:
            raise TooManyCopies(f"the messages would be more than {MAX_COPIES} in all queues: publish fewer at once")
        if queue.limits.overflow != "drop-head":
            self.bounded_copies += len(messages)
        self.shares.setdefault(queue, []).extend(messages)


def judge(
    authorization: Authorization, user: str, vhost: VirtualHost, messages: list[Addressed], *, drop_unroutable: bool
) -> Generator[None, None, Judged]:
    """Whether messages may be published, and where they go; every step is some milliseconds of work at most.

    Args:
        drop_unroutable: whether messages that reach no queue are dropped; else they are an error.

    Raises:
        NoRoute: a message reaches no queue.
        TooManyCopies: see there; fewer messages may be published.
        AMQPError: the user may not publish to an exchange, or it is not there, or a message is malformed.
    """
    judged = Judged(vhost, len(messages))
    examine = _Examination(authorization, user)
    lost: dict[str, list[Message]] = {}
    for queue, exchange, run in _runs(messages):
        flags = examine(run)
        judged.flags |= flags
        _require_allowed(authorization, user, vhost, exchange if queue is None else "", run)
        missed = _find_routes(judged, queue, exchange, run, flags)
        if missed and not drop_unroutable:
            if queue is not None:
                raise NoRoute(f"no queue '{queue}' in vhost '{vhost.name}'")
            lost.setdefault(exchange, []).extend(missed)
        judged.unroutable += len(missed)
        yield
    for exchange, missed in lost.items():
        key = missed[0].routing_key.decode("utf-8", "replace")
        raise NoRoute(f"{len(missed)} messages to exchange '{exchange}' reach no queue, one of them with key '{key}'")
    return judged


def push(judged: Judged) -> Generator[None, None, Published]:
    """Give queues what they were found to get; every step is some milliseconds of work, to be done in a turn."""
    for _, _, routes in judged.routes:
        routes.strip()
        yield
    refused = yield from _push_shares(judged, judged.shares)
    yield from _count(judged)
    return Published(judged.count - len(refused) - judged.unroutable, judged.unroutable, len(refused))


def push_all_or_none(judged: Judged) -> Generator[None, None, Published]:
    """As :func:`push`, but where a queue that is full would refuse a message, no queue gets any.

    Whether there is room is looked at, and taken, in one step, as anybody else may take it between two.
    """
    vhost = judged.vhost
    for _, _, routes in judged.routes:
        routes.strip()
        yield
    bounded = {queue: share for queue, share in judged.shares.items() if queue.limits.overflow != "drop-head"}
    refused = {id(message) for queue, share in bounded.items() for message in queue.would_refuse(share)}
    if refused:
        return Published(refused=len(refused))
    for queue, share in bounded.items():
        if vhost.queues.get(queue.name) is queue:
            routing.push_to(queue, share, judged.flags, fitting=True)
    yield
    yield from _push_shares(judged, {queue: share for queue, share in judged.shares.items() if queue not in bounded})
    yield from _count(judged)
    return Published(judged.count - judged.unroutable, judged.unroutable)


def _push_shares(judged: Judged, shares: dict[Queue, list[Message]]) -> Generator[None, None, set[int]]:
    """Give queues their shares; returns the ids of the messages that one of them refused."""
    vhost = judged.vhost
    refused: set[int] = set()
    for queue, share in shares.items():
        for first in range(0, len(share), PUSHED_AT_ONCE):
            if vhost.queues.get(queue.name) is queue:
                refused.update(map(id, routing.push_to(queue, share[first : first + PUSHED_AT_ONCE], judged.flags)))
            yield
    return refused


def _count(judged: Judged) -> Generator[None, None, None]:
    """Count what was pushed in the figures of exchanges and of the virtual host."""
    tally = judged.vhost.past.channels
    messages, all_copies, unroutable = judged.count, judged.copies, judged.unroutable
    for exchange, count, routes in judged.routes:
        copies, missed = sum(map(len, routes.queues.values())), len(routes.unroutable)
        exchange.received += count
        routing.count(tally, exchange, count, copies, missed)
        messages, all_copies, unroutable = messages - count, all_copies - copies, unroutable - missed
        routes.count()
        yield
    routing.count(tally, None, messages, all_copies, unroutable)


def _runs(messages: list[Addressed]) -> Iterator[tuple[str | None, str, list[Message]]]:
    """Neighbours of one queue or exchange, no more than are judged at once."""
    for (queue, exchange), run in groupby(messages, lambda one: (one.queue, one.message.exchange)):
        found = [one.message for one in run]
        for first in range(0, len(found), JUDGED_AT_ONCE):
            yield queue, exchange, found[first : first + JUDGED_AT_ONCE]


def _require_allowed(
    authorization: Authorization, user: str, vhost: VirtualHost, exchange: str, run: list[Message]
) -> None:
    authorization.require(user, vhost.name, "write", "exchange", exchange)
    authorization.require_publish(user, vhost.publishable(exchange), run)


def _find_routes(judged: Judged, queue: str | None, exchange: str, run: list[Message], flags: int) -> list[Message]:
    """Note where a run goes; returns the messages that reach no queue."""
    vhost = judged.vhost
    if queue is not None:
        if queue not in vhost.queues:
            return run
        judged.add(vhost.queues[queue], run)
        return []
    source = vhost.publishable(exchange)
    routes = vhost.preview(source, run, plain=not flags & HEADERS)
    if routes.error is not None:
        raise routes.error
    for target, share in routes.queues.items():
        judged.add(target, share)
    judged.routes.append((source, len(run), routes))
    return routes.unroutable


class _Examination:
    """Checks messages' properties, and makes messages persistent or not as these say."""

    def __init__(self, authorization: Authorization, user: str) -> None:
        self._authorization = authorization
        self._user = user
        self._modes: dict[bytes, int] = {}

    def __call__(self, messages: list[Message]) -> int:
        """Returns the flags of their properties, or-ed.

        Raises:
            AMQPError: a message's properties are malformed, or what the user may not set.
        """
        modes = self._modes
        flags = 0
        for message in messages:
            octets = message.properties
            mode = modes.get(octets)
            if mode is None:
                mode = check_properties(octets)
                if mode < 0:
                    raise PreconditionFailed("the properties of a message are malformed")
                if len(modes) < 4096:
                    modes[octets] = mode
            flags |= int.from_bytes(octets[:2])
            message.persistent = mode == 2
            if mode not in (0, 1, 2) or int.from_bytes(octets[:2]) & (EXPIRATION | USER_ID):
                check_properties_of(self._authorization, message, Properties.parse(octets), self._user)
        return flags
