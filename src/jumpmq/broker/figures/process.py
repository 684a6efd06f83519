"""Resources used by the local process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

OPEN_FILES, MEMORY = Path("/proc/self/fd"), Path("/proc/self/statm")
PAGE = os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    """Return the number of files open in this process; 0 if the system does not report it."""
    try:
        return OPEN_FILES.stat().st_size or len(list(OPEN_FILES.iterdir()))  # a size since Linux 6.2
    except OSError:
        return 0


def resident_octets() -> int:
    """Return the resident memory of this process; the peak if the system does not report the current value."""
    try:
        return int(MEMORY.read_bytes().split()[1]) * PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
