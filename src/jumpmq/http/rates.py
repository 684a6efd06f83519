"""Message rates over the last seconds: metrics are read every second, and five readings are kept.

Counters belong to an object (queue, channel, connection), by its id. The counts of a removed object no longer count in
sums, but still count in ``moved``.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import TYPE_CHECKING, Any, NamedTuple

from jumpmq.broker.figures.home import CHURN, of_host
from jumpmq.broker.figures.values import (
    OF_CHANNELS,
    OF_CONNECTIONS,
    OF_CONSUMERS,
    OF_EXCHANGES,
    OF_HOSTS,
    OF_QUEUES,
    ChannelFigures,
    ChannelId,
    ConnectionFigures,
    ConnectionId,
    ConsumerFigures,
    ConsumerId,
    Counts,
    ExchangeId,
    QueueCounts,
    QueueFigures,
)
from jumpmq.queues.clock import until_tick
from jumpmq.topology.definitions import home_of

if TYPE_CHECKING:
    from jumpmq.broker import Broker

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between readings."""

LOOKS = 5
"""Number of kept readings, and so of seconds for rates."""

FULLEST = 50
"""Queues with the longest backlogs, known by id."""

PAUSE = 20
"""Pause after a slow reading, as a multiple of its duration: limits the share of time."""

NOTHING: Counts = (0, 0, 0)
NO_COUNTS = (0,) * (len(OF_QUEUES) + 2)
LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")


class Sample(NamedTuple):
    """The counters of an object, and since when (seconds since the epoch) they have been so."""

    counts: Counts
    since: float

    @property
    def moved(self) -> tuple[int, int, int]:
        """Messages published to, delivered from and acknowledged in a queue."""
        published, delivered, acknowledged, _, unasked, _, got_unasked, *_ = self.counts
        return published, delivered, acknowledged + unasked + got_unasked


Samples = dict[Any, Sample]
"""By id."""


@dataclass
class Look:
    """Metrics at a point in time.

    Attributes:
        at: seconds by the monotonic clock.
        queues, channels, connections, consumers, exchanges: samples by id.
        hosts: samples of what channels have counted, by virtual host.
        churn: what came and went.
        cpu: seconds of processor time by home.
        processes: a home of each process, by its node and number.
        links: octets that were sent, by the homes at both ends.
        consumers_of: consumers by queue.
        ready, unacknowledged: of all queues; what streams keep is not ready in this sense.
        backlogs: the same two by virtual host.
        of_hosts: what the queues of each virtual host have counted, deleted ones included, as samples of queues are.
        of_homes: ready and unacknowledged messages by home; what streams keep is among them.
        fullest: queues with messages, the longest backlog first; streams, from which nothing is taken, are not among
            them.
    """

    at: float
    queues: dict[int, Sample] = field(default_factory=dict)
    channels: dict[ChannelId, Sample] = field(default_factory=dict)
    connections: dict[ConnectionId, Sample] = field(default_factory=dict)
    consumers: dict[ConsumerId, Sample] = field(default_factory=dict)
    exchanges: dict[ExchangeId, Sample] = field(default_factory=dict)
    hosts: dict[str, Sample] = field(default_factory=dict)
    churn: Counts = (0,) * len(CHURN)
    cpu: dict[int, float] = field(default_factory=dict)
    processes: dict[tuple[str, int], int] = field(default_factory=dict)
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    consumers_of: dict[int, int] = field(default_factory=dict)
    ready: int = 0
    unacknowledged: int = 0
    backlogs: dict[str, Counts] = field(default_factory=dict)
    of_hosts: dict[str, Counts] = field(default_factory=dict)
    of_homes: dict[int, int] = field(default_factory=dict)
    fullest: list[QueueCounts] = field(default_factory=list)


