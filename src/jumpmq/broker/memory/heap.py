"""Handling of freed memory by Python and the C library; the latter only with glibc."""

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
"""Share of the memory limit the C library may always keep as freed memory at the end of its heap, and the maximum in
octets."""

MOST_SHARE, MOST_KEPT = 8, 1 << 30
"""The same for the time after as much was held for messages."""

FORGOTTEN = 1 << 20
"""Decay of earlier held memory, in octets per second."""

GIVEN_BACK = 16 << 20
"""Octets returned to the system at once, in two milliseconds."""

TRIMMED = 128 << 10
"""Octets freed to make the C library check the end of the heap: less than half causes no check."""

MAPPED_FROM = 19 << 20
"""Octets of a body from which on the body has pages of its own, returned together with the body; also the octets for
hashing a password.
"""

SLACK = 32 << 20
"""Octets possibly freed since the last return to the system, a step of some five milliseconds."""

REST_SLACK = 8 << 20
"""Octets possibly freed since the last return to the system, while almost no messages were held lately."""

RETRIED = 30.0
"""Seconds until the next attempt to return memory resident since the minimum: connections open at the last attempt,
with a 256 KB buffer for TLS per connection, may be closed."""

FEWER = 500_000
"""Decrease in the number of objects that counts as significant while almost no messages were held, for example after
the deletion of queues.
"""

STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIBRARY = ctypes.CDLL(None)  # once: each handle creates classes


def keep_few_arenas() -> None:
    """Limit the threads of the process to two shared heaps.

    The default is eight heaps per processor, and each keeps its freed memory (measured: 20 MB less with two heaps while
    bodies are paged). Call this before starting threads.
    """
    _set(M_ARENA_MAX, 2)


class KeptMemory:
    """Makes the C library keep freed memory for equally large later demands, instead of asking the system for pages.

    New memory is the greatest cost of a large body (measured per megabyte: 500 us to get and 100 us to return memory;
    all other work of the broker takes 500 us). The library therefore keeps as much as was recently held for messages.
    Memory not used again is returned to the system gradually.

    Args:
        account: account of held memory.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._wanted = 0.0
        self._kept = 0
        self._looked_at = time.monotonic()
        _set(M_MMAP_THRESHOLD, MAPPED_FROM)
        self.look()

    def look(self) -> None:
        """Set the amount to keep. Called several times a second."""
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
        _set(M_TOP_PAD, max(octets - GIVEN_BACK, octets // 2))  # octets kept when the end of the heap is returned
        if less:
            bytes(TRIMMED)


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(_LIBRARY, "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)


def empty_free_lists() -> None:
    """Release the dead tuples and dictionary tables kept by Python for reuse.

    They are spread over the heap, and each keeps a megabyte from being returned (measured: 80 MB after a million
    messages). Only a full garbage collection frees them. All objects are frozen before, so that the collection has
    nothing to search. Objects frozen at the start are not frozen afterwards.
    """
    gc.freeze()
    gc.collect()
    gc.unfreeze()


class FreedMemory:
    """Returns memory freed between held bodies to the system, when more freed memory is resident.

    Memory is returned a little at a time: returning a gigabyte takes 150 ms. Holes smaller than a page cannot be
    returned; the next attempt follows when more memory has been freed.

    Args:
        account: account of held memory.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._trim = getattr(_LIBRARY, "malloc_trim", None)
        self._figures = STATM.open("rb", buffering=0) if STATM.exists() else None
        self._kept = self._least = self._beside()
        self._tried_at = time.monotonic()  # time of the last attempt
        self._objects = sys.getallocatedblocks()  # highest number of objects

    def look(self) -> None:
        """Return memory if enough was freed; to be called after bodies were freed."""
        self._look(SLACK)

    def return_at_intervals(self, wanted: int) -> None:
        """As :meth:`look`, to be called at intervals.

        Args:
            wanted: octets that may soon be held again, and are kept.
        """
        objects = sys.getallocatedblocks()
        self._objects = max(self._objects, objects)
        if wanted > SLACK:
            self._look(wanted + SLACK)
        elif objects < self._objects - FEWER:  # the resident size does not show memory freed since the minimum
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
        """Return the resident octets beyond held octets."""
        if self._figures is None:
            return 0
        self._figures.seek(0)
        return int(self._figures.read().split()[1]) * _PAGE - self._account.total
