"""Evaluation of the records of the demo's consumers."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jumpmq.cli.demo.crew import AGAIN, REFUSED, RETRIED, TABLES, WRITE, ConsumerResult, evaluated
from jumpmq.cli.demo.findings import Lateness, Order
from jumpmq.cli.demo.report import Report
from jumpmq.ordering import Delivery

Row = tuple[str, str, int, int]
"""Consumer, aircraft, number and epoch."""


def written(file: Path, *rows: Row, events: tuple[str, ...] = ()) -> Path:
    with closing(sqlite3.connect(file)) as database, database:
        database.executescript(TABLES)
        for consumer, key, number, epoch in rows:
            delivery = Delivery(key, str(number), f"q-{key}", 0, epoch, False)
            database.execute(WRITE, delivery.record(number, consumer=consumer))
        database.executemany("INSERT INTO events VALUES (?, 'a')", [[event] for event in events])
    return file


def test_flights_in_order_by_aircraft_and_once(tmp_path: Path) -> None:
    rows = [("a", "N2", 1, 5), ("b", "N1", 1, 5), ("a", "N1", 2, 6), ("a", "N1", 2, 6), ("a", "", 1, 6)]
    found = evaluated(written(tmp_path / "db", *rows, events=(AGAIN, RETRIED, RETRIED, REFUSED)), 4)
    assert found.parts == {"a": ConsumerResult(3, 3), "b": ConsumerResult(1, 1)}
    assert (found.handled, found.again, found.retried, found.refused) == (4, 1, 2, 1)
    assert found.verdict == "4 rows of 3 keys: order held, once held, owner held; 0 numbers missing"
    assert found.held


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([("a", "N1", 2, 5), ("a", "N1", 1, 5)], "order broken 1 time"),
        ([("a", "N1", 1, 6), ("b", "N1", 2, 5)], "owner broken 1 time"),
        ([("a", "N1", 1, 5), ("b", "N1", 2, 5)], "owner broken 1 time"),
        ([("a", "N1", 1, 5), ("a", "N1", 3, 5)], "1 number missing"),
    ],
)
def test_what_breaks_a_promise_fails_the_demo(tmp_path: Path, rows: list[Row], verdict: str) -> None:
    found = evaluated(written(tmp_path / "db", *rows), 2)
    assert verdict in found.verdict and not found.held
    report = Report({}, 0, 0, {}, Order(0, 0, 0, 0, 0), Lateness(0, None, None, None), shared=found)
    assert report.broken_promises() == [f"jumpmq verify: {found.verdict}"]


def test_flights_that_were_not_handled_fail_the_demo(tmp_path: Path) -> None:
    found = evaluated(written(tmp_path / "db", ("a", "N1", 1, 5)), 2)
    report = Report({}, 0, 0, {}, Order(0, 0, 0, 0, 0), Lateness(0, None, None, None), shared=found)
    assert report.broken_promises() == ["1 flights were handled by the consumer group of 2 published"]
