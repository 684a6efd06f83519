"""The demo counts the findings in its table, and detects a table that breaks a promise."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from jumpmq.cli.demo.findings import Lateness, Order, QueueShare, lateness, order, queue_shares
from jumpmq.cli.demo.report import Report
from jumpmq.cli.demo.table import spark_session

pytestmark = pytest.mark.slow

SCHEMA = """queue string, seq bigint, number bigint, tailnum string,
    year int, month int, day int, dep_delay int, arr_delay int"""


class Flight(NamedTuple):
    """The columns of the demo's table used by the findings."""

    queue: str
    seq: int
    number: int
    tailnum: str | None
    year: int = 2013
    month: int = 1
    day: int = 1
    dep_delay: int | None = 0
    arr_delay: int | None = 0


GOOD = [
    Flight("q1", 1, 1, "N1"),
    Flight("q2", 1, 2, "N2"),
    Flight("q1", 2, 3, "N1"),
    Flight("q1", 3, 4, None),
    Flight("q1", 4, 5, None),
    Flight("q2", 2, 6, "N2"),
]

Table = Callable[[list[Flight]], SparkSession]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session(partitions=2) as started:
        yield started()


@pytest.fixture
def table(spark: SparkSession) -> Table:
    def show(flights: list[Flight]) -> SparkSession:
        spark.createDataFrame(flights, SCHEMA).createOrReplaceTempView("flights")
        return spark

    return show


def broken_promises(found: Order, published: int) -> list[str]:
    return Report({"q1": 1, "q2": 1}, published, 0, {}, found, Lateness(0, 0, 0, 0)).broken_promises()


def test_messages_and_keys_are_counted_per_queue_and_no_tail_number_is_one_key(table: Table) -> None:
    assert queue_shares(table(GOOD)) == {"q1": QueueShare(4, 2), "q2": QueueShare(2, 1)}


def test_a_table_that_keeps_every_promise(table: Table) -> None:
    found = order(table(GOOD))
    assert found == Order(6, 6, 2, aircraft_in_several_queues=0, flights_out_of_order=0)
    assert broken_promises(found, published=6) == []


def test_an_aircraft_in_two_queues_is_caught(table: Table) -> None:
    found = order(table([*GOOD, Flight("q2", 3, 7, "N1")]))
    assert broken_promises(found, published=7) == ["1 aircraft in several queues"]


def test_two_flights_of_an_aircraft_that_changed_places_are_caught(table: Table) -> None:
    found = order(table([*GOOD, Flight("q2", 3, 9, "N2"), Flight("q2", 4, 8, "N2")]))
    assert broken_promises(found, published=8) == ["1 flights out of order"]


def test_a_lost_flight_is_caught(table: Table) -> None:
    found = order(table(GOOD[:-1]))
    assert broken_promises(found, published=6) == [
        "5 rows came out of 6 published",
        "5 different flights came out of 6 published",
    ]


def test_a_flight_that_came_twice_in_place_of_another_is_caught(table: Table) -> None:
    found = order(table([*GOOD[:-1], Flight("q2", 2, 2, "N2")]))
    assert broken_promises(found, published=6) == [
        "5 different flights came out of 6 published",
        "1 flights out of order",
    ]


def test_lateness_compares_a_departure_with_the_same_aircrafts_arrival_that_day(table: Table) -> None:
    flights = [
        Flight("q1", 1, 1, "N1", arr_delay=15),
        Flight("q1", 2, 2, "N1", dep_delay=40, arr_delay=14),  # late after late
        Flight("q1", 3, 3, "N1", dep_delay=0, arr_delay=90),  # punctual after punctual
        Flight("q1", 4, 4, "N1", day=2, dep_delay=60),  # another day: not counted
        Flight("q2", 1, 5, "N2", arr_delay=16),
        Flight("q2", 2, 6, "N2", dep_delay=None, arr_delay=None),  # cancelled: not counted
        Flight("q2", 3, 7, "N2", dep_delay=20),  # after a cancelled flight: not counted
        Flight("q2", 4, 8, "N3", arr_delay=20),
        Flight("q2", 5, 9, "N3", dep_delay=14, arr_delay=0),  # punctual after late
        Flight("q2", 6, 10, None, arr_delay=99),
        Flight("q2", 7, 11, None, dep_delay=99),  # possibly another aircraft: not counted
    ]
    assert lateness(table(flights)) == Lateness(3, late=1 / 3, late_after_late=1 / 2, late_after_punctual=0.0)


def test_without_a_second_flight_that_day_there_is_no_lateness_to_tell(table: Table) -> None:
    assert lateness(table([Flight("q1", 1, 1, "N1", dep_delay=40)])) == Lateness(0, None, None, None)
