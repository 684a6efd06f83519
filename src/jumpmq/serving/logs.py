"""A broker's log on stderr: a line of text or a JSON object per record.

A record is always one line, even if a client's name contains control characters: characters that control a terminal or
end a line are escaped.
"""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from typing import Any

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SECOND = "%Y-%m-%d %H:%M:%S"


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text; a traceback adds further lines."""

    def __init__(self, process: tuple[str, int] | None = None) -> None:
        super().__init__(TEXT if process is None else TEXT.replace(": ", ": {} {}: ".format(*process), 1))
        self._second, self._shown_second = 0, ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        second = int(record.created)
        if second != self._second:  # cached, because thousands of records may have the same second
            self._second, self._shown_second = second, time.strftime(SECOND, time.localtime(second))
        return f"{self._shown_second},{record.msecs:03.0f}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = escaped(record.message)
        return super().formatMessage(record)


class JSONFormatter(logging.Formatter):
    """Formats a record as one JSON object: `time`, `level`, `logger`, `message`, and the facts of an audit record."""

    def __init__(self, process: tuple[str, int] | None = None) -> None:
        super().__init__()
        self._process = dict([] if process is None else [process])

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
        }
        shown |= getattr(record, "facts", {})
        if record.exc_info:
            shown["traceback"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


def escaped(text: str, kept: str = "") -> str:
    """Return the text with control characters escaped as in Python: a newline as `\n`.

    Args:
        kept: characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else repr(one)[1:-1] for one in text)


def configure(level: str, form: str, process: tuple[str, int] | None = None) -> None:
    """Begin to log.

    Args:
        level: minimum level, a name as in `logging`.
        form: `text` or `json`.
        process: kind (``home`` or ``worker``) and number of this process, added to each record; None for a single
            process.
    """
    stderr = logging.StreamHandler()
    stderr.setFormatter(JSONFormatter(process) if form == "json" else TextFormatter(process))
    # The formats do not show these fields; records without them take half the time (logging how-to, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=level.upper(), handlers=[stderr])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # without uvicorn's own start and stop
