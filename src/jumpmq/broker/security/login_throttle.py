"""Slows down the guessing of passwords, only for the guessed user from the guessing address.

After some failures, login attempts of the user from the address are verified one by one, at a limited rate, the latest
first. So a correct password waits only a moment behind a client with an outdated password, and most guesses of a flood
are refused without a verification.
"""

import asyncio
import time
from collections import OrderedDict, deque

LIMIT = 20
"""Failures per user and address within the window before further attempts are paced."""

WINDOW = 60.0
"""Lifetime of a failure in the count, in seconds."""

PACE = 0.2
"""Seconds between paced attempts."""

WAITING = 40
"""Maximum number of paced attempts waiting per user and address; the oldest are then refused without verification."""

REMEMBERED = 10_000
"""Maximum number of recorded pairs of user and address; the oldest are dropped first."""

Pair = tuple[str, str]


class LoginThrottle:
    """The failures of the last minute, and the paced attempts."""

    def __init__(self) -> None:
        self._failures: OrderedDict[Pair, deque[float]] = OrderedDict()
        self._waiting: dict[Pair, deque[asyncio.Future[bool]]] = {}

    def failed(self, user: str, address: str) -> None:
        """Record a failed login."""
        pair = user, address
        self._failures.setdefault(pair, deque(maxlen=LIMIT)).append(time.monotonic())
        self._failures.move_to_end(pair)
        if len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)

    async def admit(self, user: str, address: str) -> bool:
        """Wait until an attempt may be verified; return False if the attempt is refused without verification."""
        pair = user, address
        times = self._failures.get(pair)
        if times is None or len(times) < LIMIT or times[0] + WINDOW < time.monotonic():
            return True
        loop = asyncio.get_running_loop()
        if pair not in self._waiting:
            self._waiting[pair] = deque()
            loop.call_later(PACE, self._admit_latest, pair)
        waiting = self._waiting[pair]
        attempt: asyncio.Future[bool] = loop.create_future()
        waiting.append(attempt)
        if len(waiting) > WAITING:
            _answer(waiting.popleft(), False)
        return await attempt

    def _admit_latest(self, pair: Pair) -> None:
        waiting = self._waiting[pair]
        while waiting and not _answer(waiting.pop(), True):
            pass
        if waiting:
            asyncio.get_running_loop().call_later(PACE, self._admit_latest, pair)
        else:
            del self._waiting[pair]


def _answer(attempt: asyncio.Future[bool], admitted: bool) -> bool:
    """Answer an attempt, unless the client is gone; return True if answered."""
    if attempt.done():
        return False
    attempt.set_result(admitted)
    return True
