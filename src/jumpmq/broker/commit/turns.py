"""Turns: what one read of a connection asks for, or one tick of the clock, is done as a whole.

A turn is a ``with`` block around a change of the broker's state::

    with turns.turn():
        queue.purge()

Its end hands what was staged to the store, tells who waits for the disk which commit covers the turn, and writes what
there is to send. What depends on the disk (confirms, answers to changes of definitions) is sent when the store reports
that commit. A turn within a turn ends with the outer one.

Reads of many connections that have nothing to send but confirms, for which their clients must wait anyway, end
together: to hand over what each has published is a good part of what a single message costs.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.commit.receipts import Receipt
from jumpmq.broker.connection.reading import Wait

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel
    from jumpmq.broker.connection.connection import Connection


TOGETHER = 0.001
"""Seconds within which reads end together."""


class Turns:
    """The turns of a broker.

    Args:
        commits: tells what is on disk.
        write_backlog: octets waiting for the disk beyond which publishers are no longer read.
    """

    def __init__(self, commits: Commits, write_backlog: int) -> None:
        self._commits = commits
        self._write_backlog = write_backlog
        self._depth = 0
        self._loop = asyncio.get_running_loop()
        self._reader: Connection | None = None
        self._read: list[Connection] = []
        self._last_read = 0
        self._together_until = 0.0
        self._writing: set[Connection] = set()
        self._deferring: set[Connection] = set()
        self._deferred: set[Connection] = set()
        self._confirming: set[Channel] = set()
        self._unconfirmed: deque[tuple[int, set[Channel]]] = deque()
        self._paused: set[Connection] = set()
        commits.on_commit = self._on_commit

    def turn(self, reader: "Connection | None" = None) -> Self:
        """A turn, as a context.

        Args:
            reader: the connection whose read this is; it is read no further while the disk is behind.
        """
        if reader is not None:
            self._reader = reader
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        if not self._depth:
            reader, self._reader = self._reader, None
            if reader is None:
                self._end()
            else:
                self._read.append(reader)
                self._end_read(id(reader))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is changed until the end of the block is in one commit, however many turns that takes; nothing is
        committed meanwhile. To be entered and left within a turn."""
        store = self._commits.store
        if store is None:
            yield
            return
        store.hold()
        try:
            yield
        finally:
            store.release()

    async def committed(self) -> None:
        """End the turn, and wait until all that was changed is on disk."""
        with self.turn():
            pass
        await self._commits.wait()

    # --- what a turn may ask for ---

    def write_soon(self, connection: "Connection") -> None:
        """The connection has something to send."""
        self._writing.add(connection)

    def defer(self, connection: "Connection") -> bool:
        """What the connection has to send is to leave only when this turn's changes are on disk.

        Returns:
            Whether it has to wait at all: where nothing is durable it has not.
        """
        if self._commits.store is None:
            return False
        self._deferring.add(connection)
        return True

    def confirm(self, channel: "Channel") -> None:
        """The channel's publishes of this turn are to be confirmed."""
        self._confirming.add(channel)

    # --- its end ---

    def _end_read(self, reader: int) -> None:
        """End the turn; but if it only has confirms to send, and others are to be read, end it with theirs. Whoever was
        read last too is taken to be alone without a look at the others' sockets.

        Args:
            reader: the ``id`` of the connection that was read.
        """
        store = self._commits.store
        alone, self._last_read = self._last_read == reader, reader
        if store is None or not self._confirming or self._writing or self._deferring:
            self._end()
        elif self._together_until:
            if time.monotonic() < self._together_until:
                store.part()
            else:
                self._end()
        elif not store.staging:
            self._end()
        elif not alone and self._commits.more_to_read:
            store.part()
            self._together_until = time.monotonic() + TOGETHER
            self._loop.call_soon(self._end_together)
        else:
            self._end(alone=True)

    def _end_together(self) -> None:
        """All that was there to be read is read."""
        if self._together_until:
            self._end()

    def _end(self, *, alone: bool = False) -> None:
        """
        Args:
            alone: whether it is known that nobody has sent more.
        """
        self._together_until = 0.0
        wanted = bool(self._deferring or self._confirming)
        commit = self._commits.flush(settlements=bool(self._deferring), waiting=wanted)
        if self._deferring:
            for connection in self._deferring:
                connection.defer_until(commit)
            self._deferred |= self._deferring
            self._deferring.clear()
            self._send_deferred()
        if self._confirming:
            receipt = Receipt(self._commits, commit)
            waiting = {channel for channel in self._confirming if channel.seal_confirms(receipt)}
            self._confirming.clear()
            if self._unconfirmed and self._unconfirmed[-1][0] == commit:
                self._unconfirmed[-1][1].update(waiting)
            elif waiting:
                self._unconfirmed.append((commit, waiting))
        while self._writing:
            self._writing.pop().write()
        self._commits.begin(alone=alone)
        if self._read:
            if self._commits.backlog > self._write_backlog:
                for reader in self._read:
                    self._paused.add(reader)
                    reader.reading.pause(Wait.DISK)
            self._read.clear()

    def _on_commit(self) -> None:
        """A commit is on disk: answer who waited for it."""
        self._send_deferred()
        completed = self._commits.completed
        while self._unconfirmed and self._unconfirmed[0][0] <= completed:
            for channel in self._unconfirmed.popleft()[1]:
                channel.send_confirms()
        while self._writing and not self._depth:
            self._writing.pop().write()
        if self._paused and self._commits.backlog <= self._write_backlog // 2:
            while self._paused:
                self._paused.pop().reading.resume(Wait.DISK)

    def _send_deferred(self) -> None:
        if not self._deferred:
            return
        completed = self._commits.completed
        for connection in [one for one in self._deferred if one.send_deferred(completed)]:
            self._deferred.discard(connection)
            self._writing.add(connection)
