"""Consumer groups of a stream: their start, and their offsets in the store."""

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.queues import clock
from jumpmq.queues.clock import NEVER
from jumpmq.queues.consumer import Consumer, SubscribedGroup
from jumpmq.queues.group_offsets import MAX_GROUPS, WRITE_INTERVAL, GroupOffset, GroupOffsets
from jumpmq.queues.journal import RecordJournal
from jumpmq.queues.runs import by_slot
from jumpmq.store.kinds import GROUP_OFFSET
from jumpmq.store.stream_bounds import HandedFiles


class MoveOfFiles(Protocol):
    """The move of a stream; see :class:`~jumpmq.queues.stream_move.StreamMove`."""

    @property
    def awaits(self) -> bool: ...
    @property
    def handed(self) -> HandedFiles | None: ...
    def require_files(self) -> None: ...


class GroupedStream(Protocol):
    """A stream, from the point of view of its consumer groups; see :class:`~jumpmq.queues.stream.Stream`."""

    vhost: str
    name: str
    id: int
    deleted: bool

    @property
    def move(self) -> MoveOfFiles: ...
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    def start_of(self, arguments: list[Field]) -> int: ...
    def subscribe_at(self, position: GroupOffset, consumer: Consumer) -> None: ...
    def replace_position(self, before: GroupOffset | None, position: GroupOffset) -> None: ...
    def dispatch(self) -> None: ...
    def wake(self, at: float) -> None: ...


