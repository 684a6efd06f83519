"""The last records of the log, kept for the page and ``GET /api/log``."""

from __future__ import annotations

import json
import logging
from collections import deque
from typing import Any

KEPT = 1000
"""Minimum number of kept records, after as many were logged."""

PACKED = 50
"""Number of records packed into one text. Single records would lie scattered between memory freed later, and keep that
memory from the system (measured: 50 MB after the deletion of a hundred thousand queues).
"""

LONGEST = 1000
"""Maximum length of a kept message, in characters."""

LOGGER = "jumpmq"
"""The logger whose records, including child loggers, are kept."""


class RecentLog(logging.Handler):
    """Keeps records from :meth:`start` to :meth:`stop`; a level set in between is reset."""

    def __init__(self) -> None:
        super().__init__()
        self._packed: deque[str] = deque(maxlen=KEPT // PACKED)  # JSON arrays of records, oldest first
        self._latest: list[dict[str, Any]] = []  # records after the packed ones
        self._level_before = logging.NOTSET

    @property
    def records(self) -> list[dict[str, Any]]:
        """All kept records, oldest first."""
        return [record for text in self._packed for record in json.loads(text)] + self._latest

    def start(self) -> None:
        logger = logging.getLogger(LOGGER)
        self._level_before = logger.level
        logger.addHandler(self)

    def stop(self) -> None:
        logger = logging.getLogger(LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        self._latest.append(
            {
                "time": round(record.created, 3),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage()[:LONGEST],
            }
        )
        if len(self._latest) == PACKED:
            self._packed.append(json.dumps(self._latest))
            self._latest.clear()
