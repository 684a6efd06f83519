"""Turns: all requests of one read of a connection, or of one tick of the clock, are executed as a whole.

A turn is a ``with`` block around changes of the broker's state::

    with turns.turn(): queue.purge()

The end of a turn passes the staged changes to the store, tells waiting callers which commit covers the turn, and writes
the output of connections. Output that depends on the disk (confirms, answers to changes of definitions) is sent when
the commit is complete. A turn inside another turn ends with the outer turn.

Some reads produce only confirms, which have to wait for the disk in any case. Such reads of many connections end
together: passing changes to the store is a considerable part of the cost of a single message.
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
        """Hold the output not yet written until this commit is complete."""

    def send_deferred(self, completed: CompleteReceipt) -> bool:
        """Commit ``completed`` is complete; return True if all output may be written now."""

    def wait_for_disk(self, behind: bool) -> None:
        """Pause or resume the client: True if the disk is too far behind for the client's messages."""

    def wait_for_home(self, behind: bool) -> None:
        """Pause or resume the client: True if another home is too far behind."""


class Publisher(Protocol):
    """Interface of a channel in confirm mode."""

    def assign_receipts(self, parts: Mapping[int, Part]) -> bool:
        """Assign receipts, one part per source, to the publishes of the current unit of work; return True if some
        confirms wait for their parts."""

    def send_confirms(self) -> bool:
        """Send due confirms; return True if some still wait."""


class HeldUp(Protocol):
    """Interface of a channel with a publish delaying other publishers' confirms."""

    def check_confirms(self) -> None:
        """Check for a publish holding up others; the others' confirms are then sent."""


