"""Units of work: everything requested by one read of a connection, or by one tick of the clock, is done as a whole.

A turn is a ``with`` block around a change of the broker's state::

    with turns.turn():
        queue.purge()

Its end hands what was staged to the store, tells those who wait for the disk which commit covers the turn, and writes
what there is to send. What depends on the disk (confirms, answers to changes of definitions) is sent when that commit
is complete. A turn within a turn ends with the outer one.

Reads of many connections that have nothing to send but confirms, for which their clients must wait anyway, end
together: to hand over what each has published is a good part of what a single message costs.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, Self

from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.commit.receipts import PENDING, Part
from jumpmq.store.completion import CompleteReceipt

TOGETHER = 0.001
"""Period in which reads end together, in seconds."""

LOOK_INTERVAL = 0.05
"""Seconds between checks of publishers with a publish that may hold up other confirms: at the second positive check the
other confirms go first. With a shorter interval, publishers to several homes would get an ack per publish.
"""


class CommitClient(Protocol):
    """Interface of a connection."""

    def write(self) -> None:
        """Write pending output."""

    def defer_until(self, commit: int) -> None:
        """Write nothing of the output not yet written before this commit is complete."""

    def send_deferred(self, completed: CompleteReceipt) -> bool:
        """Commit ``completed`` is complete; returns whether everything may be written now."""

    def wait_for_disk(self, behind: bool) -> None:
        """Pause or resume the client: True if the disk is too far behind for the client's messages."""

    def wait_for_home(self, behind: bool) -> None:
        """Pause or resume the client: True if a remote home is too far behind."""


class Publisher(Protocol):
    """Interface of a channel in confirm mode."""

    def seal_confirms(self, parts: Mapping[int, Part]) -> bool:
        """Assign receipts, one part per source, to the publishes of the current unit of work; return True if some
        confirms wait for their parts."""

    def send_confirms(self) -> bool:
        """Send due confirms; return True if some still wait."""


class HeldUp(Protocol):
    """Interface of a channel with a publish delaying other publishers' confirms."""

    def look_at_confirms(self) -> None:
        """Check for a publish holding up others; the others' confirms are then sent."""


class _Waiter:
    """Waits for parts as a publisher does."""

    def __init__(self, parts: Mapping[int, Part], then: Callable[[], None]) -> None:
        self._parts = parts  # what is waited for
        self._then: Callable[[], None] | None = then  # called once

    def seal_confirms(self, parts: Mapping[int, Part]) -> bool:
        return True

    def send_confirms(self) -> bool:
        if any(part.state is PENDING for part in self._parts.values()):
            return True
        then, self._then = self._then, None
        if then is not None:
            then()
        return False


