"""Confirmed publishing to streams and queues, by this checkout and by another one in turn.

    python -m benchmarks.streams DIRECTORY

The directory is another checkout with built kernels, as made by ``git worktree add`` and ``setup.py build_ext
--inplace``. Each figure is the median over the rounds, in which both brokers serve in turn; next to it are the ratio of
the rates, and the ratio of the processor times, which depends less on other load. Every commit waits for the disk below
the temporary directory.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load.client import Address, Connection
from benchmarks.load.processes import Clock, Figures, Role, together
from benchmarks.load.traffic import Confirms, Messages
from benchmarks.queue_kinds import kind, method, publish, queues, short
from jumpmq.testing import JumpMQ

DEEP = 5000
"""Maximum number of unconfirmed publishes in the large window."""


class Checkout(JumpMQ):
    """A broker from the sources in a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._source = directory / "src"

    @property
    def command(self) -> list[str]:
        return ["env", f"PYTHONPATH={self._source}", sys.executable, "-P", "-m", "jumpmq"]


def confirmed(broker: JumpMQ, octets: list[bytes], n: int, window: int) -> Role:
    """Publish ``n`` messages, cycling through the given octets, with at most ``window`` unconfirmed."""

    def run(gate: object) -> Figures:
        connection = Connection(Address(broker.port))
        confirms = Confirms(connection)
        connection.select_confirms()
        gate.wait()  # type: ignore[attr-defined]
        clock = Clock()
        batch = max(1, window // 5) if window > len(octets) else window
        for start in range(0, n, batch):
            while confirms.missing + batch > window:
                confirms.read()
            connection.send(b"".join(octets[number % len(octets)] for number in range(start, start + batch)))
            confirms.sent += batch
        while confirms.missing:
            confirms.read()
        figures = clock.stop()
        connection.close()
        return figures

    return run


def sized(queue: str, size: int) -> bytes:
    """A persistent publish of the given size in octets."""
    octets = Messages("", size, 1, True).encode(0, 1, 131072)
    octets = octets.replace(method(1, 60, 40, b"\0\0" + short("") + short("0" * 10) + b"\0"), b"", 1)
    return method(1, 60, 40, b"\0\0" + short("") + short(queue) + b"\0") + octets


def seconds(broker: JumpMQ, name: str, n: int, *, window: int, streams: int = 1, size: int = 100) -> float:
    with queues(broker, kind(name), streams) as names:
        octets = [publish(one, True, None) if size == 100 else sized(one, size) for one in names]
        return max(one["seconds"] for one in together([confirmed(broker, octets, n, window)]))


LINES: dict[str, Callable[[JumpMQ], tuple[float, int]]] = {
    "stream, window 1": lambda broker: (seconds(broker, "stream", 1000, window=1), 1000),
    "20 streams in a commit": lambda broker: (seconds(broker, "stream", 4000, window=20, streams=20), 200),
    "stream, deep": lambda broker: (seconds(broker, "stream", 300_000, window=DEEP), 300_000),
    "stream, deep, 10 KB": lambda broker: (seconds(broker, "stream", 20_000, window=500, size=10_000), 20_000),
    "stream, deep, 100 KB": lambda broker: (seconds(broker, "stream", 3000, window=100, size=100_000), 3000),
    "queue, window 1": lambda broker: (seconds(broker, "classic", 1000, window=1), 1000),
    "queue, deep": lambda broker: (seconds(broker, "classic", 300_000, window=DEEP), 300_000),
    "queue, deep, 10 KB": lambda broker: (seconds(broker, "classic", 20_000, window=500, size=10_000), 20_000),
}
"""By title: seconds for a number of commits or messages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="lines whose titles contain it")
    options = parser.parse_args()
    with ExitStack() as stack:
        checkouts = Path(__file__).parent.parent, options.other.absolute()
        brokers = [stack.enter_context(Checkout(one)) for one in checkouts]
        for title, measure in LINES.items():
            if options.only not in title:
                continue
            found: list[list[float]] = [[], []]
            used: list[list[float]] = [[], []]
            for number in range(options.rounds):
                for place in (0, 1) if number % 2 else (1, 0):
                    before = brokers[place].cpu_seconds()
                    taken, count = measure(brokers[place])
                    found[place].append(taken / count)
                    used[place].append((brokers[place].cpu_seconds() - before) / count)
            mine, other = (statistics.median(one) for one in found)
            ratio, cpu = (statistics.median(b / a for a, b in zip(*one, strict=True)) for one in (found, used))
            shown = f"{mine * 1e6:10.1f} µs, {other * 1e6:10.1f} µs there  {ratio:6.2f}x"
            print(f"{title:26} {shown}, of the processor {cpu:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
