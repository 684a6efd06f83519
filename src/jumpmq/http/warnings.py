"""Findings for operators, with advice: the short answer to "why is one queue full?".

Only what costs little is looked at: alarms, hash rings with traffic, sharded exchanges, and the fullest queues.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jumpmq.broker.figures.values import HomeState, QueueFigures, RingTrafficFigures
from jumpmq.broker.peers import MoveFigures
from jumpmq.hashing.chi_squared import ChiSquared
from jumpmq.http.absences import Absences
from jumpmq.http.copy_warnings import of_copies
from jumpmq.http.incidents import by_cause
from jumpmq.http.node_warnings import of_nodes
from jumpmq.http.outages import Outages
from jumpmq.http.rates import PAUSE, Rates
from jumpmq.http.ring_counts import together
from jumpmq.http.shards import ShardSummary, shards_of
from jumpmq.http.spread import spread_of_keys, spread_of_messages
from jumpmq.http.trends import Trends
from jumpmq.http.warning import Warning
from jumpmq.topology import ConsistentHashExchange, Exchange, VirtualHost
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges.traffic import Counted
from jumpmq.topology.shards import parse_shard_name

if TYPE_CHECKING:
    from jumpmq.broker import Broker

HELD = 10.0
"""Seconds during which a warning stays after the last detection."""

LOOK_EVERY = 5.0
"""Minimum interval of checks without a request, in seconds, so that the start of a warning is known."""

RINGS = 200
SHARDED = 200
"""Maximum number of exchanges checked, per kind."""

UNLIKELY = 0.001
"""p-value below which an uneven spread does not count as chance."""

UNEVEN = 1.25
"""Ratio of a destination's messages to its weight from which skew matters: with many messages the least skew is
significant.
"""

HOT = 0.1
"""Of the messages that a key has to have to be called hot."""

FEW = 200
"""Minimum number of messages on a ring for a statement on spread."""

NEAR_FULL = 0.95
CONSUMERS = 200
"""Maximum number of consumers compared per queue."""

SLOWER = 3
"""Factor below the rates of the remaining consumers from which a consumer is slow."""

BACKLOG = 100
"""Ready messages below which a queue with consumers is not worth a warning."""

KEYS_A_DESTINATION = 20
"""Below so many different keys a destination, their number alone makes shares uneven."""


@dataclass
class _Known:
    """A detected warning: current text, first and last detection (seconds since the epoch)."""

    warning: Warning
    since: float
    last: float


class Watch:
    """The warnings with first detection, in a stable order: alarms first, then by age.

    A warning is told until it was not found for :data:`HELD` seconds, so that one near a bound does not come and go.
    A warning is looked for after some of the readings of :class:`~jumpmq.http.rates.Rates`, and when it is asked for.

    Attributes:
        absences: the homes that do not answer.
    """

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates
        self._known: dict[tuple[str, str, str, str], _Known] = {}
        self._next = 0.0  # when to look unasked, by the monotonic clock
        self.absences = Absences(broker, rates)
        self._trends = Trends()
        self._outages = Outages()
        rates.on_look.append(self._look)

    async def shown(self) -> list[dict[str, Any]]:
        """Return all warnings, with ``since`` (seconds since the epoch)."""
        return [one.shown() | {"since": round(since, 3)} for one, since in await self._told()]

    async def incidents(self) -> list[dict[str, Any]]:
        """Return the warnings grouped by cause."""
        return [one.shown() for one in by_cause(await self._told())]

    async def _look(self) -> None:
        began, worked = time.monotonic(), time.thread_time()
        await self.absences.note()
        self._outages.note(self._rates)
        if began >= self._next:
            await self._told()
            self._next = time.monotonic() + max(LOOK_EVERY, PAUSE * (time.thread_time() - worked))

    async def _told(self) -> list[tuple[Warning, float]]:
        found = [*await find(self._broker, self._rates, self.absences, self._trends), *self._outages.warnings()]
        now = time.time()
        for one in found:
            known = self._known.setdefault(one.identity, _Known(one, now, now))
            known.warning, known.last = one, now
        self._known = {key: one for key, one in self._known.items() if abs(now - one.last) <= _held(one.warning)}
        ordered = sorted(self._known.items(), key=lambda item: (item[1].warning.severity, item[1].since, item[0]))
        return [(one.warning, one.since) for _, one in ordered]


def _held(warning: Warning) -> float:
    """Return the seconds that a warning stays after the last detection: 0 for absent processes, whose state does not
    flutter.
    """
    return 0.0 if warning.kind in ("node-down", "worker-down") else HELD


async def find(broker: Broker, rates: Rates, absences: Absences, trends: Trends) -> list[Warning]:
    """All warnings, alarms first."""
    found, slices = [*of_nodes(broker, absences), *of_copies(broker.copies.listed())], broker.slices
    found += map(_move_stands_still, standing_still(broker.figures.states()))
    async for exchange, parts in slices.through(await _rings(broker)):
        found += [one async for one in _ring(broker, exchange, parts)]
    read = {(one.vhost, one.queue) for one in await broker.figures.readers()}
    async for host, name in slices.through(_sharded(broker)[:SHARDED]):
        found += [one async for one in _shards(broker, rates, read, host, name)]
    served = _Served(broker, rates)
    fullest = await _fullest(broker, rates)
    trends.note((queue.id, figures.ready) for queue, figures in fullest)
    for queue, figures in fullest:
        if not figures.consumers:
            await served.learn(queue.vhost)
        if _is_there(broker, queue):
            state = _State(rates, trends, queue, figures)
            found += [one async for one in _queue(broker, served, state, (queue.vhost, queue.name) in read)]
        await slices.next()
    return sorted(found, key=lambda one: one.severity)


async def _fullest(broker: Broker, rates: Rates) -> list[tuple[QueueDefinition, QueueFigures]]:
    """Return the fullest queues of the last reading that still exist, with current metrics."""
    vhosts, found = broker.topology.vhosts, list[QueueDefinition]()
    for one in rates.latest.fullest:
        definition = vhosts[one.vhost].queue_definition(one.name) if one.vhost in vhosts else None
        if definition is not None and definition.id == one.id:
            found.append(definition)
    pairs = zip(found, await broker.figures.queues(found), strict=True)
    return [(definition, figures) for definition, figures in pairs if figures is not None]


# --- queues on their way from home to home ---


def standing_still(states: Iterable[HomeState]) -> list[MoveFigures]:
    """Return the moves without progress for too long, preferably in the version of the home that the queue leaves."""
    found: dict[tuple[str, str], MoveFigures] = {}
    moves = sorted((one for state in states for one in state.moves), key=lambda one: not one.leaves)
    for one in moves:
        if one.stands_still:
            found.setdefault((one.vhost, one.name), one)
    return list(found.values())


def _move_stands_still(move: MoveFigures) -> Warning:
    return Warning(
        "move-stands-still",
        "warning",
        "queue",
        move.vhost,
        move.name,
        f"'{move.name}' is on its way from home to home, and waits for {move.waits_for} since {move.seconds:.0f} s.",
        "What is published meanwhile is kept, and delivered when the move is over. Homes that are down have to come "
        "back; consumers that hold messages of the queue have to settle them, or to close their connections.",
        move.name,
    )


# --- rings ---


async def _rings(broker: Broker) -> list[tuple[ConsistentHashExchange, list[RingTrafficFigures]]]:
    """Return the rings with traffic, with the homes' counts."""
    parts: dict[tuple[str, str], list[RingTrafficFigures]] = {}
    for one in await broker.figures.ring_traffic():
        parts.setdefault((one.vhost, one.exchange), []).append(one)
    found = []
    for (vhost, name), of in list(parts.items())[:RINGS]:
        host = broker.topology.vhosts.get(vhost)
        exchange = None if host is None else host.exchanges.get(name)
        if isinstance(exchange, ConsistentHashExchange):
            found.append((exchange, of))
    return found


