"""Admission of batches published over HTTP, limited by the memory of their bodies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jumpmq.queues.memory import MemoryAccount

SHARE = 3
"""The bodies of all batches together may take the memory limit divided by this number."""

PACE = 256 << 10
"""Minimum rate of a body, in octets per second, while other batches wait for memory."""

PATIENCE = 5.0
"""Period of measuring the rate of a body, in seconds."""


class Upload:
    """An admitted batch.

    Attributes:
        octets: octets reserved for the body.
        received: octets of the body received so far, set by the reader.
        complete: True if the whole body is received; such a batch is never ended for its rate.
        bound: the timeout around the reader; None before the reader has begun.
    """

    __slots__ = ("_marked", "_marked_at", "bound", "complete", "octets", "received")

    def __init__(self, octets: int, now: float) -> None:
        self.octets = octets
        self.received = 0
        self.complete = False
        self.bound: asyncio.Timeout | None = None
        self._marked, self._marked_at = 0, now

    def end_if_slow(self, now: float) -> None:
        """Let the reader's timeout expire if the rate of the last :data:`PATIENCE` seconds was below :data:`PACE`."""
        passed = now - self._marked_at
        if self.bound is not None and passed < PATIENCE:
            return
        if self.bound is not None and not self.complete and self.received - self._marked < passed * PACE:
            self.bound.reschedule(now)
        self._marked, self._marked_at = self.received, now


class Uploads:
    """Batches whose bodies are being received or published, admitted in the order of their requests.

    The memory account counts a body only as it arrives: of ten bodies of 100 MB that begin at once, all would be in
    memory before the alarm caused by the first one stops the others.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._admitted: set[Upload] = set()
        self._waiting: deque[asyncio.Event] = deque()

    @property
    def octets(self) -> int:
        """Octets reserved for all admitted batches."""
        return sum(upload.octets for upload in self._admitted)

    @asynccontextmanager
    async def admitted(self, octets: int) -> AsyncIterator[Upload]:
        """Reserve ``octets`` for a batch, after earlier requests, until the context ends."""
        if self._waiting or not self._fits(octets):
            await self._wait(octets)
        upload = Upload(octets, asyncio.get_running_loop().time())
        self._admitted.add(upload)
        try:
            yield upload
        finally:
            self._admitted.remove(upload)
            self._wake()

    def _fits(self, octets: int) -> bool:
        """Return True if so many octets fit. A batch above the limit is admitted alone."""
        return not self._admitted or self.octets + octets <= self._account.limit // SHARE

    async def _wait(self, octets: int) -> None:
        """Wait for admission. The first waiter checks the rate of admitted bodies."""
        loop, first = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.append(first)
        try:
            while self._waiting[0] is not first or not self._fits(octets):
                first.clear()
                try:
                    async with asyncio.timeout(PATIENCE / 5):
                        await first.wait()
                except TimeoutError:
                    if self._waiting[0] is first:
                        for upload in self._admitted:
                            upload.end_if_slow(loop.time())
        finally:
            self._waiting.remove(first)
            self._wake()  # if this request was cancelled, the next one may need less

    def _wake(self) -> None:
        if self._waiting:
            self._waiting[0].set()
