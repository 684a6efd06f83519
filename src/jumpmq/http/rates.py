"""Message rates over the last seconds: a look at all counters every second, remembered for five.

Counters are those of whoever is counted (queues, channels, connections); what is gone takes its past out of the sums,
but not out of what has ``moved``.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.queues import Queue
from jumpmq.topology import Exchange, VirtualHost
from jumpmq.topology.tally import Tally

if TYPE_CHECKING:
    from jumpmq.broker import Broker

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between looks."""

LOOKS = 5
"""How many looks are remembered, and so over how many seconds rates are taken."""

AT_ONCE = 250
"""Objects that are looked at before others are served."""

FULLEST = 50
"""Queues with the longest backlog that are known by name."""

PAUSE = 20
"""A look that took long is followed by a pause of so many times its length: it never takes more than a share."""

Counts = tuple[int, ...]
NOTHING = (0, 0, 0)
T = TypeVar("T")

TALLIED = tuple(name for name in Tally.__slots__ if name != "routed")
CHURN = tuple(Churn.__slots__)
OF_HOSTS = ("publish", "confirm", "return_unroutable", "drop_unroutable")
"""What virtual hosts, and the broker, count by channels; the rest of theirs is the sum of their queues."""

OF_QUEUES = (
    "publish", "deliver_get", "ack", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver",
)  # fmt: skip
LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")


class Sample(NamedTuple):
    """The counters of an object, and since when (seconds since the epoch) they have been so."""

    counts: Counts
    since: float

    @property
    def moved(self) -> tuple[int, int, int]:
        """Of a queue, messages published to it, delivered and acknowledged."""
        published, delivered, acknowledged, _, unasked, _, got_unasked, *_ = self.counts
        return published, delivered, acknowledged + unasked + got_unasked


@dataclass
class Look:
    """The counters at one time.

    Attributes:
        at: seconds by the monotonic clock.
        samples: what was seen.
        ready, unacknowledged, consumers: of all queues.
        of_hosts: what the queues of each virtual host have counted, those that are gone among them, as samples of
            queues are.
        fullest: queues with messages, the longest backlog first; streams, from which nothing is taken, are not among
            them.
    """

    at: float
    samples: dict[object, Sample] = field(default_factory=dict)
    ready: int = 0
    unacknowledged: int = 0
    consumers: int = 0
    of_hosts: dict[str, Counts] = field(default_factory=dict)
    fullest: list[Queue] = field(default_factory=list)