async def _ring(
    broker: Broker, exchange: ConsistentHashExchange, parts: list[RingTrafficFigures]
) -> AsyncIterator[Warning]:
    counts = together(parts, exchange.ring.names)
    if counts is None:
        return
    counted, slices = counts.counted, broker.slices
    total = sum(counted.messages)
    if not total:
        return
    if counted.missing and exchange.hashed is not None:
        yield _missing(exchange, counted, total, counts.missing_since_start)
    weights = dict(exchange.ring.destinations)
    await slices.next()
    test = spread_of_messages(weights, counted)
    if test is None or total < FEW or test.p_value > UNLIKELY:
        return
    ratio, share, name = _fullest_destination(weights, counted.messages)
    if ratio < UNEVEN:
        return
    hottest = counted.frequent[0] if counted.frequent else None
    lower = (hottest.messages - hottest.error) / total if hottest is not None else 0.0
    if hottest is not None and lower >= HOT and hottest.destination == name:
        key = hottest.key.decode("utf-8", "backslashreplace")
        yield _of_exchange(
            exchange,
            "hot-key",
            f"The key '{key}' has {percent(lower)} of the messages to '{exchange.name}': they all go to '{name}', "
            f"which gets {percent(share)} where its weight lets expect {percent(share / ratio)}.",
            "More queues do not help: one key stays in one queue. Divide the key (add a part to it where order does "
            f"not matter), or give '{name}' faster consumers.",
            name,
        )
    elif not counted.missing or counted.missing < 0.1 * total:
        whole = together(await broker.figures.ring_traffic(exchange.vhost, exchange.name), exchange.ring.names)
        if whole is not None:
            spread = spread_of_keys(weights, whole.keys)
            yield _skew(exchange, whole.counted, spread, name, share, share / ratio)


