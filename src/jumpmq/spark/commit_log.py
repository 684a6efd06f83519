"""Completed micro-batches in the checkpoint of a streaming query."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from pyarrow import fs

from jumpmq.spark.errors import JumpMQError


class CommitLog:
    """The logs ``offsets`` and ``commits`` of a checkpoint as Spark writes them: a file per micro-batch.

    Args:
        location: the checkpoint's directory, as a path or a URI of a file system that Arrow knows.

    Raises:
        JumpMQError: Arrow does not know the file system.
    """

    def __init__(self, location: str) -> None:
        self._path: str
        try:
            self._files, self._path = fs.FileSystem.from_uri(location) if "://" in location else _local(location)
        except (ValueError, OSError) as error:
            raise JumpMQError(f"option 'checkpointLocation': {error}") from None
        self._seen = -1

    def completed(self, group: str, query: str) -> dict[str, int] | None:
        """Return the end of the last complete micro-batch, by queue; None if no micro-batch completed since the last
        call.

        Args:
            group, query: names in the source's offsets. Both are needed: two sources of a query, for example in two
                virtual hosts, may have groups with the same name.
        """
        selector = fs.FileSelector(f"{self._path}/commits", allow_not_found=True)
        names = [PurePosixPath(found.path).name for found in self._files.get_file_info(selector)]
        last = max((int(name) for name in names if name.isdigit()), default=-1)
        if last <= self._seen:
            return None
        # Spark writes `offsets/N` before a micro-batch and `commits/N` after it: only with both is the batch complete.
        with self._files.open_input_stream(f"{self._path}/offsets/{last}") as file:
            lines = file.read().decode().splitlines()
        # After the read: a failed read is repeated at the next call.
        self._seen = last
        for line in lines:
            offset = _json(line)
            if not isinstance(offset, dict) or offset.get("group") != group or "queues" not in offset:
                continue
            if str(offset.get("query", group)) == query:
                queues: dict[str, int] = offset["queues"]
                return queues
        return None


def _local(location: str) -> tuple[fs.FileSystem, str]:
    return fs.LocalFileSystem(), location.removeprefix("file:")


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
