"""What a store holds when it is opened, read without changing it: a file that is refused stays as it was."""

from __future__ import annotations

import json
import sqlite3
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumpmq.store import checksums, schema
from jumpmq.store.errors import StoreError


@dataclass
class Contents:
    """Everything but the messages.

    Attributes:
        definitions: (kind, key, value) in the order of their first insertion.
        summaries: of the batches, as (id, queue_id, first_seq, last_seq, count, bytes), by queue and seq.
        settled: numbers of settled messages by batch id.
        clean: whether the last stop was clean.
    """

    definitions: list[tuple[str, str, Any]]
    summaries: list[tuple[int, int, int, int, int, int]]
    settled: dict[int, array[int]]
    clean: bool


def read(path: Path) -> Contents:
    """Check and read an existing store.

    Definitions and settlements are verified whole, messages when they are read: verifying those here would take as long
    as reading them all.

    Raises:
        StoreError: not a JumpMQ store, one of a newer version, or a damaged one.
    """
    try:
        schema.check_header(path)
        connection = schema.connect_to_judge(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot read {path}: {error}; choose another data directory, or put that right") from error
    try:
        schema.check_tables(connection, path)
        return Contents(
            definitions=_definitions(connection, path),
            summaries=connection.execute(
                "SELECT id, queue_id, first_seq, last_seq, count, bytes FROM batch INDEXED BY batch_summary "
                "ORDER BY queue_id, first_seq"
            ).fetchall(),
            settled=_settled(connection, path),
            clean=_clean(connection, path),
        )
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise schema.damaged(path, str(error)) from error
    finally:
        connection.close()


def _definitions(connection: sqlite3.Connection, path: Path) -> list[tuple[str, str, Any]]:
    definitions = []
    for kind, key, value, crc in connection.execute("SELECT kind, key, value, crc FROM definition ORDER BY id"):
        if checksums.of_definition(kind, key, value) != crc:
            raise schema.damaged(path, f"the definition of {kind} {key!r} fails its checksum")
        definitions.append((kind, key, json.loads(value)))
    return definitions


def _settled(connection: sqlite3.Connection, path: Path) -> dict[int, array[int]]:
    settled = {}
    for batch_id, seqs, crc in connection.execute("SELECT batch_id, seqs, crc FROM settlement"):
        if checksums.of_settlement(batch_id, seqs) != crc:
            raise schema.damaged(path, f"the settlement of batch {batch_id} fails its checksum")
        settled[batch_id] = array("q", seqs)
    return settled


def _clean(connection: sqlite3.Connection, path: Path) -> bool:
    rows = connection.execute("SELECT clean FROM shutdown").fetchall()
    if len(rows) != 1:
        raise schema.damaged(path, "the mark of the last stop is missing")
    return bool(rows[0][0])
