"""Checkpoints of a Spark session's queries, from the driver to the processes that plan: files in the temporary folder.

A planning process is a child of the driver's JVM, and is told nothing of the query but its options. It looks among the
checkpoints of all queries of its JVM for the one whose offsets have its own names, so that a file of another query, or
of a JVM that had the same number, means nothing to it.
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
"""Prefixes of checkpoints that are polled twice a second: on further file systems polling has a price."""


def tell_checkpoint(jvm: int, checkpoint: str) -> None:
    """Note the checkpoint of a query for the planning processes of a JVM, if local.

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


class ToldCheckpoints:
    """The commit logs of all checkpoints noted by this process's JVM; used as a :class:`CommitLog`.

    Args:
        given: the one that the user's option names; None where there is none.

    Raises:
        JumpMQError: Arrow does not know the file system of the one that was given.
    """

    def __init__(self, given: str | None = None) -> None:
        self._given = None if given is None else _log(given)
        self._logs: dict[str, CommitLog] = {}  # reported logs, by location
        self._own: CommitLog | None = self._given  # the query's, once it is known

    def completed(self, group: str, query: str) -> dict[str, int] | None:
        """As :meth:`CommitLog.completed`."""
        if self._own is not None:
            return self._own.completed(group, query)
        for location in _told(os.getppid()) - self._logs.keys():
            self._logs[location] = _log(location)
        for log in self._logs.values():
            if (found := log.completed(group, query)) is not None:
                self._own = log
                return found
        return None


def _log(location: str) -> CommitLog:
    from jumpmq.spark.commit_log import CommitLog  # here, as it takes a while to know all of Arrow's file systems

    return CommitLog(location)


def _folder(jvm: int) -> Path:
    return Path(tempfile.gettempdir(), f"jumpmq-{os.getuid()}-{jvm}")


def _told(jvm: int) -> set[str]:
    """Return the checkpoints noted for a JVM by this user."""
    folder = _folder(jvm)
    try:
        if folder.stat().st_uid != os.getuid():
            return set()
        return {file.read_text() for file in folder.iterdir()}
    except OSError:
        return set()