def _missing(exchange: ConsistentHashExchange, counted: Counted, total: int, since_start: int) -> Warning:
    kind, what = exchange.hashed or ("header", "")
    went = exchange.missing_destination
    return _of_exchange(
        exchange,
        "missing-header",
        f"{counted.missing:,} of {total:,} recent messages to '{exchange.name}' lack the {kind} '{what}' that "
        f"is hashed: they all go to '{went}'. Since the start: {since_start:,}.",
        f"Have the publishers set the {kind} '{what}' on every message.",
        went or "",
    )


def _skew(
    exchange: ConsistentHashExchange,
    counted: Counted,
    keys: ChiSquared | None,
    name: str,
    share: float,
    expected: float,
) -> Warning:
    text = (
        f"'{name}' gets {percent(share)} of the messages to '{exchange.name}'; its weight lets expect "
        f"{percent(expected)}."
    )
    if counted.all_keys < KEYS_A_DESTINATION * len(counted.names):
        advice = f"There are only about {counted.all_keys} different keys: hash something with more different values."
    elif keys is None or keys.p_value > UNLIKELY:
        advice = "The keys are spread evenly, so some keys have more messages than others: see the hottest on the ring."
    else:
        advice = "The keys themselves are spread unevenly: compare weights and shares on the ring."
    return _of_exchange(exchange, "skew", text, advice, name)


def _fullest_destination(weights: Mapping[str, int], messages: list[int]) -> tuple[float, float, str]:
    """Return the destination with most messages for its weight: ratio to the expectation, share, name."""
    total, buckets = sum(messages), sum(weights.values())
    return max(
        (count / total * buckets / weight, count / total, name)
        for (name, weight), count in zip(weights.items(), messages, strict=True)
    )


def _of_exchange(exchange: ConsistentHashExchange, kind: str, text: str, advice: str, queue: str) -> Warning:
    return Warning(kind, "warning", "exchange", exchange.vhost, exchange.name, text, advice, queue)


# --- queues ---


def _sharded(broker: Broker) -> list[tuple[VirtualHost, str]]:
    return [
        (host, exchange.name)
        for host in broker.topology.vhosts.values()
        for exchange in host.exchanges.values()
        if host.in_force.sharding(exchange) is not None
    ]


async def _shards(
    broker: Broker, rates: Rates, read: Collection[tuple[str, str]], host: VirtualHost, name: str
) -> AsyncIterator[Warning]:
    """Yield warnings of a queue hidden behind a sharded exchange, and of shards without consumers
    beside served ones.

    Args:
        read: virtual host and name of the queues that reader groups read from.
    """
    if name in host.declared:
        yield Warning(
            "hidden-queue",
            "warning",
            "exchange",
            host.name,
            name,
            f"Queue '{name}' is hidden: exchange '{name}' is sharded, and consumers of the name get from its shards.",
            "Move the queue's messages to the exchange, and delete the queue.",
            queue=name,
        )
    found = [one for one in await shards_of(broker, host, name) if not one.down]
    idle = [shard for shard in found if not shard.consumers and (host.name, shard.queue.name) not in read]
    waiting = sum(shard.messages for shard in idle)
    growth = sum(rates.last_growth(shard.queue.id) for shard in idle)
    if not idle or (len(idle) == len(found) and not waiting):
        return
    have, several = "has" if len(idle) == 1 else "have", len(_by_node(found)) > 1
    yield Warning(
        "shard-without-consumer",
        "warning",
        "shards",
        host.name,
        name,
        f"{len(idle)} of {len(found)} shards of '{name}' {have} no consumer ({_numbers(idle, several)}): "
        f"{waiting:,} messages wait there.",
        _consume_more(name, idle, several),
        messages=waiting,
        growth=round(growth, 1),
    )


