"""The watchdog of commits: reports that clients wait for a commit that does not complete.

A commit may be slow for a reason: the disk fails and the commit is retried, the disk or copies have not answered yet,
or long work delays the commit. Such a wait is reported, and may last as long as its reason. A wait without a reason is
a defect of the broker. The broker then ends after a limit: a start from the log is tested, and continuing in an unknown
state is not.
"""

import logging
import time
from collections.abc import Callable

from jumpmq.broker.commit.commits import Commits

log = logging.getLogger(__name__)

TOLD_AFTER = 10.0
"""Seconds of waiting for a commit after which the wait is reported."""

ENDED_AFTER = 60.0
"""Seconds of waiting without a reason after which the broker ends."""

HUNG_AFTER = 10.0
"""Seconds without an answer of the disk after which a broker with copies of its home ends, so that a copy can take
over.
"""


class Watchdog:
    """Watches the commits of a broker; :meth:`look` has to be called several times a second.

    Args:
        is_working: returns True while the broker has long work that may delay a commit.

    Attributes:
        complaint: sentence about a commit that is overdue; None without one.
    """

    def __init__(self, commits: Commits, is_working: Callable[[], bool]) -> None:
        self.complaint: str | None = None
        self._commits = commits  # watched commits
        self._is_working = is_working  # True while long work is in progress
        self._completed = -1  # last complete commit at the last check
        self._since = 0.0  # time of the last progress, or of the last check without a waiting client
        self._explained_at = 0.0  # time of the last known reason for a wait

    @property
    def waiting(self) -> float:
        """Seconds for which clients have waited without a completed commit; 0 if no client waits."""
        return time.monotonic() - self._since if self._commits.is_awaited else 0.0

    def look(self) -> None:
        """Check whether commits complete; end the broker if they do not."""
        now, commits = time.monotonic(), self._commits
        if (hung_for := commits.hung_for) >= HUNG_AFTER:
            commits.fail(f"the disk has not answered for {hung_for:.0f} s: the broker ends, for a copy to go on")
            return
        if not commits.is_awaited or commits.completed != self._completed:
            self._completed, self._since, self._explained_at = commits.completed, now, now
            if self.complaint is not None:
                log.warning("commits go on")
                self.complaint = None
            return
        waited = f"for {now - self._since:.0f} s nothing was committed that a client waits for"
        reason = self._reason()
        if reason is not None:
            self._explained_at = now
        elif now - self._explained_at >= ENDED_AFTER:
            commits.fail(f"{waited}, and the disk is not the reason: the broker ends, to start again from its log")
            return
        if now - self._since >= TOLD_AFTER:
            told, self.complaint = self.complaint, f"{waited}: {reason or 'the disk is not the reason'}"
            if told is None:
                log.error("%s", self.complaint)

    def _reason(self) -> str | None:
        """Return a reason for slow commits."""
        commits = self._commits
        if (error := commits.error) is not None:
            return str(error)
        if commits.is_writing:
            return "the disk has not answered yet"
        if commits.is_incomplete:
            return "the copies have not answered yet"
        return "long work goes on" if commits.is_held and self._is_working() else None
