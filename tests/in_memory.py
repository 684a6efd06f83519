"""Temporary directories in memory, for tests with many stores: waits for a disk are most of the time of such a test."""

import os
import shutil
import tempfile
from pathlib import Path

SHARED = Path("/dev/shm")
LEAST = 512 << 20
"""Octets that have to be free: a container often has 64 MB there."""


def directory_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary directory in memory, or on disk if the machine has no room for files in memory."""
    is_usable = os.access(SHARED, os.W_OK) and shutil.disk_usage(SHARED).free >= LEAST
    return tempfile.TemporaryDirectory(dir=SHARED if is_usable else None)