class Rates:
    """Counts and rates of the live broker.

    Attributes:
        latest: the last reading.
        moved: messages published, delivered and acknowledged in all queues since the first reading.
        moved_in: the same by existing virtual host.
        on_look: awaited after each reading.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._figures = broker.figures
        self._looks: deque[Look] = deque(maxlen=LOOKS)
        self._watch: asyncio.Task[None] | None = None
        self.latest = Look(time.monotonic())
        self.moved: Counts = NOTHING
        self.moved_in: dict[str, Counts] = {}
        self.on_look: list[Callable[[], Awaitable[None]]] = []

    def start(self) -> None:
        """Read the figures from now on."""
        self._watch = asyncio.create_task(self._look_on(), name="rates")

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    # --- what is shown ---

    def of_queue(self, queue: QueueFigures) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of a queue."""
        return self._shown(OF_QUEUES, queue.counts, self._before(lambda look: look.queues, queue.id))

    def last_rate(self, queue: int, name: str) -> float:
        """Return the rate of a queue's counter at the last reading, per second."""
        place = OF_QUEUES.index(name)
        now = self.latest.queues.get(queue)
        if now is None or not self._looks:
            return 0.0
        was = self._looks[0].queues.get(queue)
        return round((now.counts[place] - (was.counts[place] if was is not None else 0)) / self._seconds_read(), 2)

    def last_rates_of_exchange(self, vhost: str, name: str) -> tuple[float, float]:
        """Return the rates of messages into an exchange, and on to queues, at the last reading."""
        now = self.latest.exchanges.get((vhost, name))
        if now is None or not self._looks:
            return 0.0, 0.0
        was = self._looks[0].exchanges.get((vhost, name))
        before = (0, 0) if was is None else was.counts
        came, went = ((count - then) / self._seconds_read() for count, then in zip(now.counts, before, strict=True))
        return round(came, 2), round(went, 2)

    def last_counts(self, queue: int) -> Counts:
        """Return a queue's counters at the last reading, as ``QueueCounts.counts``; zeros for a new queue."""
        sample = self.latest.queues.get(queue)
        return sample.counts if sample is not None else NO_COUNTS

    def last_known(self, queue: int) -> int:
        """Return the number of messages of a queue at the last reading with the queue; 0 without any."""
        found = (look.queues[queue].counts for look in reversed(self._looks) if queue in look.queues)
        return sum(next(found, NO_COUNTS)[-2:])

    def last_growth(self, queue: int) -> float:
        """Return the growth of a queue's backlog at the last reading, in messages per second."""
        now = self.latest.queues.get(queue)
        was = self._looks[0].queues.get(queue) if self._looks else None
        if now is None or was is None:
            return 0.0
        return (sum(now.counts[-2:]) - sum(was.counts[-2:])) / self._seconds_read()

    def lengths(self, queue: QueueFigures) -> dict[str, Any]:
        """Return the number of messages in a queue, with the rate of change."""
        before = self._before(lambda look: look.queues, queue.id)
        return self._shown(LENGTHS, _lengths(queue.counts), before and _lengths(before))

    def of_channel(self, channel: ChannelFigures) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of a channel."""
        shown = self._shown(OF_CHANNELS, channel.counts, self._before(lambda look: look.channels, channel.id))
        sent = ("deliver", "deliver_no_ack", "get", "get_no_ack")
        rate = sum(shown[f"{name}_details"]["rate"] for name in sent)
        return shown | {
            "deliver_get": sum(shown[name] for name in sent),
            "deliver_get_details": {"rate": round(rate, 2)},
        }

    def of_consumer(self, consumer: ConsumerFigures) -> dict[str, Any]:
        """Return the number of messages sent to a consumer, with the rate."""
        identity = consumer.id
        before = consumer.counts if identity is None else self._before(lambda look: look.consumers, identity)
        return self._shown(OF_CONSUMERS, consumer.counts, before)

    async def of_hosts(self, vhosts: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of virtual hosts together: RabbitMQ's ``message_stats``, and how many messages their queues hold."""
        names = list(vhosts)
        queues, tallies = await self._queues_of(names), self._figures.tallies()
        found = _Sum(len(OF_HOSTS))
        for name in names:
            if name in tallies:
                now = of_host(tallies[name])
                found.add([now], [self._before(lambda look: look.hosts, name) if self._looks else now])
        stats = self._shown(OF_QUEUES, queues.now, queues.past) | self._shown(OF_HOSTS, found.now, found.past)
        return stats, self._shown(LENGTHS, _lengths(queues.now), _lengths(queues.past))

    def of_exchange(self, vhost: str, name: str) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of an exchange."""
        counts = self._figures.exchange(vhost, name)
        return self._shown(OF_EXCHANGES, counts, self._before(lambda look: look.exchanges, (vhost, name)))

    def of_churn(self) -> dict[str, Any]:
        """Return the churn statistics, by RabbitMQ's names."""
        now = self._figures.churn()
        return self._shown(CHURN, now, self._looks[0].churn if self._looks else now)

    def octets(self, connection: ConnectionFigures) -> dict[str, Any]:
        """Return the octets received and sent on a connection, with the rates."""
        before = self._before(lambda look: look.connections, connection.id)
        return self._shown(OF_CONNECTIONS, connection.counts, before)

    def idle_since(self, counted: QueueFigures | ChannelFigures) -> str:
        """When something last happened there, as RabbitMQ writes a time; to a second, more or less."""
        samples: Mapping[Any, Sample] = (
            self.latest.queues if isinstance(counted, QueueFigures) else self.latest.channels
        )
        sample = samples.get(counted.id)
        return _written(sample.since if sample is not None and sample.counts == counted.counts else time.time())

    def last_cpu(self, node: str) -> float:
        """Return a node's processor time at the last reading, 1.0 being one whole processor."""
        homes = (home for (name, _), home in self.latest.processes.items() if name == node)
        return round(sum(map(self.last_cpu_of_home, homes)), 3)

    def last_cpu_of_home(self, home: int) -> float:
        """Return a process's processor time at the last reading, 1.0 being one whole processor."""
        return self._grown(lambda look: look.cpu, home)

    def last_link_rate(self, node: str, other: str) -> float:
        """Return the octets per second from a node to a second one at the last reading."""
        at = self._broker.node_serving
        pairs = [(one, to) for one, to in self.latest.links if at(one) == node and at(to) == other]
        return round(sum(self._grown(lambda look: look.links, pair) for pair in pairs), 1)

    def _grown(self, counters: Callable[[Look], Mapping[Any, float]], key: Hashable) -> float:
        """Return the rate of a counter at the last reading, per second; 0 for a new or reset counter."""
        now, was = counters(self.latest).get(key), counters(self._looks[0]).get(key) if self._looks else None
        return 0.0 if now is None or was is None else round(max(0.0, now - was) / self._seconds_read(), 3)

    def consumer_capacity(self, queue: QueueFigures) -> float:
        """Return the share of recent readings without messages waiting for a consumer with capacity."""
        if not queue.consumers:
            return 0
        seen = [sample.counts for look in self._looks if (sample := look.queues.get(queue.id)) is not None]
        waited = [counts[-2] > 0 for counts in (*seen, queue.counts)]
        return round(1 - sum(waited) / len(waited), 4)

    def _before(self, samples: Callable[[Look], Mapping[Any, Sample]], key: Hashable) -> Counts | None:
        """Return the counters at the reading that rates are based on; None if unknown."""
        sample = samples(self._looks[0]).get(key) if self._looks else None
        return sample.counts if sample is not None else None

    async def _queues_of(self, vhosts: Iterable[str]) -> _Sum:
        """The sum of the counters of all queues of virtual hosts, now and before."""
        found = _Sum(len(NO_COUNTS))
        before = self._looks[0].queues if self._looks else None
        for vhost in vhosts:
            async for part in self._figures.queue_counts(vhost):
                now = [one.counts for one in part]
                found.add(now, now if before is None else [_counts(before.get(one.id)) for one in part])
        return found

    def _shown(self, names: tuple[str, ...], now: Counts, past: Counts | None) -> dict[str, Any]:
        """Return counters by RabbitMQ's names, with rates; unknown counters count from 0, unless no reading exists.

        Args:
            now, past: counters in the order of ``names``; there may be more of them.
        """
        if past is None:
            past = (0,) * len(names) if self._looks else now
        seconds, shown = self._seconds(), dict[str, Any]()
        for name, count, was in zip(names, now, past, strict=False):
            shown[name] = count
            shown[f"{name}_details"] = {"rate": round((count - was) / seconds, 2)}
        return shown

    def _seconds(self) -> float:
        """Return the age of the reading that rates are based on, in seconds."""
        return max(time.monotonic() - self._looks[0].at, INTERVAL) if self._looks else INTERVAL

    def _seconds_read(self) -> float:
        """Return the time from the reading that rates are based on to the last reading, in seconds."""
        return max(self.latest.at - self._looks[0].at, INTERVAL)

    # --- reading ---

    async def _look_on(self) -> None:
        while True:
            began = time.thread_time()  # a home that hangs is waited for, which takes nothing from others
            look = Look(time.monotonic())
            await self._look_at_objects(look)
            await self._look_at_others(look)
            self._looks.append(look)
            self.latest = look
            for called in self.on_look:
                try:
                    await called()
                except Exception:
                    log.exception("processing of the statistics failed")
            pause = PAUSE * (time.thread_time() - began)
            await asyncio.sleep(max(until_tick(INTERVAL, asyncio.get_running_loop().time()), pause))

    async def _look_at_objects(self, look: Look) -> None:
        last, totals = self.latest, {vhost: _Sum(len(NO_COUNTS)) for vhost in self._broker.topology.vhosts}
        async for part in self._figures.object_counts(list(totals)):
            for vhost, counts in part.deleted:
                totals[vhost].add([counts])
            if part.queues:
                _sample([(one.id, one.counts) for one in part.queues], look.queues, last.queues)
                vhost = part.queues[0].vhost
                self._sum_up(vhost, part.queues, look)
                totals[vhost].add([one.counts for one in part.queues])
            _sample(part.connections, look.connections, last.connections)
            _sample(part.channels, look.channels, last.channels)
            _sample(part.consumers, look.consumers, last.consumers)
        look.of_hosts = {vhost: total.now for vhost, total in totals.items()}
        self.moved_in = {vhost: moved for vhost, moved in self.moved_in.items() if vhost in look.of_hosts}

    async def _look_at_others(self, look: Look) -> None:
        last = self.latest
        _sample([(name, of_host(one)) for name, one in self._figures.tallies().items()], look.hosts, last.hosts)
        async for exchanges in self._figures.exchange_counts():
            _sample(exchanges, look.exchanges, last.exchanges)
        look.churn = self._figures.churn()
        for state in self._figures.states():
            look.cpu[state.home] = state.node.cpu
            look.processes[state.node.name, state.node.pid] = state.home
            look.links |= {(state.home, home): sent for home, _, sent in state.node.links}

    def _sum_up(self, vhost: str, queues: Sequence[QueueCounts], look: Look) -> None:
        last = self.latest.queues if self._looks else None
        moved, backlog = NOTHING, (0, 0)
        for queue in queues:
            sample = look.queues[queue.id]
            ready, unacknowledged = sample.counts[-2:]
            home = home_of(queue.id)
            look.of_homes[home] = look.of_homes.get(home, 0) + ready + unacknowledged
            backlog = backlog[0] + (0 if queue.append_only else ready), backlog[1] + unacknowledged
            if queue.consumers:
                look.consumers_of[queue.id] = queue.consumers
            if last is not None and sample is not (before := last.get(queue.id)):
                was = before.moved if before is not None else NOTHING
                moved = _added(moved, map(sub, sample.moved, was))
        look.ready += backlog[0]
        look.unacknowledged += backlog[1]
        look.backlogs[vhost] = _added(look.backlogs.get(vhost, (0, 0)), backlog)
        self.moved = _added(self.moved, moved)
        self.moved_in[vhost] = _added(self.moved_in.get(vhost, NOTHING), moved)
        backlogs = [queue for queue in queues if queue.messages and not queue.append_only]
        look.fullest = heapq.nlargest(FULLEST, look.fullest + backlogs, key=lambda queue: queue.messages)


