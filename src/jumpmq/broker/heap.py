"""What the C library does with memory that was freed; without glibc there is nothing to do."""

import ctypes
import os
from pathlib import Path

from jumpmq.queues.memory import MemoryAccount

M_ARENA_MAX, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -8, -1, -3
"""Parameters of the C library (``malloc.h``)."""

KEPT_SHARE = 32
"""What part of the memory limit the C library may keep of freed memory at the end of its heap."""

MOST_KEPT = 256 << 20
"""Octets that it may keep at most."""

MAPPED_FROM = 32 << 20
"""Octets of a body that has pages of its own, which are given back with it."""

SLACK = 32 << 20
"""Octets that may have been freed since they were last given back to the system: that takes some five milliseconds."""

STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def keep_few_arenas() -> None:
    """Have the threads of this process share two heaps.

    Of eight a processor, which it would else have, each keeps what it freed (measured: 20 MB less while bodies are
    paged). To be called before there are threads.
    """
    _set(M_ARENA_MAX, 2)


def keep_freed_memory(limit: int) -> None:
    """Have the C library keep some of what is freed instead of asking the system for pages again and again.

    Memory that is new to the process costs more than anything else that is done with a large body (measured: 700 us a
    megabyte, where the broker takes 600 for it otherwise).

    Args:
        limit: the memory limit, in octets.
    """
    _set(M_TRIM_THRESHOLD, min(limit // KEPT_SHARE, MOST_KEPT))
    _set(M_MMAP_THRESHOLD, MAPPED_FROM)


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)


class FreedMemory:
    """Gives the system back what was freed between bodies that are still held, while more and more of that is resident.

    A little at a time: to give back a gigabyte takes 150 ms. What lies in holes smaller than a page cannot be given
    back, and is not tried again before more was freed.

    Args:
        account: what is held.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._figures = STATM.open("rb", buffering=0) if STATM.exists() else None
        self._kept = self._beside()

    def look(self) -> None:
        """Give back what is worth while; to be called where bodies were freed."""
        beside = self._beside()
        if self._trim is not None and beside > self._kept + SLACK:
            self._trim(0)
            self._kept = self._beside()
        else:
            self._kept = min(self._kept, beside)

    def _beside(self) -> int:
        """Octets that are resident beside what is held."""
        if self._figures is None:
            return 0
        self._figures.seek(0)
        return int(self._figures.read().split()[1]) * _PAGE - self._account.total
