"""Compare JumpMQ with RabbitMQ on this machine: the same load on both in turn, and the ratios.

RabbitMQ takes part where it is installed. Both brokers run throughout, and the broker without load idles: neither
starts cold in a round, and the small cost of an idle RabbitMQ is to JumpMQ's disadvantage. (Freezing RabbitMQ with
SIGSTOP would cost nothing, but RabbitMQ seemed slower after a thaw.) The brokers alternate within a round, so that
other load on the machine affects both; every figure is the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.report import Results, conditions, markdown, table, write_between_markers
from benchmarks.targets import MEMORY, SCENARIOS, STARTUP, Scenario
from jumpmq._version import __version__
from jumpmq.testing import BrokerError, BrokerProcess, JumpMQ, RabbitMQ, ending_with_us

KINDS: tuple[type[BrokerProcess], ...] = (JumpMQ, RabbitMQ)
BUSY = 0.5
README = Path(__file__).parent / "README.md"


class Comparison:
    """The brokers, their measurements, and the progress of the comparison.

    Args:
        console: output for the progress.
        n: messages of a throughput run.
        rounds: number of repetitions of each measurement.
        seconds: duration of publishing in a latency run.
    """

    def __init__(self, console: Console, n: int, rounds: int, seconds: float) -> None:
        self.results = Results()
        self.console = console
        self.rounds = rounds
        self._sizes = ["-n", str(n), "--seconds", str(seconds)]

    def start(self, kind: type[BrokerProcess], stack: ExitStack) -> BrokerProcess:
        """Start the broker `rounds` times in fresh directories, note startup time and idle memory, and keep the
        last one.
        """
        for last in [False] * (self.rounds - 1) + [True]:
            with ExitStack() as own:
                broker = own.enter_context(kind())
                time.sleep(2)
                self.results.note(broker.name, STARTUP.title, broker.startup)
                self.results.note(broker.name, MEMORY.title, broker.memory() / 1e6)
                if last:
                    stack.push(own.pop_all())
        return broker

    def measure(self, scenario: Scenario, broker: BrokerProcess) -> str:
        """Run the scenario once and note its figures. Return a line for the user."""
        time.sleep(0.5)  # unfinished work of the previous run
        if scenario.before:
            self._load(scenario.before, broker)
        cpu = broker.cpu_seconds()
        with computing(scenario.computing):
            figures = self._load(scenario.arguments, broker)
        cpu = broker.cpu_seconds() - cpu
        if figures is None:
            return f"{scenario.title} on {broker.name} failed"
        if scenario.per_message:
            self.results.note(broker.name, f"{scenario.title} cpu", cpu / figures["messages"] * 1e6)
        for row in scenario.rows:
            self.results.note(broker.name, row.title, figures[row.figure])
        shown = ", ".join(f"{row.title} {figures[row.figure]:,}" for row in scenario.rows)
        return f"{broker.name}: {shown}"

    def _load(self, arguments: Iterable[str], broker: BrokerProcess) -> dict[str, float] | None:
        """Return the load generator's figures, or print its error and return None."""
        command = [sys.executable, "-m", "benchmarks.load", *self._sizes, *arguments, "--port", str(broker.port)]
        finished = subprocess.run(command, cwd=README.parent.parent, capture_output=True, text=True)
        if finished.returncode == 0:
            figures: dict[str, float] = json.loads(finished.stdout)
            return figures
        reason = finished.stderr.strip().splitlines()[-1:] or ["no reason given"]
        self.results.failures.append(f"{broker.name}: {reason[0]}")
        self.console.print(f"[red]{broker.name}: {reason[0]}")
        return None


@contextmanager
def computing(processes: int) -> Iterator[None]:
    """Run processes that each occupy a processor within the block."""
    running = [subprocess.Popen(ending_with_us([sys.executable, "-c", "while True: pass"])) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def compare(options: argparse.Namespace, console: Console) -> Results:
    """Run the measurements selected by the options."""
    comparison = Comparison(console, options.n, options.rounds, options.seconds)
    scenarios = [each for each in SCENARIOS if each.arguments[0] in options.only]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ExitStack() as stack, Progress(*columns, console=console, transient=True) as progress:
        kinds = participants(options.alone, console)
        task = progress.add_task("starting", total=len(kinds) * (1 + options.rounds * len(scenarios)))
        brokers = []
        for kind in kinds:
            progress.update(task, description=f"starting {kind.name}")
            brokers.append(comparison.start(kind, stack))
            progress.advance(task)
        comparison.results.versions = {broker.name: broker_version(broker) for broker in brokers}
        for number in range(options.rounds):
            for scenario in scenarios:
                for broker in brokers:
                    progress.update(task, description=f"round {number + 1}: {scenario.title} on {broker.name}")
                    console.print(comparison.measure(scenario, broker), highlight=False)
                    progress.advance(task)
    return comparison.results


def participants(alone: str | None, console: Console) -> list[type[BrokerProcess]]:
    """Return the brokers to measure: all installed brokers, or the requested broker alone."""
    available = RabbitMQ.available()
    if not available:
        console.print(f"[yellow]{available.reason}: there is nothing to compare with")
    return [kind for kind in KINDS if alone in (None, kind.name) and (kind is not RabbitMQ or available)]


def broker_version(broker: BrokerProcess) -> str:
    """The version of a running broker."""
    if not isinstance(broker, RabbitMQ):
        return __version__
    return broker.ctl("version").strip()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted({scenario.arguments[0] for scenario in SCENARIOS})
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="scenarios to run instead of all")
    parser.add_argument("--alone", choices=[kind.name for kind in KINDS], help="the one broker to measure")
    parser.add_argument("-n", type=int, default=300_000, help="messages of a throughput run")
    parser.add_argument("--rounds", type=int, default=3, help="how often; the median counts")
    parser.add_argument("--seconds", type=float, default=5, help="how long a latency run publishes")
    parser.add_argument("--write", action="store_true", help=f"put the table into {README.name}")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and return 1 after a failed run."""
    options = parse(arguments)
    console = Console()
    busy = os.getloadavg()[0]
    if busy > BUSY:
        console.print(f"[yellow]The machine is busy (load average {busy:.1f}): whoever uses fewer cores looks better")
    try:
        results = compare(options, console)
    except BrokerError as problem:
        console.print(problem, style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    caption = conditions(options.n, options.rounds, results.versions, busy)
    console.print(table(results), caption, sep="\n", highlight=False)
    for failure in results.failures:
        console.print(f"[red]failed: {failure}")
    if options.write and not results.failures:
        write_between_markers(README, f"{caption}\n\n{markdown(results)}")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