class _Waiter:
    """Waits for parts, like a publisher."""

    def __init__(self, parts: Mapping[int, Part], then: Callable[[], None]) -> None:
        self._parts = parts  # what is waited for
        self._then: Callable[[], None] | None = then  # called once

    def assign_receipts(self, parts: Mapping[int, Part]) -> bool:
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
        commits: tells which commits are complete.
        write_backlog: octets waiting for the disk above which publishers are no longer read.
    """

    def __init__(self, commits: Commits, write_backlog: int) -> None:
        self._commits = commits  # receives the changes of a turn
        self._write_backlog = write_backlog  # maximum octets waiting for the disk before publishers are paused
        self._depth = 0  # depth of nested turns
        self._loop = asyncio.get_running_loop()  # source of timers
        self._reader: CommitClient | None = None  # the connection read in this turn
        self._read: list[CommitClient] = []  # connections read in this turn
        self._last_read = 0  # id of the connection read last
        self._together_until = 0.0  # end of the wait for other reads, by the monotonic clock; 0 without a wait
        self._writing: set[CommitClient] = set()  # connections with output
        # have something to send that waits for the end of this turn's commit
        self._deferring: set[CommitClient] = set()
        self._deferred: set[CommitClient] = set()  # connections with output that waits for earlier commits
        self._confirming: set[Publisher] = set()  # channels with publishes in this turn
        # channels with publishes in earlier turns, by source
        self._unconfirmed: dict[int, deque[tuple[Part, set[Publisher]]]] = {}
        self._paused: set[CommitClient] = set()  # connections not read, because the disk is behind
        self._held_up: set[HeldUp] = set()  # channels to check soon
        self._sent: dict[int, Part] = {}  # messages given to other homes up to now, by source
        commits.listen(on_complete=self._on_complete)

    def turn(self, reader: CommitClient | None = None) -> Self:
        """Return a turn as a context.

        Args:
            reader: the connection that was read; it is paused while the disk is behind.
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
        """Put all changes until the end of the block into a single commit, over any number of turns. Nothing is
        committed meanwhile.

        Enter and leave the block inside a turn.
        """
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
        """End the turn, and wait until all changes are on disk."""
        with self.turn():
            pass
        await self._commits.wait()

    # --- what a turn may ask for ---

    def write_soon(self, connection: CommitClient) -> None:
        """Write the connection's output at the end of the turn."""
        self._writing.add(connection)

    def defer(self, connection: CommitClient) -> bool:
        """Hold the connection's output until the changes of the current turn are on disk.

        Returns:
            True if the output has to wait; False if nothing is durable.
        """
        if self._commits.store is None:
            return False
        self._deferring.add(connection)
        return True

    def confirm(self, channel: Publisher) -> None:
        """Confirm the channel's publishes of the current turn."""
        self._confirming.add(channel)

    @property
    def reader(self) -> CommitClient | None:
        """The connection whose read is being processed; None outside of a connection's read."""
        return self._reader

    def look_later(self, channel: HeldUp) -> None:
        """Schedule a check of a channel's confirms, within :data:`LOOK_INTERVAL`."""
        if not self._held_up:
            self._loop.call_later(LOOK_INTERVAL, self._check_held_up)
        self._held_up.add(channel)

    def note_sent(self, source: int, part: Part) -> None:
        """Note the messages given to another home by the end of the current turn. The part covers all of them.

        Args:
            source: bit of the other home.
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
        """End the turn of a read.

        If the turn has only confirms to send, and more connections are readable, the turns of these reads end together.
        A connection that was also read last is assumed to be the only active one; the other sockets are then not
        polled.

        Args:
            reader: the ``id`` of the connection that was read.
        """
        store = self._commits.store
        alone, self._last_read = self._last_read == reader, reader
        # Only a turn with nothing to send but confirms can wait for other reads.
        if store is None or not self._confirming or self._writing or self._deferring:
            self._end()
        elif self._together_until:
            if time.monotonic() < self._together_until:
                # The turns stay independent: settlements of one read do not depend on messages of another.
                store.part()
            else:
                self._end()
        # Nothing waits for the disk, so the confirms are due.
        elif not store.staging:
            self._end()
        elif not alone and self._commits.more_to_read:
            store.part()
            self._together_until = time.monotonic() + TOGETHER
            self._loop.call_soon(self._end_together)
        else:
            self._end(alone=True)

    def _end_together(self) -> None:
        """End the turns of several reads: all readable data is read."""
        if self._together_until:
            self._end()

    def _end(self, *, alone: bool = False) -> None:
        """End the turn.

        Args:
            alone: True if the caller knows that no client has sent more data.
        """
        self._together_until = 0.0
        wanted = bool(self._deferring or self._confirming)
        commit = self._commits.flush(settlements=bool(self._deferring), waiting=wanted)
        # Only the flush gives the number of the commit for which the output waits.
        if self._deferring:
            for connection in self._deferring:
                connection.defer_until(commit)
            self._deferred |= self._deferring
            self._deferring.clear()
            # The commit is complete already if nothing was staged.
            self._send_deferred()
        if self._confirming:
            parts = {**self._commits.parts, **self._sent} if self._sent else self._commits.parts
            waiting = {channel for channel in self._confirming if channel.assign_receipts(parts)}
            self._confirming.clear()
            if waiting:
                self._await_parts(parts, waiting)
        # Before the commit: on a fast disk, `begin` writes in this thread, while the clients could continue.
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
        """Check the channels again when any of these parts is complete."""
        for source, part in parts.items():
            if part.state is PENDING:
                waiting = self._unconfirmed.setdefault(source, deque())
                if waiting and waiting[-1][0].number == part.number:
                    waiting[-1][1].update(channels)
                else:
                    waiting.append((part, set(channels)))

    def _on_complete(self) -> None:
        """Send answers and confirms after a completion."""
        self._send_deferred()
        self.check_receipts()
        # Inside a turn, the end of the turn writes.
        if not self._depth:
            self._write()
        # Half of the limit, so that publishers do not stop and go with each commit.
        if self._paused and self._commits.backlog <= self._write_backlog // 2:
            while self._paused:
                self._paused.pop().wait_for_disk(False)

    def check_receipts(self) -> None:
        """Send confirms to publishers whose receipts are no longer pending."""
        for waiting in self._unconfirmed.values():
            # A source completes its parts in order: behind a pending part, all parts are pending.
            while waiting and waiting[0][0].state is not PENDING:
                for channel in waiting.popleft()[1]:
                    channel.send_confirms()

    def _check_held_up(self) -> None:
        channels, self._held_up = self._held_up, set()
        for channel in channels:
            channel.check_confirms()
        self._write()

    def _send_deferred(self) -> None:
        if not self._deferred:
            return
        completed = self._commits.completed
        for connection in [one for one in self._deferred if one.send_deferred(completed)]:
            self._deferred.discard(connection)
            self._writing.add(connection)
