"""A limit on failed logins: who fails too often waits, whatever the next password is."""

import time
from collections import OrderedDict, deque

LIMIT = 20
"""Failed logins of one user from one address within the window before further ones are refused unseen."""

WINDOW = 60.0
"""Seconds that a failed login counts."""

REMEMBERED = 10_000
"""Pairs of user and address that are remembered; the oldest are forgotten first."""


class FailedLogins:
    """The failed logins of the last minute, by user and address."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def note(self, user: str, address: str) -> None:
        """A login failed."""
        times = self._failures.setdefault((user, address), deque(maxlen=LIMIT))
        times.append(time.monotonic())
        self._failures.move_to_end((user, address))
        if len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)

    def wait(self, user: str, address: str) -> float:
        """Seconds until the user may try again from this address; 0 is at once."""
        times = self._failures.get((user, address))
        if times is None or len(times) < LIMIT:
            return 0.0
        return max(0.0, times[0] + WINDOW - time.monotonic())