class Rates:
    """Counts and rates of the live broker.

    Attributes:
        latest: the last look.
        moved: messages published, delivered and acknowledged in all queues since the first look.
        on_look: called after each look.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: deque[Look] = deque(maxlen=LOOKS)
        self._watch: asyncio.Task[None] | None = None
        self.latest = Look(time.monotonic())
        self.moved = NOTHING
        self.on_look: list[Callable[[], None]] = []

    def start(self) -> None:
        """Look at the counters from now on."""
        self._watch = asyncio.create_task(self._look_on(), name="rates")

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    # --- what is shown ---

    def of_queue(self, queue: Queue) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of a queue."""
        return self._shown(OF_QUEUES, [queue], of_queue)

    def rate(self, queue: Queue, name: str) -> float:
        """How fast one of a queue's counters grows, a second."""
        place = OF_QUEUES.index(name)
        sample = self._looks[0].samples.get(queue) if self._looks else None
        was = sample.counts[place] if sample is not None else 0
        return round((of_queue(queue)[place] - was) / self._seconds(), 2) if self._looks else 0.0

    def lengths(self, queue: Queue) -> dict[str, Any]:
        """How many messages a queue holds, and how fast that changes."""
        return self._shown(LENGTHS, [queue], _lengths_of, _lengths)

    async def all_lengths(self, hosts: Iterable[VirtualHost]) -> dict[str, Any]:
        """The same of all queues of virtual hosts."""
        return (await self._in_steps(self._sum(LENGTHS, _lengths_of, _lengths), _queues_of(hosts))).shown()

    def of_channel(self, channel: Channel) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of a channel."""
        shown = self._shown(TALLIED, [channel], of_channel)
        sent = ("deliver", "deliver_no_ack", "get", "get_no_ack")
        rate = sum(shown[f"{name}_details"]["rate"] for name in sent)
        return shown | {
            "deliver_get": sum(shown[name] for name in sent),
            "deliver_get_details": {"rate": round(rate, 2)},
        }

    async def of_hosts(self, hosts: Iterable[VirtualHost]) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of virtual hosts together."""
        hosts, tallies = list(hosts), self._tallies()
        queues = await self._in_steps(self._sum(OF_QUEUES, of_queue), _queues_of(hosts))
        return queues.shown() | self._shown(
            OF_HOSTS, hosts, lambda host: _of_host(tallies.get(host, host.past.channels))
        )

    def of_exchange(self, exchange: Exchange) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of an exchange."""
        return self._shown(("publish_in", "publish_out"), [exchange], _of_exchange)

    def of_churn(self) -> dict[str, Any]:
        """How much comes and goes, by RabbitMQ's names."""
        return self._shown(CHURN, [self._broker.churn], astuple)

    def octets(self, connection: Connection) -> dict[str, Any]:
        """How many octets a connection received and sent, and how fast."""
        return self._shown(("recv_oct", "send_oct"), [connection], _of_connection)

    def idle_since(self, counted: Queue | Channel) -> str:
        """When something last happened there, as RabbitMQ writes a time; to a second, more or less."""
        sample = self._looks[-1].samples.get(counted) if self._looks else None
        counts = of_queue(counted) if isinstance(counted, Queue) else of_channel(counted)
        return _written(sample.since if sample is not None and sample.counts == counts else time.time())

    def consumer_capacity(self, queue: Queue) -> float:
        """The share of the last seconds, as far as was looked, in which whatever came found a consumer with room."""
        if not queue.consumers:
            return 0
        seen = [sample.counts for look in self._looks if (sample := look.samples.get(queue)) is not None]
        waited = [counts[-2] > 0 for counts in (*seen, of_queue(queue))]
        return round(1 - sum(waited) / len(waited), 4)

    def _shown(
        self,
        names: Iterable[str],
        objects: Iterable[T],
        counts: Callable[[T], Counts],
        part: Callable[[Counts], Counts] = lambda counts: counts,
    ) -> dict[str, Any]:
        """Counters of objects together by RabbitMQ's names, each with its rate."""
        found = self._sum(names, counts, part)
        found.add(objects)
        return found.shown()

    def _sum(
        self,
        names: Iterable[str],
        counts: Callable[[T], Counts],
        part: Callable[[Counts], Counts] = lambda counts: counts,
    ) -> _Sum[T]:
        return _Sum(tuple(names), self._looks[0] if self._looks else None, self._seconds(), counts, part)

    def _seconds(self) -> float:
        """How long ago the look was that rates are taken from."""
        return max(time.monotonic() - self._looks[0].at, INTERVAL) if self._looks else INTERVAL

    async def _in_steps(self, found: _Sum[T], objects: list[T]) -> _Sum[T]:
        for start in range(0, len(objects), AT_ONCE):
            found.add(objects[start : start + AT_ONCE])
            await self._broker.slices.next()
        return found

    # --- looking ---

    async def _look_on(self) -> None:
        while True:
            began = time.perf_counter()
            look = Look(time.monotonic())
            await self._look_at_queues(look)
            for objects, counts in self._counted():
                await self._look_at(objects, counts, look)
            self._looks.append(look)
            self.latest = look
            for called in self.on_look:
                try:
                    called()
                except Exception:
                    log.exception("looking at the broker failed")
            await asyncio.sleep(max(INTERVAL, PAUSE * (time.perf_counter() - began)))

    async def _look_at_queues(self, look: Look) -> None:
        for host in list(self._broker.topology.vhosts.values()):
            queues, total = list(host.queues.values()), _of_past(host)
            for start in range(0, len(queues), AT_ONCE):
                share = queues[start : start + AT_ONCE]
                self._sample(share, of_queue, look)
                self._sum_up(share, look)
                total = _added([total, *(look.samples[queue].counts for queue in share)])
                await self._broker.slices.next()
            look.of_hosts[host.name] = total

    async def _look_at(self, objects: list[Any], counts: Callable[[Any], Counts], look: Look) -> None:
        for start in range(0, len(objects), AT_ONCE):
            self._sample(objects[start : start + AT_ONCE], counts, look)
            await self._broker.slices.next()

    def _sample(self, objects: list[Any], counts: Callable[[Any], Counts], look: Look) -> None:
        last, wall = self.latest.samples, time.time()
        for one in objects:
            current, sample = counts(one), last.get(one)
            unchanged = sample is not None and sample.counts == current
            look.samples[one] = sample if unchanged and sample is not None else Sample(current, wall)

    def _sum_up(self, queues: list[Queue], look: Look) -> None:
        last, moved = self.latest.samples if self._looks else None, list(self.moved)
        for queue in queues:
            sample = look.samples[queue]
            ready, unacknowledged = sample.counts[-2:]
            look.ready += ready
            look.unacknowledged += unacknowledged
            look.consumers += len(queue.consumers)
            if last is not None and sample is not (before := last.get(queue)):
                was = before.moved if before is not None else NOTHING
                moved = [count + now - then for count, now, then in zip(moved, sample.moved, was, strict=True)]
        self.moved = moved[0], moved[1], moved[2]
        backlogs = [queue for queue in queues if queue.message_count and not queue.append_only]
        look.fullest = heapq.nlargest(FULLEST, look.fullest + backlogs, key=lambda queue: queue.message_count)

    def _counted(self) -> list[tuple[list[Any], Callable[[Any], Counts]]]:
        """What there is to be looked at beside queues, and how."""
        hosts, tallies = list(self._broker.topology.vhosts.values()), self._tallies()
        connections = list(self._broker.connections)
        return [
            (hosts, lambda host: _of_host(tallies[host])),
            ([exchange for host in hosts for exchange in host.exchanges.values()], _of_exchange),
            (connections, _of_connection),
            ([self._broker.churn], astuple),
            ([channel for one in connections for channel in one.channels.values()], of_channel),
        ]

    def tally(self) -> Tally:
        """What was counted in all virtual hosts, those that are gone among them."""
        found = Tally()
        found.add(self._broker.topology.past.channels)
        for one in self._tallies().values():
            found.add(one)
        return found

    def _tallies(self) -> dict[VirtualHost, Tally]:
        """What was counted in each virtual host, by channels that are there and such as are gone."""
        found = {}
        for host in self._broker.topology.vhosts.values():
            found[host] = Tally()
            found[host].add(host.past.channels)
        for connection in self._broker.connections:
            if connection.opened and connection.vhost in found:
                for channel in connection.channels.values():
                    found[connection.vhost].add(channel.tally)
        return found


