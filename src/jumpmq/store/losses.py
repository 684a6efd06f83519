"""Losses of a data directory: found at the start or during reads, kept until acknowledged."""

import logging
import threading
import time
from collections.abc import Iterable

log = logging.getLogger(__name__)

KIND = "loss"
"""Kind of loss records: the key is the sentence, the value the time of detection, in seconds since the epoch. Negative
once the loss is acknowledged: the same damage may be found again."""

REMIND_INTERVAL = 3600.0
"""Seconds between reminders of losses in the log."""

LIMIT = 1000
"""Number of losses listed individually; beyond the limit, only the existence of more losses is reported."""

MORE = f"more than {LIMIT} losses were found; `jumpmq check` names all, while the broker is stopped"


class Losses:
    """Losses, as sentences with the lost content and the location."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}  # when each was found, in seconds since the epoch
        self._acknowledged: dict[str, float] = {}  # the same of those that are not told of any more
        self._unkept: list[str] = []  # those that are not recorded yet
        self._lock = threading.Lock()
        self._told_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._found)

    def restore(self, recorded: Iterable[tuple[str, float]]) -> None:
        """Take over losses from earlier runs, and report them once more."""
        for loss, found_at in recorded:
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
            self._unkept.append(loss)
        log.error("%s", loss)

    def listed(self) -> list[tuple[str, float]]:
        """Return all unacknowledged losses, with the time of detection, in the order of detection."""
        with self._lock:
            return list(self._found.items())

    def take_unkept(self) -> list[tuple[str, float]]:
        """Return the losses still to be recorded."""
        if not self._unkept:
            return []
        with self._lock:
            taken, self._unkept = self._unkept, []
            return [(loss, self._found[loss]) for loss in taken if loss in self._found]

    def remind(self) -> None:
        """Report losses in the log, unless reported recently."""
        if self._found and time.monotonic() - self._told_at >= REMIND_INTERVAL:
            self._told_at = time.monotonic()
            log.warning("%d losses are not acknowledged: `jumpmqctl list_losses` names them", len(self._found))

    def acknowledge(self) -> tuple[dict[str, float], list[str]]:
        """Tell of none any more.

        Returns:
            those that were acknowledged now, with when each was found, and the oldest ones that are forgotten for that.
        """
        with self._lock:
            found, self._found = self._found, {}
            found.pop(MORE, None)
            self._unkept.clear()
            self._acknowledged |= found
            forgotten = list(self._acknowledged)[:-LIMIT]
            for loss in forgotten:
                del self._acknowledged[loss]
        return found, [*forgotten, MORE]
