"""``/api/exchanges/{vhost}/{exchange}/flow``: publishers, queues and consumers of an exchange. JumpMQ's own.

The page repeats the request, which must be cheap with 10,000 queues. The rates are therefore those of the last reading,
and consumers are read of the shown queues only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.channel.group_consumer import GROUP
from jumpmq.broker.figures.values import ConsumerFigures, PeerAddress
from jumpmq.broker.routing.bound_queues import bound_queues
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.rates import Rates
from jumpmq.queues import Queue
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue

SHOWN, MOST_SHOWN = 16, 64
"""Number of queues shown individually: default, and maximum."""

IDLEST = 3
"""Number of shown queues chosen as the idlest: next to the fullest queues they show a skew."""

MOST_CLIENTS = 12
"""Maximum number of publishers, and of consumers, shown individually."""

MOST_CONSUMERS = 200
"""Maximum number of consumers examined per queue."""


class QueueFlow(NamedTuple):
    """Message rates of a queue, per second, and its contents."""

    queue: Queue | DeclaredQueue
    published: float
    delivered: float
    settled: float
    ready: int
    unacknowledged: int
    consumers: int

    @property
    def excess(self) -> float:
        """Rate of publishing minus rate of settling, at least 0; 0 for a stream, whose messages are not removed."""
        return 0.0 if self.queue.append_only else max(0.0, self.published - self.settled)

    @property
    def trouble(self) -> tuple[int, ...]:
        """Sort key: fuller queues are greater. Rounded, so that the order does not change with every reading."""
        waiting = 0 if self.queue.append_only else self.ready + self.unacknowledged
        return _rough(waiting), _rough(int(self.excess)), _rough(int(self.published))


def _rough(number: int) -> int:
    """Round a number to the three leading bits."""
    shift = max(0, number.bit_length() - 3)
    return number >> shift << shift


async def flow(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/flow?queues=16``: flow of messages through an exchange, from publishers
    to consumers.

    The fullest and the idlest queues are shown, in order of binding; ``folded`` has the sums of all other queues.
    Publishers or consumers with an equal name (of the connection, consumer group or reader group) are one entry.
    ``published`` and ``delivered`` count messages. Names of rates, per second, end in ``_rate``.
    """
    host, exchange = requested.virtual_host(request), requested.exchange(request)
    most = requested.number(request, "queues", SHOWN)
    if not IDLEST < most <= MOST_SHOWN:
        raise BadRequest(f"'queues' must be from {IDLEST + 1} to {MOST_SHOWN}, not {most}")
    broker, rates = requested.broker(request), request.app.state.rates
    passing = [_passing(rates, queue) async for queue in broker.slices.through(bound_queues(exchange))]
    shown, folded = _folded(passing, most)
    came, went = rates.last_rates_of_exchange(host.name, exchange.name)
    publishers = await broker.figures.publishers(host.name, exchange.name)
    consumers = await _consumers(request, host, shown)
    return answer(
        {
            "vhost": host.name,
            "exchange": exchange.name,
            "type": exchange.type,
            "in_rate": came,
            "out_rate": went,
            "publishers": _publishers((one.peer, one.published) for one in publishers),
            "queues": [_shown(one) for one in shown],
            "folded": _together(folded),
            "consumers": consumers[:MOST_CLIENTS],
            "other_consumers": len(consumers[MOST_CLIENTS:]),
        }
    )


def _passing(rates: Rates, queue: Queue | DeclaredQueue) -> QueueFlow:
    counts = rates.last_counts(queue.id)
    settled = sum(rates.last_rate(queue.id, name) for name in ("ack", "deliver_no_ack", "get_no_ack"))
    return QueueFlow(
        queue,
        rates.last_rate(queue.id, "publish"),
        rates.last_rate(queue.id, "deliver_get"),
        settled,
        counts[-2],
        counts[-1],
        rates.latest.consumers_of.get(queue.id, 0),
    )


