"""The file ``jumpmq.db``: tables, creation, and opening.

A SQLite database in WAL mode: the content of the log up to a segment, so that a start reads only the rest of the log.
``application_id`` is the format and ``user_version`` the format's version. Both are in the file's first 100 octets, and
can be read without SQLite.

- ``definition``: definitions, a JSON value per (kind, key). Row ids increase in the order of insertion.
- ``batch``: neighbouring messages of a queue, with the positions of their blocks (see :mod:`jumpmq.store.index`).
- ``settlement``: settled messages of batches that have unsettled messages, too. A separate table, because a change of
  a batch's row would write the positions again.
- ``replay``: first segment of the log that the index does not cover; after a clean stop, the number of the last commit.

Every ``crc`` is a CRC-32: SQLite detects broken pages, but not a changed octet within one.
"""

import os
import sqlite3
from pathlib import Path

from jumpmq.store.errors import Damaged, StoreError

FILE_NAME = "jumpmq.db"
APPLICATION_ID = 0x4A4D5051  # "JMPQ"
VERSION = 3

LOG_BYTES = 4 << 20
"""Size limit of SQLite's own write-ahead log, in octets."""

TABLES = (
    """CREATE TABLE definition (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL,
    UNIQUE (kind, key)) STRICT""",
    """CREATE TABLE batch (
    id INTEGER PRIMARY KEY, queue_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    count INTEGER NOT NULL, bytes INTEGER NOT NULL, blocks BLOB NOT NULL, crc INTEGER NOT NULL) STRICT""",
    """CREATE TABLE settlement (batch_id INTEGER PRIMARY KEY, ranges BLOB NOT NULL, crc INTEGER NOT NULL) STRICT""",
    """CREATE TABLE replay (segment INTEGER NOT NULL, clean_commit INTEGER NOT NULL) STRICT""",
)

_NOT_OURS = "is not a JumpMQ store; move it away, or choose another data directory"
_DAMAGED = "the log is used instead"


def raise_version(connection: sqlite3.Connection) -> None:
    """Make an older version refuse the file from now on: the log continues with content unknown to the
    older version.
    """
    if connection.execute("PRAGMA user_version").fetchone()[0] < VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # check_header reads the file without the WAL


def create(path: Path) -> None:
    """Create an empty index. The file appears under the final name only when whole, so a crash leaves no index or a
    good index.
    """
    unfinished = path.with_name(path.name + ".new")
    create_as(unfinished)
    unfinished.replace(path)
    sync_directory(path.parent)


def create_as(path: Path) -> None:
    """Create an empty index under the given name, readable only by the current user."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("BEGIN")
        for statement in TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO replay VALUES (0, 0)")
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def sync_directory(path: Path) -> None:
    """Sync the names in a directory to disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def check_header(path: Path) -> int:
    """Validate an index by the file's first 100 octets. SQLite is not used, because SQLite would create files beside an
    opened database.

    Returns:
        The version of the format.

    Raises:
        StoreError: the file is no SQLite database, is no index of JumpMQ, or has a newer version.
    """
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise damaged(path, "the header is not that of a SQLite database")
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise StoreError(f"{path} {_NOT_OURS}")
    version = int.from_bytes(header[60:64])
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer version of JumpMQ (its format is {version}, this version reads {VERSION}); "
            "install the newer version, or choose another data directory"
        )
    return version


def check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Compare the tables of an opened file with :data:`TABLES`, and check the integrity of the pages.

    Raises:
        Damaged: the tables differ, or a page is damaged.
    """
    found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    if found != set(TABLES):
        raise damaged(path, "the tables are not those of a JumpMQ store")
    (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise damaged(path, said.replace("\n", " "))


def connect_to_check(path: Path) -> sqlite3.Connection:
    """Return a read-only connection to a file without concurrent writers. Unless SQLite's log has content, SQLite
    creates no files beside the database.
    """
    log = path.with_name(path.name + "-wal")
    logged = log.exists() and log.stat().st_size > 0
    location = f"{path.absolute().as_uri()}?{'mode=ro' if logged else 'immutable=1'}"
    return sqlite3.connect(location, uri=True, isolation_level=None, check_same_thread=False)


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection for writing: every commit is on disk on return."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
    # With a write-ahead log, only FULL syncs each commit.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    # By default, Debian's SQLite overwrites deleted content, which costs writes.
    connection.execute("PRAGMA secure_delete = OFF")
    return connection


def set_aside(path: Path) -> Path:
    """Rename a damaged index, with SQLite's log; return the new name."""
    aside = path.with_name(path.name + ".damaged")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    # The database last: otherwise a crash in between would leave SQLite's log beside a new, empty index.
    for suffix in ("-shm", "-wal", ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    sync_directory(path.parent)
    return aside


def damaged(path: Path, detail: str) -> Damaged:
    """Return the error for a damaged index."""
    return Damaged(f"{path} is damaged ({detail}); {_DAMAGED}")
