"""SQL queries over the demo's table, the view `flights`."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

#: Minimum delay of a late flight, in minutes: the definition of the US Department of Transportation.
LATE = 15


@dataclass(frozen=True)
class QueueShare:
    """Numbers of a queue's messages and keys in the table; a key is a tail number, or empty."""

    messages: int
    keys: int


@dataclass(frozen=True)
class Order:
    """Checks of the table: counts of rows and flights, and of violations (0 expected)."""

    rows: int
    distinct_flights: int
    aircraft: int
    aircraft_in_several_queues: int
    flights_out_of_order: int


@dataclass(frozen=True)
class Lateness:
    """Shares of late departures, among departures after an earlier arrival of the same aircraft on the same day.

    A share is between 0 and 1, and `None` if there were no such departures.

    Attributes:
        departures: number of departures.
        late: share of late departures.
        late_after_late: share after a late arrival of the aircraft.
        late_after_punctual: share after a punctual arrival of the aircraft.
    """

    departures: int
    late: float | None
    late_after_late: float | None
    late_after_punctual: float | None


def queue_shares(spark: SparkSession) -> dict[str, QueueShare]:
    """Return the messages and keys of all non-empty queues."""
    rows = spark.sql("""
        SELECT queue, count(*) AS messages, count(DISTINCT coalesce(tailnum, '')) AS keys
        FROM flights GROUP BY queue
    """)
    return {row.queue: QueueShare(row.messages, row.keys) for row in rows.collect()}


def order(spark: SparkSession) -> Order:
    """Count violations of "every aircraft in one queue, with its flights in the order of publishing"."""
    rows = spark.sql("""
        WITH followed AS (
            SELECT queue, number, tailnum,
                lag(number) OVER (PARTITION BY queue, coalesce(tailnum, '') ORDER BY seq) AS before
            FROM flights
        ), aircraft AS (
            SELECT tailnum, count(DISTINCT queue) AS queues FROM flights WHERE tailnum IS NOT NULL GROUP BY tailnum
        )
        SELECT
            (SELECT count(*) FROM flights),
            (SELECT count(DISTINCT number) FROM flights),
            (SELECT count(*) FROM aircraft),
            (SELECT count(*) FROM aircraft WHERE queues > 1),
            (SELECT count(*) FROM followed WHERE number <= before)
    """)
    return Order(*rows.collect()[0])


def lateness(spark: SparkSession) -> Lateness:
    """Compute the shares of late departures after late and after punctual arrivals of the same aircraft and day."""
    rows = spark.sql(f"""
        WITH followed AS (
            SELECT dep_delay >= {LATE} AS late,
                lag(arr_delay >= {LATE}) OVER day AS arrived_late,
                dep_delay IS NOT NULL AS departed
            FROM flights WHERE tailnum IS NOT NULL
            WINDOW day AS (PARTITION BY queue, tailnum, year, month, day ORDER BY seq)
        )
        SELECT count(*), avg(int(late)), avg(int(late)) FILTER (WHERE arrived_late),
            avg(int(late)) FILTER (WHERE NOT arrived_late)
        FROM followed WHERE departed AND arrived_late IS NOT NULL
    """)
    return Lateness(*rows.collect()[0])
