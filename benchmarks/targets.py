"""The compared scenarios, and their targets relative to RabbitMQ or absolute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        title: first column.
        figure: name of the figure in the load generator's output; empty if measured without it.
        unit: unit behind the figure; empty for messages or bindings per second.
        times: required ratio to RabbitMQ; 0 without such a target.
        most: maximum of the figure, independent of RabbitMQ; 0 without such a target.
        less_is_better: for times and sizes.
    """

    title: str
    figure: str
    unit: str
    times: float = 0
    most: float = 0
    less_is_better: bool = False

    @property
    def target(self) -> str:
        """The target in words."""
        if self.most:
            return f"≤ {self.most:g}{self.unit}"
        if self.times == 1:
            return "no worse"
        return f"{self.times:g}x" if self.times else ""

    def ratio(self, ours: float, theirs: float) -> float:
        """Ratio by which `ours` is better."""
        return theirs / ours if self.less_is_better else ours / theirs

    def met(self, ours: float | None, theirs: float | None) -> bool | None:
        """Return true if the target is met; None without a target or a value to compare with."""
        if ours is None:
            return None
        if self.most:
            return ours <= self.most
        if not self.times or theirs is None:
            return None
        return self.ratio(ours, theirs) >= self.times


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run of the load generator.

    Attributes:
        arguments: of the command line.
        rows: lines of the table with the run's figures.
        before: arguments of a preparing run.
        per_message: processor time is counted per message.
        computing: number of processes that occupy processors meanwhile.
    """

    arguments: tuple[str, ...]
    rows: tuple[Row, ...]
    before: tuple[str, ...] = ()
    per_message: bool = True
    computing: int = 0

    @property
    def title(self) -> str:
        """Arguments of the command line."""
        return " ".join(self.arguments)


def throughput(*arguments: str, before: tuple[str, ...] = ()) -> Scenario:
    """A scenario that counts messages per second."""
    return Scenario(arguments, (Row(" ".join(arguments), "rate", "", times=3),), before)


STARTUP = Row("startup", "", " s", most=1, less_is_better=True)
MEMORY = Row("idle memory", "", " MB", most=100, less_is_better=True)

SCENARIOS = (
    throughput("flow"),
    throughput("flow", "--auto-ack"),
    throughput("flow", "--ack-singly"),
    *(
        Scenario(
            ("flow", "--size", size, "-n", count, *persistent),
            (Row(f"flow, {name}{', persistent' if persistent else ''}", "rate", "", times=1.5 if persistent else 2),),
        )
        for size, count, name in (
            ("10000", "50000", "10 KB"),
            ("100000", "10000", "100 KB"),
            ("1000000", "2000", "1 MB"),
        )
        for persistent in ((), ("--persistent",))
    ),
    throughput("publish"),
    throughput("drain", before=("publish", "--keep")),
    throughput("confirm"),
    throughput("confirm", "--persistent"),
    *(
        Scenario(
            ("confirm", "--persistent", "--window", window, "-n", count),
            (Row(f"confirm --persistent --window {window}, on a busy machine", "rate", "", times=times),),
            computing=2,
        )
        for window, count, times in (("1", "2000", 1.5), ("10", "10000", 3))
    ),
    *(
        Scenario(
            ("confirm", "--persistent", "--queues", "100", "--size", "500", "--window", window, "-n", count),
            (Row(f"100 queues, 500 octets, at most {window} unconfirmed", "rate", "", times=times),),
        )
        for window, count, times in (("1", "2000", 1.5), ("100", "50000", 3))
    ),
    Scenario(
        ("confirm", "--persistent", "--type", "fanout", "--queues", "1000", "-n", "2000", "--window", "100"),
        (Row("1,000 queues, each message to all, persistent", "rate", "", times=3),),
    ),
    Scenario(
        ("singly", "--persistent", "-n", "50000", "--connections", "1000", "--publishers", "2"),
        (Row("1,000 connections, confirmed singly", "rate", "", times=2),),
    ),
    Scenario(
        ("latency", "--rate", "5000"),
        (
            Row("latency p50", "p50", " ms", less_is_better=True),
            Row("latency p99", "p99", " ms", times=1, less_is_better=True),
        ),
    ),
    Scenario(
        ("bind", "--queues", "20", "--weight", "1000"),
        (
            Row("bind", "binds_per_s", "", times=10),
            Row("unbind", "unbinds_per_s", "", times=10),
        ),
        per_message=False,
    ),
    Scenario(("connections", "-n", "5000"), (Row("connections", "opened_per_s", "", times=3),), per_message=False),
    Scenario(("channels", "-n", "5000"), (Row("channels", "opened_per_s", "", times=3),), per_message=False),
)
