"""The shared receive buffer of sockets."""

import os
from pathlib import Path

import pytest

from jumpmq.broker.connection.receiving import ReceiveBuffer

STATM = Path("/proc/self/statm")


@pytest.mark.skipif(not STATM.exists(), reason="what is resident is known of Linux alone")
def test_it_is_resident_as_far_as_it_was_read_into() -> None:
    before = resident()
    buffer = ReceiveBuffer()
    assert resident() - before < 512 << 10
    whole = buffer.after(b"", large=True)
    whole[:] = bytes(len(whole))
    assert resident() - before > 768 << 10  # some pages are counted later


def resident() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
