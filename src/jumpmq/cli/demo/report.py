"""Output at the end of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table

from jumpmq.cli.demo.crew import GROWN, QUEUES, SharedFlights
from jumpmq.cli.demo.findings import LATE, Lateness, Order, QueueShare
from jumpmq.cli.demo.late import LateFlights
from jumpmq.hashing.chi_squared import chi_squared_test


@dataclass(frozen=True)
class Report:
    """Measurements and results of the demo."""

    weights: Mapping[str, int]
    published: int
    without_tail_number: int
    shares: Mapping[str, QueueShare]
    order: Order
    lateness: Lateness
    late: LateFlights = field(default_factory=LateFlights)
    shared: SharedFlights = field(default_factory=SharedFlights)

    def broken_promises(self) -> list[str]:
        """Return the violated promises, as sentences; empty on success."""
        order, shared, published = self.order, self.shared, f"came out of {self.published:,} published"
        claims = [
            (order.rows == self.published, f"{order.rows:,} rows {published}"),
            (order.distinct_flights == self.published, f"{order.distinct_flights:,} different flights {published}"),
            (order.aircraft_in_several_queues == 0, f"{order.aircraft_in_several_queues:,} aircraft in several queues"),
            (order.flights_out_of_order == 0, f"{order.flights_out_of_order:,} flights out of order"),
            (
                sum(self.late.shards.values()) == self.late.published,
                f"{sum(self.late.shards.values()):,} late flights in the shards of {self.late.published:,} published",
            ),
            (
                shared.handled == shared.published,
                f"{shared.handled:,} flights were handled by the consumer group of {shared.published:,} published",
            ),
            (shared.held, f"jumpmq verify: {shared.verdict}"),
        ]
        return [sentence for holds, sentence in claims if not holds]

    def show(self, console: Console) -> None:
        """Print the whole report."""
        console.print(self._spread())
        test = chi_squared_test([self._share(queue).keys for queue in self.weights], list(self.weights.values()))
        console.print(
            f"Chi-squared over keys: {test.statistic:.2f}, {test.degrees} degrees of freedom, p = {test.p_value:.2f}.\n"
            f"(Below 0.05 one would doubt that keys follow the weights.)\n"
        )
        console.print(self._shared())
        for line in self.broken_promises() or self._kept_promises():
            console.print(f"  {line}", soft_wrap=True)
        console.print()
        self._show_lateness(console)

    def _spread(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, title="Messages of each queue of the consistent hash exchange")
        for name in ("queue", "weight", "messages", "expected", "keys", "expected "):
            table.add_column(name, justify="left" if name == "queue" else "right")
        keys, total = sum(share.keys for share in self.shares.values()), sum(self.weights.values())
        for queue, weight in self.weights.items():
            share = self._share(queue)
            expected_messages, expected_keys = self.order.rows * weight / total, keys * weight / total
            counts = (share.messages, expected_messages, share.keys, expected_keys)
            table.add_row(queue, str(weight), *(f"{count:,.0f}" for count in counts))
        return table

    def _shared(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, title="Messages of each consumer of a group")
        for name in ("consumer", "queues", "flights"):
            table.add_column(name, justify="left" if name == "consumer" else "right")
        for name, part in self.shared.parts.items():
            table.add_row(name, str(part.queues), f"{part.flights:,}")
        return table

    def _share(self, queue: str) -> QueueShare:
        return self.shares.get(queue, QueueShare(0, 0))

    def _kept_promises(self) -> list[str]:
        order = self.order
        return [
            f"rows in = rows out: {self.published:,} published, {order.rows:,} in the table, none twice",
            f"same key, same queue: each of {order.aircraft:,} aircraft is in exactly one",
            "order: every aircraft's flights are as they were published",
            f"no tail number: {self.without_tail_number:,} flights share the empty key, and so a queue",
            f"and back: {self.late.published:,} late flights published by Spark into {len(self.late.shards)} shards: "
            + " + ".join(f"{count:,}" for count in self.late.shards.values()),
            f"consumer group: {self.shared.handled:,} flights handled through a kill, a stop, a join and "
            f"{GROWN - QUEUES} new queues; {self.shared.retried:,} put back for a while, "
            f"{self.shared.again:,} came again, {self.shared.refused:,} late writes refused",
            f"jumpmq verify: {self.shared.verdict}",
        ]

    def _show_lateness(self, console: Console) -> None:
        found = self.lateness
        console.print(f"An aircraft arrives {LATE} minutes late or more. Does it leave late again that day?")
        for departures, late in (
            ("after a late arrival", found.late_after_late),
            ("after a punctual one", found.late_after_punctual),
            (f"all {found.departures:,} departures", found.late),
        ):
            console.print(f"  {departures:<24}{'no departures' if late is None else f'{late:4.0%} left late'}")