class Turns:
    """The turns of a broker.

    Args:
        commits: tells what is complete.
        write_backlog: octets waiting for the disk beyond which publishers are no longer read.
    """

    def __init__(self, commits: Commits, write_backlog: int) -> None:
        self._commits = commits  # gets what a turn has staged
        self._write_backlog = write_backlog  # octets that may wait for the disk
        self._depth = 0  # turns within turns
        self._loop = asyncio.get_running_loop()  # source of timers
        self._reader: CommitClient | None = None  # the connection read in this turn
        self._read: list[CommitClient] = []  # connections read in this turn
        self._last_read = 0  # the id of the connection that was read last
        self._together_until = 0.0  # when reads that wait for others end, by the monotonic clock; 0 where none wait
        self._writing: set[CommitClient] = set()  # have something to send
        # have something to send that waits for the end of this turn's commit
        self._deferring: set[CommitClient] = set()
        self._deferred: set[CommitClient] = set()  # and for the end of earlier ones
        self._confirming: set[Publisher] = set()  # have published in this turn
        self._unconfirmed: dict[int, deque[tuple[Part, set[Publisher]]]] = {}  # and before, by source
        self._paused: set[CommitClient] = set()  # are not read, as the disk is behind
        self._held_up: set[HeldUp] = set()  # are looked at soon
        self._sent: dict[int, Part] = {}  # what was given to other homes up to now, by source
        commits.on_complete = self._on_complete

    def turn(self, reader: CommitClient | None = None) -> Self:
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
        """Put all changes until the end of the block into a single commit, across any number of event-loop iterations;
        nothing is committed meanwhile. To be entered and left within a unit of work."""
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

    def write_soon(self, connection: CommitClient) -> None:
        """The connection has something to send."""
        self._writing.add(connection)

    def defer(self, connection: CommitClient) -> bool:
        """Hold the connection's output until the changes of the current unit of work are on disk.

        Returns:
            Whether it has to wait at all: where nothing is durable it has not.
        """
        if self._commits.store is None:
            return False
        self._deferring.add(connection)
        return True

    def confirm(self, channel: Publisher) -> None:
        """Confirm the channel's publishes of the current unit of work."""
        self._confirming.add(channel)

    @property
    def reader(self) -> CommitClient | None:
        """The connection whose read is being processed; None outside of a connection's read."""
        return self._reader

    def look_later(self, channel: HeldUp) -> None:
        """Schedule a check of a channel's confirms, within :data:`LOOK_INTERVAL`."""
        if not self._held_up:
            self._loop.call_later(LOOK_INTERVAL, self._look_at_held_up)
        self._held_up.add(channel)

    def note_sent(self, source: int, part: Part) -> None:
        """Record messages given to a remote home, by the end of the current unit of work; the part covers all of them.

        Args:
            source: its bit.
        """
        self._sent[source] = part

    def when_known(self, parts: Mapping[int, Part], then: Callable[[], None]) -> None:
        """Call a function when none of these parts, by source, is pending."""
        if any(part.state is PENDING for part in parts.values()):
            self._await_parts(parts, {_Waiter(parts, then)})
        else:
            then()

    # --- its end ---

    def _end_read(self, reader: int) -> None:
        """End the unit of work; with only confirms to send and further readable connections, end together with the
        reads of those connections. A reader that was also the last reader is taken to be alone, without polling the
        sockets of the rest.

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
        """End the shared unit of work: all readable data is read."""
        if self._together_until:
            self._end()

    def _end(self, *, alone: bool = False) -> None:
        """
        Args:
            alone: whether it is known that no client has sent more.
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
            parts = {**self._commits.parts, **self._sent} if self._sent else self._commits.parts
            waiting = {channel for channel in self._confirming if channel.seal_confirms(parts)}
            self._confirming.clear()
            if waiting:
                self._await_parts(parts, waiting)
        self._write()
        self._commits.begin(alone=alone)
        if self._read:
            if self._commits.backlog > self._write_backlog:
                for reader in self._read:
                    self._paused.add(reader)
                    reader.wait_for_disk(True)
            self._read.clear()

    def _write(self) -> None:
        while self._writing:
            self._writing.pop().write()

    def _await_parts(self, parts: Mapping[int, Part], channels: set[Publisher]) -> None:
        """Check the channels again at completion of any of these parts."""
        for source, part in parts.items():
            if part.state is PENDING:
                waiting = self._unconfirmed.setdefault(source, deque())
                if waiting and waiting[-1][0].number == part.number:
                    waiting[-1][1].update(channels)
                else:
                    waiting.append((part, set(channels)))

    def _on_complete(self) -> None:
        """Answer waiters after a completion."""
        self._send_deferred()
        self.look_at_receipts()
        if not self._depth:
            self._write()
        if self._paused and self._commits.backlog <= self._write_backlog // 2:
            while self._paused:
                self._paused.pop().wait_for_disk(False)

    def look_at_receipts(self) -> None:
        """Answer the publishers whose receipts are no longer pending."""
        for waiting in self._unconfirmed.values():
            while waiting and waiting[0][0].state is not PENDING:
                for channel in waiting.popleft()[1]:
                    channel.send_confirms()

    def _look_at_held_up(self) -> None:
        channels, self._held_up = self._held_up, set()
        for channel in channels:
            channel.look_at_confirms()
        self._write()

    def _send_deferred(self) -> None:
        if not self._deferred:
            return
        completed = self._commits.completed
        for connection in [one for one in self._deferred if one.send_deferred(completed)]:
            self._deferred.discard(connection)
            self._writing.add(connection)
