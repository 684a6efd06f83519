"""The scenarios: declarations, roles, and final counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from benchmarks.load.client import LoadError
from benchmarks.load.options import Load
from benchmarks.load.processes import Figures, together
from benchmarks.load.roles import SMALL_ROOM, consumer, crowd, per_tick, publisher, punctual_publisher, timing_consumer


def publish(load: Load) -> Figures:
    """Publish without consumers; the rate ends after the broker has read all messages (confirm: confirmed them)."""
    prepare(load)
    figures = together([publisher(load, i) for i in range(load.publishers)])
    copies = load.total * (load.queues if load.kind == "fanout" else 1)
    per_queue = settled(load, copies)
    if sum(per_queue) != copies:
        raise LoadError(f"the queues hold {sum(per_queue)} of {copies} messages")
    return {"messages": load.total, "per_queue": per_queue} | rates(load.total, figures)


def singly(load: Load) -> Figures:
    """Many connections, each of which waits for the confirm of one message before the next publish."""
    prepare(load)
    total = load.share // (load.connections // load.publishers) * load.connections
    figures = together([crowd(load, i) for i in range(load.publishers)])
    per_queue = settled(load, total)
    if sum(per_queue) != total:
        raise LoadError(f"the queues hold {sum(per_queue)} of {total} messages")
    return {"messages": total, "connections": load.connections} | rates(total, figures)


def drain(load: Load) -> Figures:
    """Consume the messages left by an earlier run."""
    waiting = sum(counts(load))
    if not waiting:
        raise LoadError("there is nothing to drain; run publish --keep before")
    figures = together([consumer(load, waiting)])
    return {"messages": waiting, "left": emptied(load)} | rates(waiting, figures)


def flow(load: Load) -> Figures:
    """Publish and consume at once; the rate ends with the last delivery."""
    prepare(load)
    figures = together([consumer(load, load.total), *(publisher(load, i) for i in range(load.publishers))])
    published = rates(load.total, figures[1:])["rate"]
    return {"messages": load.total, "left": emptied(load), "publish_rate": published} | rates(load.total, figures)


def latency(load: Load) -> Figures:
    """Open loop: send times are fixed in advance, so that a stall counts against every delayed message."""
    prepare(load)
    count = int(load.rate * load.seconds)
    figures = together([punctual_publisher(load, count), timing_consumer(load, count)])
    began, arrivals, tick = figures[0]["began"], figures[1]["arrivals"], per_tick(load)
    if not all(arrivals):
        raise LoadError(f"{arrivals.count(0.0)} of {count} messages did not come, others came twice")
    milliseconds = sorted((arrival - began - i // tick * tick / load.rate) * 1e3 for i, arrival in enumerate(arrivals))
    points = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    quantiles = {name: round(milliseconds[min(count - 1, int(count * part))], 3) for name, part in points.items()}
    return {"messages": count, "rate": load.rate} | quantiles | generator_cost(count, figures)


def bind(load: Load) -> Figures:
    """Bind and unbind one queue after the other, waiting for every answer."""
    with closing(load.connect()) as connection:
        connection.declare_exchange(load.messages.exchange, load.kind)
        for name in load.names:
            connection.declare_queue(name)
        timings = []
        for change in (connection.bind, connection.unbind):
            began = time.perf_counter()
            for name in load.names:
                change(name, load.messages.exchange, str(load.weight))
            timings.append(round(load.queues / (time.perf_counter() - began), 1))
    return {"queues": load.queues, "weight": load.weight, "binds_per_s": timings[0], "unbinds_per_s": timings[1]}


def connections(load: Load) -> Figures:
    """Open n connections with a channel, and close each before the next."""
    began = time.perf_counter()
    for _ in range(load.n):
        load.connect(SMALL_ROOM).close()
    return {"connections": load.n, "opened_per_s": round(load.n / (time.perf_counter() - began), 1)}


def channels(load: Load) -> Figures:
    """Open n channels on one connection, in batches of the channel limit, and close them."""
    at_once = range(2, 1002)
    with closing(load.connect()) as connection:
        began = time.perf_counter()
        for _ in range(0, load.n, len(at_once)):
            for number in at_once:
                connection.open_channel(number)
            for number in at_once:
                connection.close_channel(number)
        return {"channels": load.n, "opened_per_s": round(load.n / (time.perf_counter() - began), 1)}


def rates(messages: int, figures: Sequence[Figures]) -> Figures:
    """Messages per second until the end of the slowest role, and the generator's cost."""
    return {"rate": round(messages / max(each["seconds"] for each in figures))} | generator_cost(messages, figures)


def generator_cost(messages: int, figures: Sequence[Figures]) -> Figures:
    """Processor time of the generator per message, in microseconds, publishers and consumers together."""
    return {"generator_us": round(sum(each["cpu"] for each in figures) / messages * 1e6, 2)}


def prepare(load: Load) -> None:
    """Declare the exchange and the queues, purge and bind the queues."""
    with closing(load.connect()) as connection:
        connection.declare_exchange(load.messages.exchange, load.kind)
        for name in load.names:
            connection.declare_queue(name)
            connection.purge(name)
            connection.bind(name, load.messages.exchange, str(load.weight))


def clean(load: Load) -> None:
    """Delete exchange and queues."""
    with closing(load.connect()) as connection:
        for name in load.names:
            connection.delete_queue(name)
        connection.delete_exchange(load.messages.exchange)


def counts(load: Load) -> list[int]:
    """Number of ready messages of every queue."""
    with closing(load.connect()) as connection:
        return [connection.count(name) for name in load.names]


def settled(load: Load, total: int) -> list[int]:
    """Counts of the queues, after they hold `total` messages, or after a while without change."""
    last: list[int] = []
    deadline = 0.0
    with closing(load.connect()) as connection:
        while True:
            now = [connection.count(name) for name in load.names]
            if now != last:
                last, deadline = now, time.monotonic() + 5
            if sum(now) == total or time.monotonic() > deadline:
                return now
            time.sleep(0.05)


def emptied(load: Load) -> int:
    """Return 0 if the queues are empty, or raise LoadError."""
    left = sum(settled(load, 0))
    if left:
        raise LoadError(f"{left} messages are left in the queues behind the last")
    return left


SCENARIOS = {
    "publish": publish,
    "confirm": publish,
    "singly": singly,
    "drain": drain,
    "flow": flow,
    "latency": latency,
    "bind": bind,
    "connections": connections,
    "channels": channels,
}
