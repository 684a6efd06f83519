"""The way of a run of messages from one exchange to queues: exchange-to-exchange bindings and alternate exchanges.

Each message visits each exchange, and reaches each queue, at most once, so cycles are harmless. An exchange whose
bindings match nothing passes the message to its alternate exchange; whether that one finds a queue does not matter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.messages import Message, any_copies
from jumpmq.queues import Queue
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import Destination, Exchange, Split

T = TypeVar("T")
Alternate = Callable[[Exchange], Exchange | None]
"""The alternate exchange of an exchange, None where it has none or it does not exist."""


@dataclass(slots=True)
class Routes:
    """Where a run of messages goes.

    Attributes:
        queues: the messages of each queue in published order. Lists may be shared: they are not to be changed.
        unroutable: messages that reach no queue, in published order.
        error: why routing stopped at a malformed message; those published after it were not looked at.
    """

    queues: dict[Queue, list[Message]]
    unroutable: list[Message]
    error: AMQPError | None = None


def route(exchange: Exchange, messages: list[Message], plain: bool, alternate: Alternate) -> Routes:
    """Where messages published to ``exchange`` go.

    Args:
        plain: whether none of them has headers.
    """
    if plain or not any_copies(messages):
        split = exchange.split(messages)
        if _is_last(exchange, split[1]):
            return Routes(*split)  # type: ignore[arg-type]  # feeds queues only
        return Routes(*_walk(exchange, messages, split, lambda at, run: at.split(run), alternate))
    envelopes, error = _open(messages)
    begun = exchange.split_envelopes(envelopes)
    opened, lost = _walk(exchange, envelopes, begun, lambda at, run: at.split_envelopes(run), alternate)
    return Routes({queue: _messages(group) for queue, group in opened.items()}, _messages(lost), error)


def _is_last(exchange: Exchange, missed: list[T]) -> bool:
    """Whether messages go no further than to the queues of this exchange; ``missed`` are those that reach none."""
    return not exchange.fed_exchanges and not (missed and exchange.alternate)


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
) -> tuple[dict[Queue, list[T]], list[T]]:
    """The items of each queue, and those that reach none.

    Args:
        begun: where ``start`` sends them. An exchange is asked once, as it may count what it sends.
        split: asks another exchange.
    """
    if _is_last(start, begun[1]):
        return begun  # type: ignore[return-value]  # feeds queues only
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
    queues = {
        queue: [items[number] for number in sorted(seen)]
        for queue, seen in visited.items()
        if not isinstance(queue, Exchange)
    }
    routed = set().union(*(visited[queue] for queue in queues))
    return queues, [item for number, item in enumerate(items) if number not in routed]
