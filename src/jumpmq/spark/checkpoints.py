"""Locations of checkpoints, passed from the driver to the processes that plan queries in files of the temporary folder.

Spark starts a planning process as a child of the driver's JVM, and gives it only the query's options. The process
searches the checkpoints of all queries of its JVM for offsets with the query's own group and id. So files of other
queries, or of an earlier JVM with the same process id, have no effect.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jumpmq.spark.commit_log import CommitLog

LOCAL = ("file:", "/")
"""Prefixes of local checkpoints, which are polled twice a second; on other file systems, polling may cost money."""


def announce_checkpoint(jvm: int, checkpoint: str) -> None:
    """Write the location of a query's checkpoint for the planning processes of a JVM; only of a local checkpoint.

    Args:
        jvm: the JVM's process id.
    """
    if not checkpoint.startswith(LOCAL):
        return
    folder = _folder(jvm)
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.joinpath(hashlib.sha256(checkpoint.encode()).hexdigest()[:32]).write_text(checkpoint)


class JVMCheckpoints:
    """The commit logs of all checkpoints of the parent JVM; has the interface of a :class:`CommitLog`.

    Args:
        given: the checkpoint in the option ``checkpointLocation``; None without the option.

    Raises:
        JumpMQError: Arrow does not know the file system of ``given``.
    """

    def __init__(self, given: str | None = None) -> None:
        self._given = None if given is None else _log(given)
        self._logs: dict[str, CommitLog] = {}  # logs of the JVM's checkpoints, by location
        self._own: CommitLog | None = self._given  # the query's own log, once known

    def completed(self, group: str, query: str) -> dict[str, int] | None:
        """Return the end of the last complete micro-batch, as :meth:`CommitLog.completed`."""
        if self._own is not None:
            return self._own.completed(group, query)
        for location in _announced(os.getppid()) - self._logs.keys():
            self._logs[location] = _log(location)
        for log in self._logs.values():
            if (found := log.completed(group, query)) is not None:
                self._own = log
                return found
        return None


def _log(location: str) -> CommitLog:
    from jumpmq.spark.commit_log import CommitLog  # on use: the import of Arrow's file systems takes long

    return CommitLog(location)


def _folder(jvm: int) -> Path:
    return Path(tempfile.gettempdir(), f"jumpmq-{os.getuid()}-{jvm}")


def _announced(jvm: int) -> set[str]:
    """Return the locations of checkpoints written for a JVM by this user."""
    folder = _folder(jvm)
    try:
        if folder.stat().st_uid != os.getuid():
            return set()
        return {file.read_text() for file in folder.iterdir()}
    except OSError:
        return set()
