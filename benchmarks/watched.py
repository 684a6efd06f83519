"""`jumpmq` with a watch on the longest slice of processor time of the broker's thread between two timer callbacks.

    python -m benchmarks.watched FILE serve ...

A timer of the event loop is due every millisecond, and notes the processor time of the thread since the last call:
unlike a probe's latency, this figure does not depend on other load of the machine. The maximum is in the file, as a C
double in seconds; a reader resets it to 0.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from jumpmq.__main__ import main

LONGEST = struct.Struct("d")
INTERVAL = 0.001


class Watch:
    """Watches the thread of an event loop."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), LONGEST.size)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before = time.thread_time()
        self._look()

    def _look(self) -> None:
        now = time.thread_time()
        if now - self._before > LONGEST.unpack_from(self._shared)[0]:
            LONGEST.pack_into(self._shared, 0, now - self._before)
        self._before = now
        self._loop.call_later(INTERVAL, self._look)


def longest(file: Path) -> float:
    """Longest slice since the last call, in seconds of processor time."""
    with file.open("r+b") as opened:
        (seconds,) = LONGEST.unpack(opened.read(LONGEST.size))
        opened.seek(0)
        opened.write(LONGEST.pack(0.0))
    return float(seconds)


def _watching(watch: Watch) -> Any:
    make = uvloop.new_event_loop

    def new_event_loop() -> uvloop.Loop:
        loop = make()
        loop.call_soon(watch.start, loop)
        return loop

    return new_event_loop


if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    file.write_bytes(LONGEST.pack(0.0))
    uvloop.new_event_loop = _watching(Watch(file))
    main()
