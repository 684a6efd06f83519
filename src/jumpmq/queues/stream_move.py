"""The move of a stream from home to home: its files go to the new home, by their directory or as copies. Messages
published meanwhile wait in a queue of the new home (:attr:`~jumpmq.queues.base.Queue.behind`), and then enter the
stream.
"""

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from jumpmq.amqp.errors import ResourceError
from jumpmq.amqp.messages import Message
from jumpmq.queues.base import Journal, Outcome, Queue
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.group_offsets import GroupOffset
from jumpmq.queues.records import QueueRecords
from jumpmq.store.definitions import named
from jumpmq.store.kinds import ENTERED, STREAM
from jumpmq.store.stream_bounds import HandedFiles
from jumpmq.store.stream_copy import Extent
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog


class OffsetsOfGroups(Protocol):
    """Offsets of a stream's consumer groups."""

    def __iter__(self) -> Iterator[GroupOffset]: ...


class MovingStream(Protocol):
    """A stream, from the point of view of its move; see :class:`~jumpmq.queues.stream.Stream`."""

    vhost: str
    name: str
    id: int
    moved: bool
    behind: Queue | None
    log: StreamLog

    @property
    def offsets(self) -> OffsetsOfGroups: ...
    @property
    def next_seq(self) -> int: ...
    def append(self, messages: list[Message]) -> None: ...
    def go_on_with(self, log: StreamLog) -> None: ...


class StreamMove:
    """The move of a stream, at its previous and at its new home.

    Args:
        files: the files of all streams.
        journal: the store's records; None without a store.

    Attributes:
        shown: further fields of the stream's status.
    """

    __slots__ = ("_awaits", "_entered", "_entering", "_files", "_journal", "_stream", "shown")

    def __init__(self, stream: MovingStream, files: StreamFiles, journal: Journal | None) -> None:
        # weak: otherwise both would wait for a full garbage collection
        self._stream: MovingStream = weakref.proxy(stream)
        self._files = files
        self._journal = journal
        self.shown: dict[str, str] = {}
        self._awaits = False  # True while files are expected from another home
        self._entered = stream.log.end  # offset up to which buffered messages have entered, as stored
        self._entering: list[Message] = []  # buffered messages to be settled once they are on disk here

    def restore(self, records: QueueRecords) -> None:
        """Restore the recorded state."""
        if records.entered is not None:
            self._entered = records.entered

    def require_files(self) -> None:
        """
        Raises: ResourceError: the files have not arrived.
        """
        stream = self._stream
        if self._awaits or stream.moved:
            raise ResourceError(f"stream '{stream.name}' in vhost '{stream.vhost}' is moving from home to home")

    @property
    def handed(self) -> HandedFiles | None:
        """Data left with the files by :meth:`hand_over`, or by the previous home."""
        return self._stream.log.handed

    # --- at the previous home ---

    @property
    def extents(self) -> list[Extent]:
        """Segments on disk, with their extents."""
        return self._stream.log.extents

    def path_of(self, first: int) -> Path:
        """Return the file of the segment that begins at an offset."""
        return self._stream.log.path_of(first)

    def sync_files(self) -> None:
        """See :meth:`~jumpmq.store.stream_files.StreamFiles.sync`; :meth:`hand_over` has less to do then."""
        self._files.sync(self._stream.log)

    def hand_over(self, *, leave: bool) -> Path:
        """Hand the files over to the new home: all messages are on disk, and publishing here has ended.

        Args:
            leave: True if the new home takes the directory; False if it copies the files.

        Returns:
            The directory. The changes of the store made here have to be on disk before another home uses the files.

        Raises:
            OSError: a file cannot be written.
        """
        offsets = {one.group: one.record() for one in self._stream.offsets}
        return self._files.hand_over(self._stream.log, offsets, leave=leave)

    # --- at the new home ---

    def begin(self) -> None:
        """Await the files, unless they have arrived already."""
        stream = self._stream
        self._awaits = stream.log.handed is None
        if self._awaits and self._journal is not None:
            self._journal.delete(STREAM, str(stream.id))  # the files tell, once they have arrived
        if stream.log.handed is not None:
            self._entered = stream.log.handed.bounds.end

    @property
    def awaits(self) -> bool:
        """True while files are expected from the previous home."""
        return self._awaits

    def brought(self, directory: Path) -> Path:
        """See :meth:`~jumpmq.store.stream_files.StreamFiles.brought`."""
        return self._files.brought(self._stream.id, directory)

    def take_over(self, directory: Path) -> None:
        """Take over the files from the previous home, found by :meth:`brought`; buffered messages may follow.

        Raises:
            OSError, StoreError: the files cannot be used.
        """
        stream = self._stream
        stream.log.fall_silent()
        self._go_on_with(self._files.take_over(stream.id, directory, named(stream.name, stream.vhost)))

    def adopt(self, imported: int, handed: HandedFiles) -> None:
        """As :meth:`take_over`, for messages that came through the log; see
        :meth:`~jumpmq.store.stream_files.StreamFiles.adopt`.
        """
        stream = self._stream
        stream.log.fall_silent()
        self._go_on_with(self._files.adopt(stream.id, imported, handed))

    def _go_on_with(self, log: StreamLog) -> None:
        self._entered = log.end
        self._awaits = False
        self._stream.go_on_with(log)

    def follow_up(self, count: int) -> bool:
        """See :meth:`~jumpmq.queues.base.Queue.follow_up`."""
        stream = self._stream
        behind = stream.behind
        assert isinstance(behind, ClassicQueue)
        if self._entering:  # on disk now
            self._entered += len(self._entering)
            if self._journal is not None:
                self._journal.put(ENTERED, str(stream.id), self._entered)
            # In one commit with the record: after a crash, each message is in the stream or in the buffer.
            behind.settle(self._entering, Outcome.ACKNOWLEDGED)
            self._entering = []
        messages = behind.take_for_delivery(count)
        if messages:
            had = stream.next_seq - self._entered  # before a crash, and not known to the store
            stream.append([message.copy() for message in messages[had:]])
            # Settled at the next step, when the messages are on the stream's disk.
            self._entering = messages
        elif not behind.message_count and not behind.purging:
            stream.behind = None
            behind.delete()
        return bool(messages)

    def forget(self) -> None:
        """Delete the data that came with the files. Call this once the end of the buffered messages is on disk: after
        an earlier crash, the data shows how many messages have entered.
        """
        stream = self._stream
        if stream.log.handed is not None:
            if self._journal is not None:
                self._journal.delete(ENTERED, str(stream.id))
            self._files.forget_handed(stream.id, stream.log)
