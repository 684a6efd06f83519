"""The last records of the log, kept to be looked at."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

KEPT = 1000
LONGEST = 1000
"""Characters of a message that are kept."""

LOGGER = "jumpmq"
"""The logger whose records, and those below it, are kept."""


class RecentLog(logging.Handler):
    """Keeps records from :meth:`start` to :meth:`stop`; a level that was set between them goes with it.

    Attributes:
        records: the oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._level_before = logging.NOTSET

    def start(self) -> None:
        logger = logging.getLogger(LOGGER)
        self._level_before = logger.level
        logger.addHandler(self)

    def stop(self) -> None:
        logger = logging.getLogger(LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(
            {
                "time": round(record.created, 3),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage()[:LONGEST],
            }
        )
