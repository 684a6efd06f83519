"""Losses of a data directory: found at the start or during reads, kept until acknowledged.

Damage affects this disk only: copies of the log on other disks may be undamaged. Losses are therefore kept in a file of
the directory, not in the log. Each line is ``CRC-32 [sentence, time of detection]``, with the time in seconds since the
epoch. Acknowledged losses remain in the file with a negative time, because the same damage may be found again.
"""

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from jumpmq.store import definitions

log = logging.getLogger(__name__)

FILE_NAME = "losses"

REMIND_INTERVAL = 3600.0
"""Seconds between reminders of losses in the log."""

LIMIT = 1000
"""Number of losses listed individually. One entry, :data:`MORE`, stands for all losses beyond the limit."""

MORE = f"more than {LIMIT} losses were found; `jumpmq check` names all, while the broker is stopped"


class Losses:
    """Losses, as sentences with the lost content and the location."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}  # time of detection by sentence, in seconds since the epoch
        self._acknowledged: dict[str, float] = {}  # acknowledged losses, with the same key
        self._is_kept = True  # True if the file has all losses
        self._lock = threading.Lock()
        self._told_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._found)

    def restore(self, recorded: Mapping[str, float]) -> None:
        """Add losses from earlier runs, and report them again."""
        for loss, found_at in recorded.items():
            if found_at < 0:
                self._acknowledged[loss] = -found_at
                continue
            self._found[loss] = found_at
            log.warning("not acknowledged yet: %s", loss)

    def add(self, loss: str) -> None:
        """Add a loss; known losses are not reported again. Callable from any thread."""
        with self._lock:
            if loss in self._found or loss in self._acknowledged:
                return
            if len(self._found) >= LIMIT:
                if MORE in self._found:
                    return
                loss = MORE
            self._found[loss] = time.time()
            self._is_kept = False
        log.error("%s", loss)

    def listed(self) -> list[tuple[str, float]]:
        """Return all unacknowledged losses, with the time of detection, in the order of detection."""
        with self._lock:
            return list(self._found.items())

    def take_unkept(self) -> list[tuple[str, float]] | None:
        """Return the entire content for the file, with the order and signs of the file; None if the file is up to
        date.
        """
        if self._is_kept:
            return None
        with self._lock:
            self._is_kept = True
            return [*((loss, -found_at) for loss, found_at in self._acknowledged.items()), *self._found.items()]

    def keep_again(self) -> None:
        """Note that the file may lack losses: :meth:`take_unkept` returns all losses again."""
        self._is_kept = False

    def remind(self) -> None:
        """Report losses in the log, unless reported recently."""
        if self._found and time.monotonic() - self._told_at >= REMIND_INTERVAL:
            self._told_at = time.monotonic()
            log.warning("%d losses are not acknowledged: `jumpmqctl list_losses` names them", len(self._found))

    def acknowledge(self) -> None:
        """Mark all losses as acknowledged. Beyond :data:`LIMIT` acknowledged losses, the oldest are forgotten."""
        with self._lock:
            found, self._found = self._found, {}
            found.pop(MORE, None)
            self._acknowledged |= found
            for loss in list(self._acknowledged)[:-LIMIT]:
                del self._acknowledged[loss]
            self._is_kept = False


def read(directory: Path) -> list[tuple[str, float]]:
    """Return the losses in the file of a data directory; damaged lines are left out.

    Raises:
        OSError: the file cannot be read.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return []
    found = [json.loads(line) for line in definitions.lines(path) if line is not None]
    return [(loss, found_at) for loss, found_at in found]


def write(directory: Path, losses: Iterable[tuple[str, float]]) -> None:
    """Write the file of a data directory. After a crash the file has either the old or the new content.

    Raises:
        OSError: the file cannot be written.
    """

    def write_to(octets: BinaryIO) -> None:
        for one in losses:
            octets.write(definitions.line(json.dumps(one).encode()))

    definitions.replace(directory / FILE_NAME, write_to)