def _folded(passing: list[QueueFlow], most: int) -> tuple[list[QueueFlow], list[QueueFlow]]:
    """Split queues into shown queues and the rest, both in the given order."""
    if len(passing) <= most:
        return passing, []
    places = sorted(range(len(passing)), key=lambda place: passing[place].trouble, reverse=True)
    chosen = {*places[: most - IDLEST], *places[-IDLEST:]}
    return (
        [one for place, one in enumerate(passing) if place in chosen],
        [one for place, one in enumerate(passing) if place not in chosen],
    )


def _shown(one: QueueFlow) -> dict[str, Any]:
    return {
        "name": one.queue.name,
        "type": one.queue.type,
        "publish_rate": one.published,
        "deliver_rate": one.delivered,
        "settle_rate": round(one.settled, 2),
        "excess_rate": round(one.excess, 2),
        "messages_ready": one.ready,
        "messages_unacknowledged": one.unacknowledged,
        "consumers": one.consumers,
    }


def _together(folded: list[QueueFlow]) -> dict[str, Any]:
    return {
        "queues": len(folded),
        "publish_rate": round(sum(one.published for one in folded), 2),
        "deliver_rate": round(sum(one.delivered for one in folded), 2),
        "settle_rate": round(sum(one.settled for one in folded), 2),
        "excess_rate": round(sum(one.excess for one in folded), 2),
        "messages_ready": sum(one.ready for one in folded),
        "messages_unacknowledged": sum(one.unacknowledged for one in folded),
        "consumers": sum(one.consumers for one in folded),
    }


def _publishers(found: Iterable[tuple[PeerAddress, int]]) -> list[dict[str, Any]]:
    """Return publishers by connection name, busiest first; the last entry is the sum of the rest."""
    published, channels, users = Counter[str](), Counter[str](), dict[str, str]()
    for peer, count in found:
        name = peer.provided_name or peer.name
        published[name] += count
        channels[name] += 1
        users[name] = peer.user
    named = published.most_common()
    shown = [
        {"name": name, "user": users[name], "channels": channels[name], "published": count}
        for name, count in named[:MOST_CLIENTS]
    ]
    if others := named[MOST_CLIENTS:]:
        count = sum(channels[name] for name, _ in others)
        shown.append({"name": None, "user": None, "channels": count, "published": sum(one for _, one in others)})
    return shown


async def _consumers(request: Request, host: VirtualHost, shown: list[QueueFlow]) -> list[dict[str, Any]]:
    """Return the consumers of the shown queues; consumers of most queues come first."""
    figures, found = requested.broker(request).figures, dict[tuple[str, str], dict[str, Any]]()
    for one in shown:
        declared = host.declared.get(one.queue.name)
        if declared is None or not one.consumers:
            continue
        for consumer in await figures.consumers_of(declared.definition, MOST_CONSUMERS):
            kind, name = _who(consumer)
            entry = found.setdefault((kind, name), _nobody(kind, name, consumer.peer and consumer.peer.user))
            entry["consumers"] += 1
            entry["messages_unacknowledged"] += consumer.unacknowledged
            entry["queues"][one.queue.name] = entry["queues"].get(one.queue.name, 0) + consumer.delivered
    names = {one.queue.name for one in shown}
    for place in await figures.readers():
        if place.vhost == host.name and place.queue in names:
            entry = found.setdefault(("reader", place.group), _nobody("reader", place.group, place.user))
            entry["consumers"] += place.alive
            entry["messages_unacknowledged"] += place.reserved
            entry["queues"].setdefault(place.queue, None)
    return sorted(found.values(), key=lambda entry: (-len(entry["queues"]), entry["kind"], entry["name"]))


def _nobody(kind: str, name: str, user: str | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "user": user,
        "consumers": 0,
        "messages_unacknowledged": 0,
        "queues": {},
    }


def _who(consumer: ConsumerFigures) -> tuple[str, str]:
    """Return the owner of a consumer: a consumer group, or a client."""
    if (group := consumer.arguments.get(GROUP)) is not None:
        return "group", str(group)
    peer = consumer.peer
    return "client", consumer.tag if peer is None else peer.provided_name or peer.name


ROUTES = [Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/flow", flow, access=Access.MONITORING)]