@dataclass
class _Sum(Generic[T]):
    """Counters of objects together by RabbitMQ's names, now and at an earlier look.

    Attributes:
        names: the first of the counters; others are left out.
        before: what is compared with, and how many ``seconds`` ago that was.
        counts: of an object now.
        part: of what a look has kept of it, the same.
    """

    names: tuple[str, ...]
    before: Look | None
    seconds: float
    counts: Callable[[T], Counts]
    part: Callable[[Counts], Counts]
    now: Counts = ()
    past: Counts = ()

    def add(self, objects: Iterable[T]) -> None:
        """Count these, too."""
        nothing = (0,) * len(self.names)
        current, then = [self.now or nothing], [self.past or nothing]
        for one in objects:
            count = self.counts(one)
            current.append(count)
            if self.before is None:
                then.append(count)
            elif (sample := self.before.samples.get(one)) is not None:
                then.append(self.part(sample.counts))
        self.now, self.past = _added(current), _added(then)

    def shown(self) -> dict[str, Any]:
        """Each counter, and how fast it grows."""
        shown: dict[str, Any] = {}
        nothing = (0,) * len(self.names)
        for name, count, was in zip(self.names, self.now or nothing, self.past or nothing, strict=True):
            shown[name] = count
            shown[f"{name}_details"] = {"rate": round((count - was) / self.seconds, 2)}
        return shown


def _added(counts: list[Counts]) -> Counts:
    """Sums of counters, of as many as the first has."""
    return tuple([sum(column) for column in zip(*counts, strict=False)])


def _queues_of(hosts: Iterable[VirtualHost]) -> list[Queue]:
    return [queue for host in hosts for queue in host.queues.values()]


def _of_past(host: VirtualHost) -> Counts:
    """What queues have counted that are gone, as those that are there do, but for what they were given."""
    total = Tally()
    for tally in host.past.queues.values():
        total.add(tally)
    sent = total.deliver + total.deliver_no_ack + total.get + total.get_no_ack
    return (
        *(0, sent, total.ack, total.deliver, total.deliver_no_ack, total.get, total.get_no_ack, total.get_empty),
        *(total.redeliver, 0, 0),
    )


def of_queue(queue: Queue) -> Counts:
    """What a queue has counted, as ``OF_QUEUES`` names it, and how many messages are ready and unacknowledged."""
    sent, got, got_unasked = queue.delivered_unasked, queue.got, queue.got_unasked
    delivered = queue.delivered
    return (
        *(queue.published, delivered, queue.acknowledged - sent - got_unasked),
        *(delivered - sent - got - got_unasked, sent, got, got_unasked, queue.got_nothing, queue.redelivered),
        *(queue.ready_count, queue.unacknowledged_count),
    )


def _lengths(counts: Counts) -> Counts:
    """Messages, ready, unacknowledged."""
    ready, unacknowledged = counts[-2:]
    return ready + unacknowledged, ready, unacknowledged


def _lengths_of(queue: Queue) -> Counts:
    return _lengths(of_queue(queue))


def of_channel(channel: Channel) -> Counts:
    """What a channel has counted, as ``TALLIED`` names it."""
    return _TALLIED(channel.tally)


_TALLIED = attrgetter(*TALLIED)


def _of_host(tally: Tally) -> Counts:
    return tuple(getattr(tally, name) for name in OF_HOSTS)


def _of_exchange(exchange: Exchange) -> Counts:
    return exchange.published_in, exchange.published_out


def _of_connection(connection: Connection) -> Counts:
    return connection.received_octets, connection.sent_octets


def _written(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}+00:00"