class _Sum:
    """Counters of objects together, now and at an earlier reading."""

    def __init__(self, width: int) -> None:
        self.now: Counts = (0,) * width
        self.past: Counts = self.now

    def add(self, now: Iterable[Counts], past: Iterable[Counts | None] = ()) -> None:
        """Add counters; None in ``past`` stands for an unknown previous value."""
        self.now = tuple(map(sum, zip(self.now, *now, strict=True)))
        self.past = tuple(map(sum, zip(self.past, *filter(None, past), strict=True)))


def _added(counts: Counts, more: Iterable[int]) -> Counts:
    return tuple(map(add, counts, more))


def _counts(sample: Sample | None) -> Counts | None:
    return None if sample is None else sample.counts


def _sample(found: Iterable[tuple[Any, Counts]], samples: Samples, last: Samples) -> None:
    """Sample counters; unchanged counters keep the time of the last change."""
    wall = time.time()
    for key, counts in found:
        sample = last.get(key)
        samples[key] = sample if sample is not None and sample.counts == counts else Sample(counts, wall)


def _lengths(counts: Counts) -> Counts:
    """Messages, ready, unacknowledged."""
    ready, unacknowledged = counts[-2:]
    return ready + unacknowledged, ready, unacknowledged


def _written(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}+00:00"