class StreamOffsets(GroupOffsets):
    """Offsets of a stream's consumer groups.

    Args:
        journal: the store's records; None without a store.

    Attributes:
        write_at: time at which changed offsets are stored.
    """

    def __init__(self, stream: GroupedStream, journal: RecordJournal | None) -> None:
        super().__init__()
        # weak: otherwise both would wait for a full garbage collection
        self._stream: GroupedStream = weakref.proxy(stream)
        self._journal = journal
        self.write_at = NEVER

    # --- in the store ---

    def restore(self, records: Mapping[str, Any], *, clean: bool) -> None:
        """Restore the offsets from the store.

        Args:
            records: records by group name.
            clean: True after a clean stop; otherwise every message may have been delivered before.
        """
        stream = self._stream
        handed = {} if stream.move.handed is None else stream.move.handed.offsets
        # The store's records are newer than those that came with the files.
        for group, record in {**handed, **records}.items():
            # An offset beyond the end would skip messages published later.
            offset = min(record["offset"], stream.end)
            self.set(group, offset, record["delivered"] if clean else stream.end, record["skipped"])
        self.changed.clear()

    def take_over(self) -> None:
        """Restore the offsets of the previous home, which came with the files."""
        stream = self._stream
        if stream.move.handed is None:
            return
        for group, record in stream.move.handed.offsets.items():
            before = self.get(group)
            position = self.set(group, min(record["offset"], stream.end), record["delivered"], record["skipped"])
            stream.replace_position(before, position)
        # Before the information that came with the files is deleted.
        self.write([*self.changed])

    def write_soon(self, position: GroupOffset) -> None:
        """Store a group's offset soon, with all changes until then."""
        self.changed.add(position)
        if self.write_at == NEVER:
            self.write_at = (clock.now() // WRITE_INTERVAL + 1) * WRITE_INTERVAL  # together with other streams
            self._stream.wake(self.write_at)

    def write_if_due(self, now: float) -> None:
        """Store changed offsets if it is time."""
        if now >= self.write_at:
            self.write(self.changed)
        elif self.write_at != NEVER:
            self._stream.wake(self.write_at)

    def write(self, changed: Iterable[GroupOffset]) -> None:
        """Store offsets now."""
        self.write_at = NEVER
        if self._stream.move.awaits:  # the groups' offsets come with the files
            return
        if self._journal is not None and not self._stream.deleted:
            for position in changed:
                self._journal.put(GROUP_OFFSET, f"{self._stream.id} {position.group}", position.record())
        self.changed.clear()

    def drop(self) -> None:
        """Delete all offsets from the store: the stream is deleted."""
        if self._journal is not None:
            for position in self:
                self._journal.delete(GROUP_OFFSET, f"{self._stream.id} {position.group}")

    # --- groups ---

    def start_of(self, arguments: list[Field]) -> int:
        """Return the first offset for a new consumer.

        Args:
            arguments: arguments of ``basic.consume``.

        Raises:
            PreconditionFailed: ``x-stream-offset`` is invalid, or the disk cannot be read.
        """
        return self._stream.start_of(arguments)

    def require_place(self, group: str) -> None:
        """Refuse a consumer group without an offset if the maximum number of groups is reached.

        Raises:
            PreconditionFailed: the maximum is reached.
        """
        if self.get(group) is None and len(self) >= MAX_GROUPS:
            stream = self._stream
            raise PreconditionFailed(
                f"{MAX_GROUPS} consumer groups have an offset in stream '{stream.name}' in vhost '{stream.vhost}': "
                "delete those that are not used"
            )

    def admit(self, group: SubscribedGroup, arguments: list[Field], *, known: bool) -> None:
        """Add a consumer group with members: it continues at its offset, or begins.

        Args:
            arguments: arguments of ``basic.consume``, with the start.
            known: True to begin with the first message, because the group has already consumed other queues.

        Raises:
            PreconditionFailed: the group cannot consume the stream.
        """
        if self.get(group.name) is None:
            self._begin(group.name, self._stream.first if known else self.start_of(arguments))
        self.members[group.name] = group

    def dismiss(self, group: SubscribedGroup) -> None:
        """Remove a consumer group without members; its offset stays."""
        if self.members.get(group.name) is group:
            del self.members[group.name]

    def subscribe(self, group: SubscribedGroup, consumer: Consumer) -> None:
        """Serve a consumer from its group's offset."""
        position = self.get(group.name)
        assert position is not None
        self._stream.subscribe_at(position, consumer)

    def reset(self, group: str, start: Field) -> None:
        """Move a consumer group to a new offset; its members' deliveries no longer count.

        Args:
            start: the new offset, in the form of ``x-stream-offset``.

        Raises:
            PreconditionFailed: the offset is invalid, or too many groups have an offset.
        """
        self._stream.move.require_files()
        before = self.get(group)
        self._stream.replace_position(before, self._begin(group, self.start_of([start])))
        self._stream.dispatch()

    def forget(self, group: str) -> bool:
        """Delete the offset of a consumer group; return False if there was none.

        Raises:
            PreconditionFailed: the group has members.
        """
        stream = self._stream
        stream.move.require_files()
        if group in self.members:
            raise PreconditionFailed(
                f"consumer group '{group}' has members that consume stream '{stream.name}' in vhost '{stream.vhost}'"
            )
        if self.delete(group) is None:
            return False
        if self._journal is not None:
            self._journal.delete(GROUP_OFFSET, f"{stream.id} {group}")
        return True

    def settle_messages(self, messages: list[Message], *, back: bool) -> None:
        """Settle messages of members, or (``back``) schedule them for redelivery."""
        for number, share in by_slot(messages).items():
            if (position := self.of(number)) is not None:
                before = position.offset
                position.settle([message.seq for message in share], back=back)
                if position.offset != before:
                    self.write_soon(position)

    def skip_to(self, first: int) -> None:
        """Advance groups past messages that no longer exist."""
        for position in self:
            self.skip(position, first)

    def skip(self, position: GroupOffset, first: int) -> None:
        """Advance a group past messages that no longer exist."""
        if position.skip_to(first):
            self.write_soon(position)

    def _begin(self, group: str, offset: int) -> GroupOffset:
        """Begin a group at an offset, stored at once."""
        self.require_place(group)
        position = self.set(group, min(max(offset, self._stream.first), self._stream.end))
        self.write([*self.changed])
        return position