def _by_node(shards: list[ShardSummary]) -> dict[str, list[ShardSummary]]:
    found: dict[str, list[ShardSummary]] = {}
    for one in shards:
        found.setdefault(one.of, []).append(one)
    return found


def _numbers(shards: list[ShardSummary], several: bool) -> str:
    """Format the numbers of shards, with nodes if there are several."""
    numbers = {
        node: ", ".join(str(one.number) for one in of[:8]) + (", ..." if len(of) > 8 else "")
        for node, of in _by_node(shards).items()
    }
    return "; ".join(f"number {those} of {node}" if several else f"number {those}" for node, those in numbers.items())


def _consume_more(name: str, idle: list[ShardSummary], several: bool) -> str:
    """Return the advice: consuming from the exchange's name serves a shard at the client's node."""
    where = [
        ("once more" if len(of) == 1 else f"{len(of)} more times") + (f" at {node}" if several else "")
        for node, of in _by_node(idle).items()
    ]
    of_node = " of its node" if several else ""
    return (
        f"Consume from '{name}' {', '.join(where)}, on connections or channels of their own: each goes to the shard"
        f"{of_node} with the fewest consumers."
    )


async def _queue(broker: Broker, served: _Served, state: _State, is_read: bool) -> AsyncIterator[Warning]:
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


async def _slowest(broker: Broker, state: _State) -> str:
    """Name the consumer that is much slower than the rest, if any."""
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
    beside = f"the others {usual:,.1f}/s" if len(others) == 1 else f"the others about {usual:,.1f}/s"
    return f" '{name}' takes {least:,.1f}/s, {beside}."


