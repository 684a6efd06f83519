"""Files received from a leader, in a directory below the copy; a complete set replaces the copy (I13).

The directory ``coming`` is complete once it contains the file ``replica``, which is written last. Then the old log,
streams and index are renamed into ``old``, and the new ones take their place, ``replica`` last. Then ``old`` is
deleted. After a crash at any point, :func:`settle` continues. Other contents of the copy's directory stay, such as
copies of other nodes' homes.
"""

import os
import re
import secrets
import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath

from jumpmq.nodes.replicas.copy_directory import NOTE, Noted
from jumpmq.replication.joining import Clear, Install, Put
from jumpmq.replication.lineage import end_of
from jumpmq.store import checked_file, definitions, losses, schema, stream_files, stream_segment
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.lock import DirectoryLock
from jumpmq.store.log import DIRECTORY

COMING, OLD, DAMAGED = "coming", "old", "damaged"
"""Subdirectories of a copy's directory."""

SYNCED = 8 << 20
"""Number of octets of a received file after which the file is synced."""

NAME = re.compile(
    rf"{re.escape(schema.FILE_NAME)}|{DIRECTORY}/[0-9]{{10}}\.log"
    rf"|{stream_files.DIRECTORY}/[0-9]+/[0-9]+{re.escape(stream_segment.SUFFIX)}"
)
"""Valid names of a copy's files, so that a leader cannot write anywhere else."""


class ComingFiles:
    """Writes received files of a copy. Methods block for the disk.

    Args:
        directory: directory of the old copy.
        files: the file calls to use.
    """

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._coming = _coming(directory)
        self._directory = directory
        self._files = files or Files()
        self._begun = False  # True once the remains of an earlier process are removed

    def put(self, put: Put) -> None:
        """Write octets of a file.

        Raises:
            OSError: the write fails.
            StoreError: a copy cannot have a file of this name.
        """
        self._begin()
        path = self._path(put.name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._files.open(path) if put.offset else self._files.create(path)
        try:
            self._files.write(file, put.offset, [put.octets])
            if put.offset // SYNCED != (put.offset + len(put.octets)) // SYNCED:
                self._files.sync(file)  # one sync of the whole file would delay commits
        finally:
            self._files.close(file)

    def clear(self, clear: Clear) -> None:
        """Remove files."""
        for name in clear.names:
            self._files.remove(self._path(name))

    def install(self, install: Install, noted: Noted) -> None:
        """Sync all files, and mark the set as complete for :func:`settle`.

        Args:
            noted: note of the old copy; the new copy keeps its identity and promise.
        """
        self._begin()
        for name in (DIRECTORY, stream_files.DIRECTORY):
            (self._coming / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder, _, names in os.walk(self._coming):
            for name in names:
                file = self._files.open(Path(folder) / name)
                try:
                    self._files.sync(file)
                finally:
                    self._files.close(file)
            self._files.sync_directory(Path(folder))
        mark = max(end_of(install.lineage), install.kept)
        noted = replace(noted, mark=mark, kept=install.kept)
        checked_file.replace(self._coming / NOTE, noted.encode(), self._files)

    def _begin(self) -> None:
        if not self._begun:
            shutil.rmtree(self._coming, ignore_errors=True)
            self._coming.mkdir(mode=0o700, parents=True)
            self._begun = True

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise StoreError(f"a copy cannot have a file {name!r:.200}; the leader is not to be trusted")
        return self._coming / PurePosixPath(name)


def settle(directory: Path, files: Files | None = None) -> bool:
    """Move completely received files into the place of the copy, and remove incomplete ones. To be called before the
    copy is opened.

    Returns:
        True if the copy was replaced.

    Raises:
        OSError: a file cannot be moved.
        StoreError: the directory is in use.
    """
    files = files or Files()
    coming, old = _coming(directory), directory / OLD
    if not coming.exists() and not old.exists():
        return False
    lock = DirectoryLock(directory)
    try:
        if is_whole := (coming / NOTE).exists():
            _keep_promise(directory / NOTE, coming / NOTE, files)
            _swap(directory, coming, old, files)
        shutil.rmtree(coming, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        return is_whole
    finally:
        lock.release()


def set_aside(directory: Path, files: Files | None = None) -> None:
    """Turn a damaged copy into an empty copy with a new identity. The new identity is in no set, and the leader fills
    the copy.

    The former contents move into ``damaged``. The copy must not be open.

    Raises:
        OSError: a file cannot be moved.
        StoreError: the directory is in use.
    """
    files, aside = files or Files(), directory / DAMAGED
    lock = DirectoryLock(directory)
    try:
        if not any((directory / DIRECTORY).glob("*.log")):
            return  # set aside before, and not filled yet
        # The identity changes first: after a crash, the copy counts for nothing.
        noted = Noted.decode((directory / NOTE).read_bytes())
        noted = replace(noted, disk=secrets.token_hex(8), mark=0, kept=0)
        checked_file.replace(directory / NOTE, noted.encode(), files)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        indexes = [path.name for path in directory.glob(f"{schema.FILE_NAME}*")]
        for name in (DIRECTORY, stream_files.DIRECTORY, losses.FILE_NAME, definitions.FILE_NAME, *indexes):
            if (directory / name).exists():
                (directory / name).rename(aside / name)
        files.sync_directory(directory)
    finally:
        lock.release()


def known_losses(directory: Path) -> set[str]:
    """Return the losses recorded by a copy, and those recorded by the copy that was set aside before. A loss in both
    records is in the copies of other nodes, too.

    Raises:
        OSError: the records cannot be read.
    """
    return {loss for folder in (directory, directory / DAMAGED) for loss, _ in losses.read(folder)}


def _keep_promise(before: Path, coming: Path, files: Files) -> None:
    """Raise the promise in the new copy's note to the old copy's promise, which may be higher (R6)."""
    try:
        promised = Noted.decode(before.read_bytes()).epoch
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    noted = Noted.decode(coming.read_bytes())
    if promised > noted.epoch:
        checked_file.replace(coming, replace(noted, epoch=promised).encode(), files)


def _swap(directory: Path, coming: Path, old: Path, files: Files) -> None:
    shutil.rmtree(old, ignore_errors=True)
    old.mkdir(mode=0o700)
    for name in (DIRECTORY, stream_files.DIRECTORY, schema.FILE_NAME):
        if not (coming / name).exists():  # moved before a crash
            continue
        for path in directory.glob(f"{schema.FILE_NAME}-*"):  # SQLite's files of the old index
            path.unlink()
        if (directory / name).exists():
            (directory / name).rename(old / name)
        (coming / name).rename(directory / name)
    # The note moves last: while it is in ``coming``, the next start moves the other files.
    files.sync_directory(directory)
    (coming / NOTE).replace(directory / NOTE)
    files.sync_directory(directory)


def _coming(directory: Path) -> Path:
    return directory / COMING
