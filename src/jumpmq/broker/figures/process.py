"""Resources used by the local process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

OPEN_FILES = Path("/proc/self/fd")


def open_files() -> int:
    """Return the number of files open in this process; 0 if the system does not report it."""
    return len(list(OPEN_FILES.iterdir())) if OPEN_FILES.exists() else 0


def resident_octets() -> int:
    """Return the resident memory of this process; the peak if the system does not report the current value."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