class _State:
    """State of a queue in warnings.

    Attributes:
        coming, done: messages a second that come, and that consumers have done with, lately.
        growth, full_in: as a warning has them.
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


def _full(state: _State, limit: int) -> Warning:
    queue, figures = state.queue, state.figures
    consequence = {
        "drop-head": "the oldest are dropped",
        "reject-publish": "publishers are refused",
        "reject-publish-dlx": "new ones are dead-lettered",
    }[figures.overflow]
    return state.warning(
        "queue-full",
        "alarm",
        f"'{queue.name}' has {figures.ready:,} of at most {limit:,} messages: {consequence}.",
        "Add consumers, or raise max-length.",
    )


def _slow(state: _State) -> Iterator[Warning]:
    """Yield the warning for a queue whose consumers do not keep up."""
    queue, figures, coming, done = state.queue, state.figures, state.coming, state.done
    if figures.ready < BACKLOG or (coming <= done * 1.05 and done):
        return
    count = f"{figures.consumers} consumer{'s' if figures.consumers > 1 else ''}"
    verb = ("take" if figures.automatic else "acknowledge") + ("" if figures.consumers > 1 else "s")
    text = (
        f"{count} of '{queue.name}' {verb} {done:,.0f} messages a second, {coming:,.0f} a second come; "
        f"{figures.ready:,} wait."
    )
    if figures.exhausted:
        together = " together" if figures.consumers > 1 else ""
        advice = (
            f"Every consumer holds its whole prefetch ({figures.unacknowledged:,} messages{together}) unacknowledged: "
            "they are slow, or have forgotten to acknowledge. Look at them, or add consumers."
        )
    else:
        advice = "Add consumers, or raise their prefetch."
    yield state.warning("slow-consumer", "warning", text, advice)


def _keys_wait(state: _State, fences: list[dict[str, Any]], held: int) -> Warning:
    """Return the warning for a queue with half or more of its messages behind ordering barriers: the cause is at the
    source queue.
    """
    fence = max(fences, key=lambda one: one["messages_held"])
    name, source, others = state.queue.name, fence["source"], len({one["source"] for one in fences}) - 1
    more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
    warning = state.warning(
        "keys-wait",
        "warning",
        f"{held:,} messages of '{name}' wait for '{source}'{more}: their keys came from there when the ring of "
        f"'{fence['exchange']}' changed, and in '{source}' {fence['remaining']:,} messages from before are left.",
        f"Have '{source}'{more} consumed faster: they are delivered when none of before is left. Where the order of a "
        f"key does not matter, lift the fence (on the page of '{name}').",
    )
    return replace(warning, queue=source, messages=held)


def _unconsumed(state: _State, served: _Served) -> Iterator[Warning]:
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
            f"'{queue.name}' has {figures.ready:,} messages. The connection that it belongs to does not consume.",
            "Look at the client: such a queue is for its own replies or events, and goes with its connection.",
        )
        return
    others = f"; {siblings} of the queues beside it on the ring have some" if siblings else ""
    yield state.warning(
        "queue-without-consumer",
        "warning",
        f"'{queue.name}' has {figures.ready:,} messages and no consumer{others}."
        + ("" if coming else " None come now."),
        "Start a consumer, or unbind the queue if what it gets is not wanted.",
    )


def _dead_letters_wait(state: _State) -> Warning:
    queue, figures = state.queue, state.figures
    return state.warning(
        "dead-letters-wait",
        "warning",
        f"'{queue.name}' holds {figures.ready:,} dead letters.",
        "The header x-death of each says which queue it died in, and why. Mend that first; then move them back "
        "(Move messages on the page of the queue, or jumpmqctl move_messages --to-origin), or purge them.",
    )


class _Served:
    """Lazily computed facts about many queues: consumers of queues on hash exchanges, and targets of dead-lettering."""

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._consumers_of = rates.latest.consumers_of
        self._of: dict[ConsistentHashExchange, set[int]] = {}
        self._dead_letters: dict[str, set[tuple[object, object]]] = {}

    async def learn(self, vhost: str) -> None:
        """Collect the dead-letter targets of a virtual host, unless known."""
        if vhost in self._dead_letters or vhost not in self._broker.topology.vhosts:
            return
        host, found = self._broker.topology.vhosts[vhost], set[tuple[object, object]]()
        async for declared in self._broker.slices.through(list(host.declared.values())):
            arguments, force = declared.definition.arguments, host.in_force.of(declared.destination).definition
            exchange = arguments.text("x-dead-letter-exchange")
            key = arguments.text("x-dead-letter-routing-key")
            exchange = force.get("dead-letter-exchange") if exchange is None else exchange
            if exchange is not None:
                found.add((exchange, force.get("dead-letter-routing-key") if key is None else key))
        self._dead_letters[vhost] = found

    def takes_dead_letters(self, queue: QueueDefinition) -> bool:
        """Return True if dead-lettered messages go to this queue: by an exchange bound to it, or by name."""
        host, sent = self._broker.topology.vhosts[queue.vhost], self._dead_letters.get(queue.vhost, set())
        exchanges = {exchange for exchange, _ in sent if exchange}
        bound = {binding.source for binding in host.bindings_to(host.declared[queue.name].destination)}
        return ("", queue.name) in sent or not exchanges.isdisjoint(bound)

    def beside(self, queue: QueueDefinition) -> int:
        """Return the number of queues with consumers on a hash exchange shared with this consumerless queue."""
        host = self._broker.topology.vhosts[queue.vhost]
        sources = {binding.source for binding in host.bindings_to(host.declared[queue.name].destination)}
        rings = [one for name in sources if isinstance(one := host.exchanges[name], ConsistentHashExchange)]
        return len(set().union(*map(self._queues, rings)))

    def _queues(self, ring: ConsistentHashExchange) -> set[int]:
        if ring not in self._of:
            bound = {one.id for one in ring.bindings.values() if not isinstance(one, Exchange)}
            self._of[ring] = {number for number in bound if number in self._consumers_of}
        return self._of[ring]


def _is_there(broker: Broker, queue: QueueDefinition) -> bool:
    host = broker.topology.vhosts.get(queue.vhost)
    return host is not None and host.queue_definition(queue.name) is queue


def _is_shard(broker: Broker, queue: QueueDefinition) -> bool:
    """Return True if the queue is a shard of an existing exchange, whose warning covers all shards."""
    parsed = parse_shard_name(queue.name, queue.node)
    exchange = broker.topology.vhosts[queue.vhost].exchanges.get(parsed[0]) if parsed is not None else None
    return exchange is not None and broker.topology.vhosts[queue.vhost].in_force.sharding(exchange) is not None


def percent(share: float) -> str:
    """Format a share as the page does: 13 % for 0.125, 7.1 % for 0.071."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 10 else f"{math.floor(value + 0.5)} %"
