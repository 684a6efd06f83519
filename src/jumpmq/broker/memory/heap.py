"""What Python and the C library do with memory that was freed; without glibc there is nothing to do for the latter."""

import ctypes
import gc
import os
import sys
import time
from pathlib import Path

from jumpmq.queues.memory import MemoryAccount

M_ARENA_MAX, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -8, -1, -2, -3
"""Parameters of the C library (``malloc.h``)."""

LEAST_SHARE, LEAST_KEPT = 32, 256 << 20
"""What part of the memory limit the C library may always keep of freed memory at the end of its heap, and how many
octets at most."""

MOST_SHARE, MOST_KEPT = 8, 1 << 30
"""The same while as much was held for messages not long ago."""

FORGOTTEN = 1 << 20
"""Octets by which in a second what was held once counts for less."""

GIVEN_BACK = 16 << 20
"""Octets that are given back at once: that takes two milliseconds."""

TRIMMED = 128 << 10
"""Octets that are freed for the C library to look at the end of its heap: it does not for less than half."""

MAPPED_FROM = 19 << 20
"""Octets of a body that has pages of its own, which are given back with it; and those that hashing a password takes."""

SLACK = 32 << 20
"""Octets that may have been freed since they were last given back to the system: that takes some five milliseconds."""

REST_SLACK = 8 << 20
"""The same where next to nothing was held lately."""

RETRIED = 30.0
"""Seconds after which it is tried again to give back what has been resident since the least that was: connections that
were open at the last attempt, each with a buffer of 256 KB for TLS, may be closed."""

FEWER = 500_000
"""Objects by which there are fewer than there were, where next to nothing was held: queues were deleted, say."""

STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIBRARY = ctypes.CDLL(None)  # each makes classes, and garbage of them


def keep_few_arenas() -> None:
    """Have the threads of this process share two heaps.

    Of eight a processor, which it would else have, each keeps what it freed (measured: 20 MB less while bodies are
    paged). To be called before there are threads.
    """
    _set(M_ARENA_MAX, 2)


class KeptMemory:
    """Has the C library keep what was freed for those who want as much again, instead of asking the system for pages.

    Memory that is new to the process costs more than anything else that is done with a large body (measured: 500 us a
    megabyte, and 100 to give it back, where the broker takes 500 for all else). So as much is kept as was held for
    messages not long ago; what was not used again goes back a little at a time.

    Args:
        account: what is held.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._wanted = 0.0
        self._kept = 0
        self._looked_at = time.monotonic()
        _set(M_MMAP_THRESHOLD, MAPPED_FROM)
        self.look()

    def look(self) -> None:
        """Set how much is kept; to be called several times a second."""
        before, self._looked_at = self._looked_at, time.monotonic()
        limit = self._account.limit
        least, most = min(limit // LEAST_SHARE, LEAST_KEPT), min(limit // MOST_SHARE, MOST_KEPT)
        forgotten = FORGOTTEN * (self._looked_at - before)
        self._wanted = max(least, min(max(self._account.total, self._wanted - forgotten), most))
        kept = int(self._wanted)
        if kept > self._kept or kept <= self._kept - GIVEN_BACK:
            self._keep(kept)

    def _keep(self, octets: int) -> None:
        less = octets < self._kept
        self._kept = octets
        _set(M_TRIM_THRESHOLD, octets)
        _set(M_TOP_PAD, max(octets - GIVEN_BACK, octets // 2))  # what stays when the end of the heap is given back
        if less:
            bytes(TRIMMED)


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(_LIBRARY, "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)


def empty_free_lists() -> None:
    """Have Python let go of the dead tuples and tables of dictionaries that it keeps for the next ones.

    They lie anywhere, and each keeps a megabyte from the system (measured: 80 MB after a million messages). Only a full
    collection frees them, so it is given nothing to look through. What a start froze is not frozen any more.
    """
    gc.freeze()
    gc.collect()
    gc.unfreeze()


class FreedMemory:
    """Gives the system back what was freed between bodies that are still held, while more and more of that is resident.

    A little at a time: to give back a gigabyte takes 150 ms. What lies in holes smaller than a page cannot be given
    back, and is not tried again before more was freed.

    Args:
        account: what is held.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._trim = getattr(_LIBRARY, "malloc_trim", None)
        self._figures = STATM.open("rb", buffering=0) if STATM.exists() else None
        self._kept = self._least = self._beside()
        self._tried_at = time.monotonic()  # the last attempt
        self._objects = sys.getallocatedblocks()  # the most there were

    def look(self) -> None:
        """Give back what is worth while; to be called where bodies were freed."""
        self._look(SLACK)

    def look_at_rest(self, wanted: int) -> None:
        """As :meth:`look`, now and then.

        Args:
            wanted: octets that may soon be held again, and stay.
        """
        objects = sys.getallocatedblocks()
        self._objects = max(self._objects, objects)
        if wanted > SLACK:
            self._look(wanted + SLACK)
        elif objects < self._objects - FEWER:  # what was freed of what was resident before does not show there
            self._objects = objects
            empty_free_lists()
            self._give_back()
        elif time.monotonic() >= self._tried_at + RETRIED and self._beside() > self._least + REST_SLACK:
            self._give_back()
        else:
            self._look(REST_SLACK)

    def _look(self, slack: int) -> None:
        beside = self._beside()
        if beside > self._kept + slack:
            self._give_back()
        else:
            self._kept = min(self._kept, beside)

    def _give_back(self) -> None:
        if self._trim is not None:
            self._trim(0)
        self._tried_at = time.monotonic()
        self._kept = self._beside()
        self._least = min(self._least, self._kept)

    def _beside(self) -> int:
        """Octets that are resident beside what is held."""
        if self._figures is None:
            return 0
        self._figures.seek(0)
        return int(self._figures.read().split()[1]) * _PAGE - self._account.total
