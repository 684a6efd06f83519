"""Warnings of a queue: full, slowly consumed, not consumed, or behind ordering barriers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jumpmq.broker.figures.values import QueueFigures
from jumpmq.http.rates import Rates
from jumpmq.http.warnings.served import ServedQueues
from jumpmq.http.warnings.trends import Trends
from jumpmq.http.warnings.warning import Warning
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.shards import parse_shard_name

if TYPE_CHECKING:
    from jumpmq.broker import Broker

NEAR_FULL = 0.95
"""Share of ``max-length`` from which a queue counts as full."""

CONSUMERS = 200
"""Maximum number of consumers compared per queue."""

SLOWER = 3
"""Factor below the rates of the remaining consumers from which a consumer is slow."""

BACKLOG = 100
"""Ready messages below which a queue with consumers is not worth a warning."""


async def warnings_of_queue(
    broker: Broker, served: ServedQueues, state: QueueState, is_read: bool
) -> AsyncIterator[Warning]:
    """Yield the warnings of a queue.

    Args:
        is_read: True if a reader group reads from the queue.
    """
    queue, figures = state.queue, state.figures
    limit = figures.max_length
    if limit is not None and figures.ready >= NEAR_FULL * limit:
        yield _full(state, limit)
    fences = figures.status.get("fences")
    if fences and figures.status["messages_fenced"] >= max(BACKLOG, figures.ready / 2):
        yield _keys_wait(state, fences, figures.status["messages_fenced"])
    elif figures.consumers:
        for one in _slow(state):
            yield replace(one, text=one.text + await _slowest(broker, state))
    elif not is_read and not _is_shard(broker, queue):
        for one in _unconsumed(state, served):
            yield one


async def _slowest(broker: Broker, state: QueueState) -> str:
    """Return a sentence about the consumer that is much slower than all others; empty without such a consumer."""
    consumers = await broker.figures.consumers_of(state.queue, CONSUMERS)
    rates = [(state.rates.of_consumer(one)["messages_delivered_details"]["rate"], one) for one in consumers if one.peer]
    if len(rates) < 2:
        return ""
    rates.sort(key=lambda item: item[0])
    (least, slowest), others = rates[0], [rate for rate, _ in rates[1:]]
    usual = others[len(others) // 2]
    if usual < 1 or least * SLOWER > usual:
        return ""
    assert slowest.peer is not None
    name = slowest.peer.provided_name or slowest.peer.name
    beside = f"the others {usual:,.1f}/s" if len(others) == 1 else f"other queues about {usual:,.1f}/s"
    return f" '{name}' takes {least:,.1f}/s, {beside}."


class QueueState:
    """State of a queue in warnings.

    Attributes:
        coming: recent rate of arriving messages, per second.
        done: recent rate of messages settled by consumers, per second.
        growth, full_in: see :class:`Warning`.
    """

    def __init__(self, rates: Rates, trends: Trends, queue: QueueDefinition, figures: QueueFigures) -> None:
        self.rates, self.queue, self.figures = rates, queue, figures
        stats = rates.of_queue(figures)
        self.coming: float = stats["publish_details"]["rate"]
        self.done: float = stats["ack_details"]["rate"]
        if figures.automatic:
            self.done = max(self.done, stats["deliver_get_details"]["rate"])
        fitted = trends.growth(queue.id)
        self.growth = self.coming - self.done if fitted is None else fitted
        room = None if figures.max_length is None else figures.max_length - figures.ready
        self.full_in = room / self.growth if room is not None and room > 0 and self.growth > 0 else None

    def warning(self, kind: str, severity: str, text: str, advice: str) -> Warning:
        queue, figures = self.queue, self.figures
        about = ("queue", queue.vhost, queue.name, text, advice, queue.name, figures.ready, round(self.growth, 1))
        return Warning(kind, severity, *about, self.full_in and round(self.full_in))


def _full(state: QueueState, limit: int) -> Warning:
    queue, figures = state.queue, state.figures
    consequence = {
        "drop-head": "the oldest messages are dropped",
        "reject-publish": "publishers are refused",
        "reject-publish-dlx": "new messages are dead-lettered",
    }[figures.overflow]
    return state.warning(
        "queue-full",
        "alarm",
        f"'{queue.name}' has {figures.ready:,} of at most {limit:,} messages: {consequence}.",
        "Add consumers, or raise max-length.",
    )


def _slow(state: QueueState) -> Iterator[Warning]:
    """Yield the warning for a queue whose consumers do not keep up."""
    queue, figures, coming, done = state.queue, state.figures, state.coming, state.done
    if figures.ready < BACKLOG or (coming <= done * 1.05 and done):
        return
    count = f"{figures.consumers} consumer{'s' if figures.consumers > 1 else ''}"
    verb = ("take" if figures.automatic else "acknowledge") + ("" if figures.consumers > 1 else "s")
    text = (
        f"{count} of '{queue.name}' {verb} {done:,.0f} messages a second, {coming:,.0f} a second arrive; "
        f"{figures.ready:,} wait."
    )
    if figures.exhausted:
        together = " together" if figures.consumers > 1 else ""
        advice = (
            f"Every consumer holds its whole prefetch ({figures.unacknowledged:,} messages{together}) unacknowledged: "
            "the consumers are slow, or have forgotten to acknowledge. Check them, or add consumers."
        )
    else:
        advice = "Add consumers, or raise the prefetch."
    yield state.warning("slow-consumer", "warning", text, advice)


def _keys_wait(state: QueueState, fences: list[dict[str, Any]], held: int) -> Warning:
    """Return the warning for a queue with half or more of its messages behind ordering barriers: the cause is at the
    source queue.
    """
    fence = max(fences, key=lambda one: one["messages_held"])
    name, source, others = state.queue.name, fence["source"], len({one["source"] for one in fences}) - 1
    more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
    warning = state.warning(
        "keys-wait",
        "warning",
        f"{held:,} messages of '{name}' wait for '{source}'{more}: their keys moved when the ring of "
        f"'{fence['exchange']}' changed, and '{source}' still has {fence['remaining']:,} older messages.",
        f"Speed up the consumers of '{source}'{more}: no message is delivered before the older messages are settled. "
        "If the order "
        f"of a key does not matter, lift the fence (on the page of '{name}').",
    )
    return replace(warning, queue=source, messages=held)


def _unconsumed(state: QueueState, served: ServedQueues) -> Iterator[Warning]:
    queue, figures, coming = state.queue, state.figures, state.coming
    siblings = served.beside(queue)
    if figures.ready and served.takes_dead_letters(queue):
        yield _dead_letters_wait(state)
        return
    if figures.ready < BACKLOG and not siblings:
        return
    if queue.exclusive:
        yield state.warning(
            "replies-wait",
            "warning",
            f"'{queue.name}' has {figures.ready:,} messages. The connection that owns the queue does not consume.",
            "Check the client: an exclusive queue has the client's replies or events, and ends with the connection.",
        )
        return
    others = f"; {siblings} other queues of the ring have consumers" if siblings else ""
    yield state.warning(
        "queue-without-consumer",
        "warning",
        f"'{queue.name}' has {figures.ready:,} messages and no consumer{others}."
        + ("" if coming else " No messages arrive now."),
        "Start a consumer, or unbind the queue if its messages are not needed.",
    )


def _dead_letters_wait(state: QueueState) -> Warning:
    queue, figures = state.queue, state.figures
    return state.warning(
        "dead-letters-wait",
        "warning",
        f"'{queue.name}' holds {figures.ready:,} dead letters.",
        "The header x-death of each message has the queue and the reason of the dead-lettering. Fix the cause first; "
        "then move the messages back (Move messages on the page of the queue, or jumpmqctl move_messages --to-origin), "
        "or purge the queue.",
    )


def _is_shard(broker: Broker, queue: QueueDefinition) -> bool:
    """Return True if the queue is a shard of an existing exchange, whose warning covers all shards."""
    parsed = parse_shard_name(queue.name, queue.node)
    exchange = broker.topology.vhosts[queue.vhost].exchanges.get(parsed[0]) if parsed is not None else None
    return exchange is not None and broker.topology.vhosts[queue.vhost].in_force.sharding(exchange) is not None
