"""History of samples: of the whole broker, and of requested queues, exchanges, connections and channels.

A track has a sample per second of the last ten minutes, and a sample per minute of the last day, so that its size is
bounded. The broker has two permanent tracks: the values on the page's overview, and the sums of all virtual hosts. Any
other object has a track from the first request on; the track ends after :data:`FORGET_AFTER` without a request. A new
track begins with the known samples of the last day (:mod:`~jumpmq.http.past`). The fullest queues are followed without
a request, because users who find a full queue need the queue's past. So are the virtual hosts, if there are several.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jumpmq.broker.figures.values import (
    LEVELS_OF_QUEUES,
    OF_CHANNELS,
    OF_CONNECTIONS,
    OF_EXCHANGES,
    OF_HOSTS,
    OF_QUEUES,
    ChannelFigures,
    NodeFigures,
)
from jumpmq.http import past
from jumpmq.http.rates import NO_COUNTS, NOTHING, Rates, Sample
from jumpmq.topology import Change, ClearOperatorPolicy, ClearPolicy, MoveQueue, SetOperatorPolicy, SetPolicy
from jumpmq.topology.proposals import ChangePrincipal

if TYPE_CHECKING:
    from jumpmq.broker import Broker

FINE, FINE_COUNT = 1, 600
COARSE, COARSE_COUNT = 60, 1440
"""Seconds between coarse samples, and number of kept samples."""

MAX_TRACKS = 200
"""Maximum number of followed objects. An object takes some 200 KB after a day."""

FORGET_AFTER = 900.0
"""Seconds without a request after which an object is no longer followed."""

YIELD_AFTER = 60.0
"""Seconds without a request after which an object may be replaced by a new object."""

MAX_EVENTS = 500
"""Maximum number of remembered changes."""

FOLLOWED_UNASKED = 8
"""Number of the fullest queues followed without a request."""

FOLLOWED_HOSTS = 20
"""Maximum number of followed virtual hosts, if there are several."""

OVERVIEW = ("publish", "deliver_get", "ack", "ready", "unacknowledged")
NODE = ("memory", "messages", "disk_free", "connections", "cpu")
"""Columns of a node."""

BROKER = (*OVERVIEW, *NODE)
HOSTS = (*OF_HOSTS, *(name for name in OF_QUEUES if name not in OF_HOSTS), *LEVELS_OF_QUEUES)
COLUMNS = {
    "queue": (*OF_QUEUES, *LEVELS_OF_QUEUES, "consumers"),
    "exchange": OF_EXCHANGES,
    "connection": (*OF_CONNECTIONS, "channels"),
    "channel": (*OF_CHANNELS, "deliver_get", "unacknowledged", "unconfirmed"),
    "vhost": HOSTS,
    "overview": OVERVIEW,
}
"""Columns of an object, by kind."""

LEVELS = {
    *(*LEVELS_OF_QUEUES, "unconfirmed", "consumers", "channels", *NODE),
}
"""Columns shown as values; all other columns are shown as rates."""

Subject = tuple[str, ...]
"""Subject of a track: ``queue`` or ``exchange`` with virtual host and name, ``connection`` or ``channel`` with the
name, or a virtual host by name: ``vhost`` for the counters, ``overview`` for the values on the page's overview.
"""


class Ring:
    """The last samples at a fixed interval, as columns of floats; NaN stands for an unknown value."""

    def __init__(self, width: int, count: int) -> None:
        self._count = count
        self._columns = [array("d") for _ in range(width + 1)]
        self._next = 0

    def add(self, at: float, values: Sequence[float]) -> None:
        """Add a sample; it replaces the oldest sample if the ring is full."""
        for column, value in zip(self._columns, (at, *values), strict=True):
            if len(column) < self._count:
                column.append(value)
            else:
                column[self._next % self._count] = value
        self._next += 1

    def last(self, count: int) -> list[list[float]]:
        """Return the columns of the last samples, oldest first. The first column has the times, in seconds since the
        epoch.
        """
        found = []
        for column in self._columns:
            split = self._next % self._count if len(column) == self._count else 0
            found.append((column[split:] + column[:split]).tolist()[-count:])
        return found


class Track:
    """History of a subject."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.asked_at = time.monotonic()
        self.names = names
        self._fine = Ring(len(names), FINE_COUNT)
        self._coarse = Ring(len(names), COARSE_COUNT)
        self._coarse_at = 0.0

    def remember(self, past: Iterable[tuple[float, Sequence[float]]], names: Sequence[str]) -> None:
        """Add earlier samples of some columns, one per minute, at the beginning."""
        places = [names.index(name) if name in names else None for name in self.names]
        for at, values in past:
            self._coarse.add(at, [float("nan") if place is None else values[place] for place in places])
            self._coarse_at = at

    def add(self, at: float, values: Sequence[float]) -> None:
        """Add a sample.

        Args:
            at: time of the sample, in seconds since the epoch.
        """
        self._fine.add(at, values)
        if at - self._coarse_at >= COARSE:
            self._coarse.add(at, values)
            self._coarse_at = at

    def shown(self, seconds: int) -> dict[str, Any]:
        """Return the last ``seconds``, as JSON: a sample per second or, beyond ten minutes, per minute. Counters are
        shown as rates.
        """
        fine = seconds <= FINE * FINE_COUNT
        interval = FINE if fine else COARSE
        times, *columns = (self._fine if fine else self._coarse).last(seconds // interval + 1)
        old = sum(1 for at in times[1:] if at < time.time() - seconds)  # samples may be further apart than planned
        times, columns = times[old:], [column[old:] for column in columns]
        shown: dict[str, Any] = {"interval": interval, "at": [round(at, 1) for at in times[1:]]}
        for name, column in zip(self.names, columns, strict=True):
            shown[name] = [_plain(value) for value in column[1:]] if name in LEVELS else _rates(times, column)
        return shown

    def samples(self, names: tuple[str, ...], age: int, increment: int) -> list[tuple[float, float]]:
        """Return the samples of the last ``age`` seconds, ``increment`` seconds apart, latest first, as (time, value).

        Args:
            names: columns whose sum is the value.
        """
        fine = age <= FINE * FINE_COUNT
        interval = FINE if fine else COARSE
        times, *columns = (self._fine if fine else self._coarse).last(age // interval + 1)
        wanted = [column for name, column in zip(self.names, columns, strict=True) if name in names]
        step = max(1, increment // interval)
        found = ((times[at], sum(column[at] for column in wanted)) for at in range(len(times) - 1, -1, -step))
        return [(at, value) for at, value in found if value == value]


@dataclass(frozen=True)
class HistoryEvent:
    """A change that may affect followed objects.

    Attributes:
        at: time of the change, in seconds since the epoch.
        vhost: affected virtual host; "" for all.
        text: description of the change.
        queue: the only affected queue; "" for several queues.
    """

    at: float
    vhost: str
    text: str
    queue: str = ""


def described(change: Change) -> tuple[str, str] | None:
    """Return virtual host and description of a change of definitions; None for a change without effect on rates and
    backlogs.
    """
    match change:
        case SetPolicy(vhost, name):
            return vhost, f"policy '{name}' set"
        case ClearPolicy(vhost, name):
            return vhost, f"policy '{name}' cleared"
        case SetOperatorPolicy(vhost, name):
            return vhost, f"operator policy '{name}' set"
        case ClearOperatorPolicy(vhost, name):
            return vhost, f"operator policy '{name}' cleared"
        case MoveQueue(vhost, name):
            return vhost, f"queue '{name}' moved"
    return None


class History:
    """The tracks of a broker; takes a sample after every reading of :class:`~jumpmq.http.rates.Rates`.

    Attributes:
        overall: track of the broker.
        hosts: track of the sums of all virtual hosts.
        nodes: tracks of the nodes of the cluster, by name.
    """

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates
        self.overall = Track(BROKER)
        self.hosts = Track(HOSTS)
        self.nodes: dict[str, Track] = {broker.node: Track(NODE)}
        self._tracks: OrderedDict[Subject, Track] = OrderedDict()
        self._past = {kind: past.Past(kind, broker.config.timing.past_sample) for kind in past.COUNTED}
        self._events: deque[HistoryEvent] = deque([HistoryEvent(time.time(), "", "the broker started")], MAX_EVENTS)
        broker.topology.listeners.append(self._follow)
        rates.on_look.append(self._sample)

    def _follow(self, change: Change, principal: ChangePrincipal) -> None:
        """Record a change of definitions as an event."""
        if (found := described(change)) is not None:
            vhost, text = found
            queue = change.name if isinstance(change, MoveQueue) else ""
            self._events.append(HistoryEvent(time.time(), vhost, text, queue))

    def events(self, seconds: int, vhosts: Set[str], queue: str | None = None) -> list[dict[str, Any]]:
        """Return the events of the last ``seconds`` in the virtual hosts, and global ones, oldest first.

        Args:
            queue: the only queue of the events, if given.
        """
        since = time.time() - seconds
        wanted = [one for one in self._events if one.at >= since and (not one.vhost or one.vhost in vhosts)]
        if queue is not None:
            wanted = [one for one in wanted if one.queue in ("", queue)]
        return [{"at": round(one.at, 1), "text": one.text} for one in wanted]

    def of(self, *subject: str, identity: Hashable = None) -> Track:
        """Return the track of a subject, followed from the first request on.

        If :data:`MAX_TRACKS` other subjects were requested recently, the subject is not followed, and its track is
        empty.

        Args:
            identity: id of a connection or channel, for finding the samples of the last day.
        """
        return self._asked(subject, identity)

    def _asked(self, subject: Subject, identity: Hashable = None) -> Track:
        now, track = time.monotonic(), self._tracks.get(subject)
        if track is None:
            track = Track(COLUMNS[subject[0]])
            if len(self._tracks) >= MAX_TRACKS:
                oldest = next(iter(self._tracks.values()))
                if now - oldest.asked_at < YIELD_AFTER:
                    return track
                self._tracks.popitem(last=False)
            self._tracks[subject] = track
            if (kept := self._past.get(subject[0])) is not None:
                track.remember(kept.of(self._id_of(*subject) if identity is None else identity), kept.columns)
        track.asked_at = now
        self._tracks.move_to_end(subject)
        return track

    def _id_of(self, kind: str, *place: str) -> Hashable:
        if kind != "queue":
            return place
        vhost, name = place
        host = self._broker.topology.vhosts.get(vhost)
        definition = None if host is None else host.queue_definition(name)
        return None if definition is None else definition.id

    async def _sample(self) -> None:
        now, look = time.time(), self._rates.latest
        seen: dict[str, Mapping[Any, Sample]] = {
            "queue": look.queues,
            "exchange": look.exchanges,
            "connection": look.connections,
            "channel": look.channels,
        }
        for kind, found in seen.items():
            await self._past[kind].note(found, self._broker.slices)
        nodes = self._broker.figures.nodes()
        self.overall.add(now, self._of_broker(nodes[self._broker.at]))
        self._sample_nodes(now, nodes)
        of_hosts = {name: self._of_host(name) for name in self._broker.topology.vhosts}
        self.hosts.add(now, [sum(column) for column in zip(*of_hosts.values(), strict=True)] or [0.0] * len(HOSTS))
        for queue in look.fullest[:FOLLOWED_UNASKED]:
            self._asked(("queue", queue.vhost, queue.name))
        for vhost in [*of_hosts][:FOLLOWED_HOSTS] if len(of_hosts) > 1 else ():
            self._asked(("overview", vhost))
        for subject, track in list(self._tracks.items()):
            match subject:
                case "vhost", vhost:
                    values = of_hosts.get(vhost)
                case "overview", vhost:
                    values = self._overview_of(vhost) if vhost in of_hosts else None
                case _:
                    values = await self._values(subject)
            if values is None or time.monotonic() - track.asked_at > FORGET_AFTER:
                self._tracks.pop(subject, None)
            else:
                track.add(now, values)
        self._broker.ring_traffic.turn(now)

    def _sample_nodes(self, now: float, figures: Mapping[str, NodeFigures]) -> None:
        known = {self._broker.node, *self._broker.topology.nodes}
        self.nodes = {name: self.nodes.get(name) or Track(NODE) for name in known}
        for name, track in self.nodes.items():
            if (node := figures.get(name)) is not None:
                track.add(now, self._of_node(node))

    def _of_node(self, node: NodeFigures) -> Sequence[float]:
        disk = float("nan") if node.disk_free is None else node.disk_free
        return node.resident, node.memory, disk, node.connections, self._rates.last_cpu(node.name)

    def _of_broker(self, node: NodeFigures) -> Sequence[float]:
        look = self._rates.latest
        return *self._rates.moved, look.ready, look.unacknowledged, *self._of_node(node)

    def _of_host(self, name: str) -> Sequence[float]:
        look = self._rates.latest
        sample = look.hosts.get(name)
        found = dict(zip((*OF_QUEUES, *LEVELS_OF_QUEUES), look.of_hosts.get(name, NO_COUNTS), strict=True))
        found |= zip(OF_HOSTS, sample.counts if sample is not None else (0,) * len(OF_HOSTS), strict=True)
        return [found[name] for name in HOSTS]

    def _overview_of(self, name: str) -> Sequence[float]:
        return *self._rates.moved_in.get(name, NOTHING), *self._rates.latest.backlogs.get(name, (0, 0))

    async def _values(self, subject: Subject) -> Sequence[float] | None:
        """Return the current values of a subject; None if it no longer exists."""
        figures, (kind, *place) = self._broker.figures, subject
        match kind:
            case "connection":
                connections = await figures.connections_named(place[0])
                return (*connections[0].counts, connections[0].channels) if connections else None
            case "channel":
                channels = await figures.channels_named(place[0])
                return _of_channel(channels[0]) if channels else None
        host = self._broker.topology.vhosts.get(place[0])
        if host is None:
            return None
        if kind == "exchange":
            return figures.exchange(*place) if place[1] in host.exchanges else None
        definition = host.queue_definition(place[1])
        queue = None if definition is None else await figures.queue(definition)
        if queue is None:
            return None
        if queue.state == "down":
            return [float("nan")] * len(COLUMNS["queue"])
        return (*queue.counts, queue.consumers)


def _of_channel(channel: ChannelFigures) -> Sequence[float]:
    counts = dict(zip(OF_CHANNELS, channel.counts, strict=True))
    sent = counts["deliver"] + counts["deliver_no_ack"] + counts["get"] + counts["get_no_ack"]
    return (*channel.counts, sent, channel.unacknowledged, channel.unconfirmed)


def _rates(times: list[float], counts: list[float]) -> list[float | None]:
    """Return rates per second between neighbouring samples; None next to an unknown sample. A falling counter, of a
    redeclared queue, has the rate 0.
    """
    return [
        None if before != before or after != after else round(max(0.0, after - before) / max(till - since, 0.001), 2)
        for (since, till), (before, after) in zip(pairwise(times), pairwise(counts), strict=True)
    ]


def _plain(value: float) -> float | None:
    if value != value:
        return None
    return int(value) if value == int(value) else round(value, 3)
