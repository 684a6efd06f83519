"""The results, as a table in a terminal and in Markdown."""

from __future__ import annotations

import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.targets import MEMORY, SCENARIOS, STARTUP, Row

OURS, THEIRS = "JumpMQ", "RabbitMQ"
Pair = tuple[float | None, float | None]
BEGIN, END = "<!-- compare: begin -->", "<!-- compare: end -->"
HEADINGS = ("", OURS, THEIRS, "ratio", "target", "CPU µs")
LEFT = ("", "target")


class Results:
    """All figures of all rounds.

    Attributes:
        failures: descriptions of failed runs.
        versions: of the reference brokers.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.versions: dict[str, str] = {}
        self._figures: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    def note(self, broker: str, figure: str, measured: float) -> None:
        """Note a measurement."""
        self._figures[broker, figure].append(measured)

    def median(self, broker: str, figure: str) -> float | None:
        """Median over the rounds, or None without measurements."""
        measured = self._figures.get((broker, figure))
        return statistics.median(measured) if measured else None

    def both(self, figure: str) -> Pair:
        """The medians of both brokers."""
        return self.median(OURS, figure), self.median(THEIRS, figure)


class Line(NamedTuple):
    """A line of the table as text, with the result of its target."""

    cells: tuple[str, ...]
    met: bool | None


def lines(results: Results) -> Iterator[Line]:
    """Return the lines of the table, without unmeasured rows."""
    for scenario in SCENARIOS:
        cpu = results.both(f"{scenario.title} cpu")
        for row in scenario.rows:
            if any(results.both(row.title)):
                yield line(row, *results.both(row.title), cpu)
    for row in (STARTUP, MEMORY):
        if any(results.both(row.title)):
            yield line(row, *results.both(row.title), (None, None))


def line(row: Row, ours: float | None, theirs: float | None, cpu: Pair) -> Line:
    """The line of a row; `cpu` is microseconds per message of both brokers."""
    met = row.met(ours, theirs)
    ratio = "" if ours is None or theirs is None else f"{row.ratio(ours, theirs):.1f}x"
    target = row.target + {None: "", True: " ✓", False: " ✗"}[met]
    figures = [number(ours, row.unit), number(theirs, row.unit)]
    costs = " : ".join("-" if each is None else f"{each:.1f}" for each in cpu) if any(cpu) else ""
    return Line((row.title, *figures, ratio, target, costs), met)


def number(measured: float | None, unit: str) -> str:
    """Three digits or all before the point, with the unit; a dash for what was not measured."""
    if measured is None:
        return "-"
    digits = 0 if measured >= 100 else 1 if measured >= 10 else 2
    return f"{measured:,.{digits}f}{unit}"


def table(results: Results) -> Table:
    """The table for a terminal."""
    shown = Table(
        title="JumpMQ beside RabbitMQ: messages or bindings a second, where no unit is given",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in HEADINGS:
        shown.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=True)
    for cells, met in lines(results):
        shown.add_row(*cells, style={None: "", True: "green", False: "red"}[met])
    return shown


def markdown(results: Results) -> str:
    """The table in Markdown."""
    alignment = ["---" if heading in LEFT else "---:" for heading in HEADINGS]
    rows = [HEADINGS, alignment, *(cells for cells, _ in lines(results))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def conditions(n: int, rounds: int, versions: dict[str, str], busy: float) -> str:
    """A sentence on when, where and with what the figures were measured; `busy` is the load average before."""
    brokers = [f"{broker} {version}" for broker, version in versions.items()]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({processor()}), {' and '.join(brokers)}, "
        f"Python {platform.python_version()}, Linux {platform.release().partition('-')[0]}; {n:,} messages of "
        f"100 octets through four queues, load average {busy:.1f} before, median of {rounds} round{'s' * (rounds > 1)}."
    )


def processor() -> str:
    """The model of the processor."""
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.machine()


def write_between_markers(path: Path, text: str) -> None:
    """Replace the text between the markers of the file."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, behind = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{behind}")
