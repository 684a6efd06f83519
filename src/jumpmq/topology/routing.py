"""Routing of a run of messages from an exchange to queues, through exchange-to-exchange bindings and alternate
exchanges.

Each message visits each exchange, and reaches each queue, at most once, so that cycles are harmless. An exchange
without a matching binding passes the message to its alternate exchange, whether or not that one finds a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.messages import Message, any_copies
from jumpmq.queues import Queue
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import CountLater, Destination, Exchange, Previewed, Split

T = TypeVar("T")
Alternate = Callable[[Exchange], Exchange | None]
"""Returns the alternate exchange of an exchange; None if undefined or nonexistent."""


@dataclass(slots=True)
class Routes:
    """Result of routing a run of messages.

    Attributes:
        queues: messages per local queue, in published order. Lists may be shared, and must not be changed.
        unroutable: messages that reach no queue, in published order.
        error: reason for stopping at a malformed message; later messages were not routed.
        stripped: for messages with a BCC header, the properties without it; None without any. :meth:`strip` applies
            them when the messages are pushed.
        uncounted: counters for messages that exchanges have previewed; called by :meth:`count`.
        remote: messages per remote queue; None if all queues are local.
    """

    queues: dict[Queue, list[Message]]
    unroutable: list[Message]
    error: AMQPError | None = None
    stripped: list[tuple[Message, bytes]] | None = None
    uncounted: list[CountLater] | None = None
    remote: dict[DeclaredQueue, list[Message]] | None = None

    def count(self) -> None:
        """Count previewed messages, which are published now."""
        for tally in self.uncounted or ():
            tally()

    def strip(self) -> None:
        """Remove the BCC headers from the messages."""
        for message, properties in self.stripped or ():
            message.properties = properties


def route(exchange: Exchange, messages: list[Message], plain: bool, alternate: Alternate) -> Routes:
    """Route messages published to ``exchange``. Messages are not changed; hash exchanges count their keys.

    Args:
        plain: True if no message has headers.
    """
    if plain or not any_copies(messages):
        split = exchange.split(messages)
        if _is_last(exchange, split[1]):
            return _routes(*_apart(exchange, *split)) if exchange.feeds_remote else Routes(*split)  # type: ignore[arg-type]
        return _routes(*_walk(exchange, messages, split, lambda at, run: at.split(run), alternate))
    return _route_opened(exchange, messages, lambda at, run: at.split_envelopes(run), alternate)


def preview(exchange: Exchange, messages: list[Message], plain: bool, alternate: Alternate) -> Routes:
    """As :func:`route`, without counting: the messages may not be published."""
    uncounted: list[CountLater] = []

    def noted(previewed: Previewed[T]) -> Split[T]:
        found, tally = previewed
        if tally is not None:
            uncounted.append(tally)
        return found

    def split(at: Exchange, run: list[Message]) -> Split[Message]:
        return noted(at.preview(run))

    def split_envelopes(at: Exchange, run: list[Envelope]) -> Split[Envelope]:
        return noted(at.preview_envelopes(run))

    if plain or not any_copies(messages):
        routes = _routes(*_walk(exchange, messages, split(exchange, messages), split, alternate))
    else:
        routes = _route_opened(exchange, messages, split_envelopes, alternate)
    routes.uncounted = uncounted
    return routes


def _route_opened(
    exchange: Exchange,
    messages: list[Message],
    split: Callable[[Exchange, list[Envelope]], Split[Envelope]],
    alternate: Alternate,
) -> Routes:
    """Route messages, some with headers CC or BCC."""
    envelopes, error = _open(messages)
    opened, lost, sent = _walk(exchange, envelopes, split(exchange, envelopes), split, alternate)
    stripped = [(envelope.message, envelope.stripped) for envelope in envelopes if envelope.stripped is not None]
    queues = {queue: _messages(group) for queue, group in opened.items()}
    remote = None if sent is None else {queue: _messages(group) for queue, group in sent.items()}
    return Routes(queues, _messages(lost), error, stripped, remote=remote)


def _routes(
    queues: dict[Queue, list[Message]],
    unroutable: list[Message],
    remote: dict[DeclaredQueue, list[Message]] | None,
) -> Routes:
    return Routes(queues, unroutable, remote=remote)


def _is_last(exchange: Exchange, missed: list[T]) -> bool:
    """Return True if messages stop at the queues of this exchange; ``missed`` are the unrouted messages."""
    return not exchange.fed_further and not (missed and exchange.alternate)


def _apart(
    exchange: Exchange, groups: dict[Destination, list[T]], missed: list[T]
) -> tuple[dict[Queue, list[T]], list[T], dict[DeclaredQueue, list[T]] | None]:
    """Split the shares of an exchange that feeds only queues into local and remote queues."""
    if not exchange.feeds_remote:
        return groups, missed, None  # type: ignore[return-value]
    remote = {queue: group for queue, group in groups.items() if isinstance(queue, DeclaredQueue)}
    here = {queue: group for queue, group in groups.items() if not isinstance(queue, DeclaredQueue)}
    return here, missed, remote or None  # type: ignore[return-value]


def _open(messages: list[Message]) -> tuple[list[Envelope], AMQPError | None]:
    envelopes: list[Envelope] = []
    for message in messages:
        try:
            envelopes.append(Envelope.opened(message))
        except AMQPError as error:
            return envelopes, error
    return envelopes, None


def _messages(envelopes: list[Envelope]) -> list[Message]:
    return [envelope.message for envelope in envelopes]


def _walk(
    start: Exchange,
    items: list[T],
    begun: Split[T],
    split: Callable[[Exchange, list[T]], Split[T]],
    alternate: Alternate,
) -> tuple[dict[Queue, list[T]], list[T], dict[DeclaredQueue, list[T]] | None]:
    """Return the items by local queue, unrouted items, and items by remote queue.

    Args:
        begun: result of ``start``. Each exchange is asked once, because it may count messages.
        split: asks a further exchange.
    """
    if _is_last(start, begun[1]):
        return _apart(start, *begun)
    place = {id(item): number for number, item in enumerate(items)}
    visited: dict[Destination, set[int]] = {start: set(place.values())}
    steps: list[tuple[Exchange, list[T]]] = [(start, items)]
    for exchange, run in steps:
        groups, missed = begun if exchange is start else split(exchange, run)
        if missed and (other := alternate(exchange)) is not None:
            groups = {**groups, other: groups.get(other, []) + missed}
        for destination, group in groups.items():
            seen = visited.setdefault(destination, set())
            fresh = [item for item in group if place[id(item)] not in seen]
            seen.update([place[id(item)] for item in fresh])
            if fresh and isinstance(destination, Exchange):
                steps.append((destination, fresh))
    queues, remote, routed = dict[Queue, list[T]](), dict[DeclaredQueue, list[T]](), set[int]()
    for destination, seen in visited.items():
        if isinstance(destination, Exchange):
            continue
        routed |= seen
        group = [items[number] for number in sorted(seen)]
        if isinstance(destination, DeclaredQueue):
            remote[destination] = group
        else:
            queues[destination] = group
    return queues, [item for number, item in enumerate(items) if number not in routed], remote or None
