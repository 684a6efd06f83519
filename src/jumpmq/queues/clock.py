"""The clock that messages and queues expire by: it tells the time of day, but never jumps.

It is set once, when the process starts, and goes on by the monotonic clock. So a wall clock that is put back or forth
by an hour neither expires nor keeps anything; what is on disk is compared with the wall clock of the next start.
"""

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch."""
    return time.monotonic() + _OFFSET
