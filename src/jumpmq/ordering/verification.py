"""Proof of order: records written by consumers, checked against the guarantees for each key.

A row (:meth:`jumpmq.ordering.Delivery.record`) stands for a *handled* message. Rows are in the order of their appends
to a file, or of their commits to a table. The checks find three kinds of fault, for each key:

==========  ===========================================================================================
``order``   a message is handled for the first time after a message with a higher ``number``
``once``    a message is handled again (by its ``number``, or without a number by its ``message``)
``owner``   a row's ``epoch`` is lower than the epoch of an earlier row: a former owner has written late.
            Or two rows of one epoch name different ``consumer`` s
==========  ===========================================================================================

Columns: ``key`` and ``epoch``; ``number`` (the message's number in its key, counted by the publisher) or ``message``
(the message id); other columns are passed through. An empty value counts as absent.
"""

import csv
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ORDER, ONCE, OWNER = "order", "once", "owner"
KINDS = (ORDER, ONCE, OWNER)

SQLITE = b"SQLite format 3\0"


class UnreadableRecords(Exception):
    """Unreadable records, with the reason."""


class Fault(NamedTuple):
    """A violation of a guarantee.

    Attributes:
        kind: ``order``, ``once`` or ``owner``.
        key: the key.
        row: the violating row, with its number from 1.
        before: the earlier row that ``row`` contradicts.
    """

    kind: str
    key: str
    row: Mapping[str, Any]
    before: Mapping[str, Any]

    def __str__(self) -> str:
        row, before = self.row, self.before
        then = f"row {before['row']} ({_named(before)}, epoch {before['epoch']})"
        if self.kind == ORDER:
            return f"key {self.key!r}: {_named(row)} was handled in row {row['row']}, after {then}"
        if self.kind == ONCE:
            return f"key {self.key!r}: {_named(row)} was handled again in row {row['row']}, after row {before['row']}"
        who = f" by {row['consumer']!r}, not {before['consumer']!r}" if row["epoch"] == before["epoch"] else ""
        return f"key {self.key!r}: row {row['row']} was written under epoch {row['epoch']}{who}, after {then}"


@dataclass(slots=True)
class _KeyState:
    """State of a key: the rows with the highest number and epoch, and the row in which each message was handled."""

    highest: Mapping[str, Any] | None = None
    latest: Mapping[str, Any] | None = None
    rows: dict[Any, int] = field(default_factory=dict)


@dataclass
class Verification:
    """Verifies rows, given in order. A row takes some 200 octets of memory: for more rows than memory holds, use
    :func:`jumpmq.spark.verify`.

    Attributes:
        rows: number of rows.
        faults: number of faults, by kind.
        missing: number of missing numbers between the first and the last number of each key.
    """

    rows: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    _keys: dict[str, _KeyState] = field(default_factory=dict)

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self._keys)

    @property
    def missing(self) -> int:
        numbered = ([one for one in key.rows if isinstance(one, int)] for key in self._keys.values())
        return sum(max(numbers) - min(numbers) + 1 - len(numbers) for numbers in numbered if numbers)

    def add(self, row: Mapping[str, Any]) -> list[Fault]:
        """Process the next row, and return the violations.

        Raises:
            UnreadableRecords: the row lacks a column, or a number is not an integer.
        """
        self.rows += 1
        given = _checked(row, self.rows)
        key = self._keys.setdefault(given["key"], _KeyState())
        found = list(self._faults(key, given))
        for fault in found:
            self.faults[fault.kind] += 1
        return found

    def _faults(self, key: _KeyState, row: dict[str, Any]) -> Iterator[Fault]:
        name, number = row["key"], row["number"]
        latest, highest = key.latest, key.highest
        if latest is not None and (
            row["epoch"] < latest["epoch"]
            or (row["epoch"] == latest["epoch"] and row["consumer"] != latest["consumer"])
        ):
            yield Fault(OWNER, name, row, latest)
        else:
            key.latest = row
        message = row["message"] if number is None else number
        if message is not None and message in key.rows:
            yield Fault(ONCE, name, row, {**row, "row": key.rows[message]})
            return
        if message is not None:
            key.rows[message] = row["row"]
        if number is None:
            return
        if highest is not None and number < highest["number"]:
            yield Fault(ORDER, name, row, highest)
        else:
            key.highest = row


def verify(rows: Iterable[Mapping[str, Any]]) -> Iterator[Fault]:
    """Yield violations by the rows, in order.

    Raises:
        UnreadableRecords: a row lacks a column, or a number is not an integer.
    """
    verification = Verification()
    for row in rows:
        yield from verification.add(row)


def read(path: Path, table: str = "deliveries") -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file: JSON, an object a line; CSV with a header; or a table of a SQLite database, by
    ``rowid``.

    Raises:
        UnreadableRecords: the file has another format, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
        if head.startswith(SQLITE):
            yield from _of_sqlite(path, table)
        elif head.lstrip()[:1] in (b"{", b""):
            yield from _of_json(path)
        else:
            with path.open(newline="", encoding="utf-8") as lines:
                yield from csv.DictReader(lines, strict=True)
    except (OSError, UnicodeDecodeError, csv.Error, sqlite3.Error) as error:
        raise UnreadableRecords(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _of_json(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise UnreadableRecords(f"{path}, line {number}: not JSON") from None
            if not isinstance(row, dict):
                raise UnreadableRecords(f"{path}, line {number}: not a JSON object")
            yield row


def _of_sqlite(path: Path, table: str) -> Iterator[Mapping[str, Any]]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        quoted = table.replace('"', '""')
        for row in database.execute(f'SELECT * FROM "{quoted}" ORDER BY rowid'):
            yield dict(row)


def _checked(row: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return a row's checked columns, and the row's position."""
    given: dict[str, Any] = {name: row.get(name) for name in ("key", "message", "number", "epoch", "consumer")}
    given = {name: None if value == "" and name != "key" else value for name, value in given.items()}
    if not isinstance(given["key"], str):
        raise UnreadableRecords(f"row {place} has no column 'key' with text")
    for name in ("epoch", "number"):
        value = given[name]
        try:
            if isinstance(value, float | bool):
                raise ValueError
            given[name] = None if value is None else int(value)
        except (TypeError, ValueError):
            raise UnreadableRecords(f"row {place} has no integer in column '{name}', but {value!r}") from None
    if given["epoch"] is None:
        raise UnreadableRecords(f"row {place} has no column 'epoch' with an integer")
    if given["message"] is not None and not isinstance(given["message"], str | int):
        raise UnreadableRecords(f"row {place} has no text in column 'message', but {given['message']!r}")
    if given["number"] is None and isinstance(given["message"], int):
        given["message"] = str(given["message"])
    return {"row": place, **given}


def _named(row: Mapping[str, Any]) -> str:
    return f"message {row['message'] if row['number'] is None else row['number']}"
