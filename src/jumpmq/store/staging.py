"""Staged changes: gathered in memory over many turns, until a commit takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import SPILLED, Batch
from jumpmq.store.changes import Changes, Definitions, json_text
from jumpmq.store.completion import NO_RECEIPT, CompleteReceipt
from jumpmq.store.layout import body_octets
from jumpmq.store.records import GATHER
from jumpmq.store.upkeep import BatchMoves

if TYPE_CHECKING:
    from jumpmq.store.stream_import import ImportedChunk
    from jumpmq.store.stream_log import StreamLog

COMMIT_BYTES = 8 << 20
"""Octets of bodies after which changes go into another commit. Larger commits would block the broker's thread too
long.
"""

LARGE_BODY = 64 << 10
"""Average octets of a body from which on the broker's thread spends next to no time on a commit."""

LARGE_COMMIT_FACTOR = 4
"""Factor by which a commit of large bodies may exceed the limit. Writing 32 MB at once is 1.5 times as fast as
writing four times 8 MB.
"""

COMMIT_MESSAGES = 1 << 15
"""Number of messages after which changes go into a new commit."""

COMMIT_DEFINITIONS = 1 << 12
"""Maximum number of changes of definitions in a commit, roughly."""

LINGER_BYTES = 32 << 20
"""Octets of bodies up to which the commit of turns without confirms is delayed, by default."""

COPIED_BYTES = 16 << 20
"""Octets of small bodies after which changes go into another commit. The broker's thread copies small bodies
together.
"""


class Staging:
    """Changes that the broker's thread has staged, and that no commit has written to disk yet.

    The changes of a turn go into one commit. At the end of the turn, the changes join those of earlier turns for the
    next commit (:meth:`take`). Joined changes that reach the size limit are a full commit: later turns go into another
    one. Only one commit is taken at a time: before the next :meth:`take`, the owner calls :meth:`written`,
    :meth:`stored` or :meth:`put_back`.

    Attributes:
        committed: last complete receipt; all lower receipts are complete, too.

    Args:
        noted: list of settlements not assigned to a turn yet, as (batch, first, last); batches append to the list.
        commit_bytes: octets of bodies after which turns go into another commit.
        linger_bytes: the same limit if no publisher waits for the commit.
    """

    def __init__(self, noted: list[tuple[Batch, int, int]], *, commit_bytes: int, linger_bytes: int) -> None:
        self.committed = NO_RECEIPT
        self._noted = noted
        self._note = noted.append  # one bound method shared by all batches
        self._commit_bytes = commit_bytes
        self._linger_bytes = linger_bytes
        self._turn = Changes(0)  # changes of the current turn
        self._next = Changes(1)  # changes of ended turns
        self._full: deque[Changes] = deque()  # changes of earlier turns, a full commit each
        self._taken: Changes | None = None  # changes being written
        self._stored: deque[Changes] = deque()  # changes on disk, but not complete
        self._growing: dict[int, Batch] = {}  # the batch for a queue's next messages, by number of the queue
        self._next_spill = SPILLED  # last invented queue number
        self._moves: BatchMoves = []  # blocks to move at the end of the current turn
        self._requested = False  # True if the next commit is to begin as soon as possible
        self._held = 0  # number of callers that are still staging changes of a single commit
        self._failed = False  # True if the last commit was returned: all later changes go into the same commit

    # --- state ---

    @property
    def staged_bytes(self) -> int:
        """Octets of messages that are staged or being written, and not yet on disk."""
        waiting = self._turn.octets + self._next.octets
        for changes in self._full:
            waiting += changes.octets
        for changes in self._stored:
            waiting += changes.octets
        # During the callbacks of its completion, a commit is still taken, but no longer on the way to disk.
        if self._taken is not None and self._taken.receipt > self.committed:
            waiting += self._taken.octets
        return waiting

    @property
    def staging(self) -> bool:
        """True if anything was staged or settled since the last flush."""
        return bool(self._noted or self._turn)

    @property
    def dirty(self) -> bool:
        """True if a flush would write anything, even only settlements."""
        return bool(self._turn or self._next or self._full or self._noted)

    @property
    def is_held(self) -> bool:
        """True while commits wait for :meth:`release`."""
        return self._held > 0

    @property
    def next_receipt(self) -> int:
        """Receipt of the currently staged changes."""
        return self._next.receipt

    @property
    def settles(self) -> bool:
        """True if any settlement or drop is not committed yet."""
        return bool(self._noted) or any(one.settles or one.dropped for one in self._waiting())

    def pending(self) -> tuple[set[Batch], set[int]]:
        """Return the uncommitted settlements and drops: the batches, and the numbers of the queues."""
        batches = {batch for batch, _, _ in self._noted}
        queues: set[int] = set()
        for changes in self._waiting():
            batches.update(changes.settled, changes.bound)
            queues.update(changes.dropped)
        return batches, queues

    def _waiting(self) -> tuple[Changes, ...]:
        """Return all incomplete changes in order. A commit whose completion is being processed counts as complete."""
        taken = () if self._taken is None else (self._taken,)
        return (*self._stored, *taken, *self._full, self._next, self._turn)

    # --- a turn ---

    def put(self, kind: str, key: str, value: Any) -> None:
        """Stage a new or changed definition. The value is encoded at once.

        Raises:
            TypeError: JSON cannot represent the value.
            ValueError: JSON cannot represent the value, or UTF-8 the key.
        """
        key.encode()
        self._turn.definitions.put[kind, key] = json_text(value)

    def put_text(self, kind: str, key: str, value: str) -> None:
        """Like :meth:`put`, with a value already encoded as JSON."""
        self._turn.definitions.put[kind, key] = value

    def delete(self, kind: str, key: str) -> None:
        """Stage the removal of a definition; a missing definition is not an error."""
        self._turn.definitions.delete((kind, key))

    def change(self, definitions: Definitions) -> None:
        """Stage many prepared changes of definitions; the store owns the object from then on."""
        self._turn.definitions.absorb(definitions)

    def append(self, queue_id: int, messages: list[Message]) -> None:
        """Stage messages at the end of a queue, in order of ``seq``, and set their ``batch``.

        The stored slots of a message must not change afterwards; ``redelivered`` and the broker's own slots are not
        stored.
        """
        growing = self._growing
        while messages:
            if (batch := growing.get(queue_id)) is None:
                batch = growing[queue_id] = Batch(queue_id, self._note)
            taken, octets = batch.take(messages)
            if taken:
                self._turn.stage(batch, messages[0].seq, taken, octets)
            if taken == len(messages):
                return
            del growing[queue_id]
            messages = messages[taken:]

    def append_to_stream(self, log: StreamLog, messages: list[Message]) -> None:
        """Stage messages at the end of a stream. The messages must not change afterwards."""
        self._turn.stream(log, messages, body_octets(messages))

    def import_chunks(self, log: StreamLog, chunks: list[ImportedChunk]) -> None:
        """Stage chunks of another home at the end of a stream."""
        self._turn.import_chunks(log, chunks)

    def spill(self, messages: list[Message]) -> None:
        """Stage transient messages, to free memory: this process can read the messages from disk, and the next start
        drops them.

        The numbers may be lower than those of messages spilled before.
        """
        self._next_spill += 1
        self.append(self._next_spill, messages)
        self._growing.pop(self._next_spill, None)  # it never grows

    def drop_queue(self, queue_id: int) -> None:
        """Stage the removal of a queue's or stream's content. The id must not be used again; the batches may still be
        settled.
        """
        self._growing.pop(queue_id, None)
        self._turn.drop(queue_id)

    def when_complete(self, act: Callable[[], None]) -> None:
        """Stage a call for the completion of this turn's commit. A crash before the completion omits the call."""
        self._turn.gone.append(act)

    def drop_spilled(self, queue_ids: list[int]) -> None:
        """Stage the removal of messages spilled by an earlier process."""
        for queue_id in queue_ids:
            self._next_spill = max(self._next_spill, queue_id)
            self.drop_queue(queue_id)

    def part(self) -> None:
        """Divide the current turn. Settlements of the second part do not depend on messages of the first part, nor
        changes of the second part on settlements of the first part. One commit contains both parts.
        """
        self._settle_noted()
        self._turn.parted = self._turn.count

    def hold(self) -> None:
        """Collect all changes from now on in a single commit, over several turns. The commit begins after
        :meth:`release`.
        """
        self._held += 1

    def release(self) -> None:
        """End the collection begun by :meth:`hold`."""
        self.end_turn()
        self._held -= 1

    def move(self, moves: BatchMoves) -> None:
        """Stage the rewriting of the remaining parts of batches: at the end of the current turn, or at once outside a
        turn.

        The same commit contains all settlements made before the parts were read.
        """
        self._moves = moves
        if not (self._turn or self._noted):
            self._stage_moves()

    def end_turn(self) -> None:
        """Assign the staged changes and settlements of this turn to a single commit: to the commit of earlier turns, if
        the size limit permits.
        """
        self._settle_noted()
        turn = self._turn
        if turn:
            turn.receipt = self._next.receipt
            # Definitions of a turn with messages may describe these messages, for example a writer's progress. On a
            # full disk they must not be written without the messages.
            if turn.definitions.put and (turn.count or self._held):
                turn.kept_with.update(turn.definitions.put)
            if turn.dropped:
                self._discard(turn)
            if self._next.untouched:
                self._turn, self._next = self._next, turn
            else:
                self._next.absorb(turn)
                self._turn = Changes(0)
            if turn.settles:
                self._next.leave_out(turn)
            # After a failure, and while held, all changes have to reach the disk in one commit.
            waits = self._failed or self._held
            if not waits and _is_much(self._next, self._most_octets()):
                self._full.append(self._next)
                self._next = Changes(self._next.receipt + 1)
        # After the turn's settlements have joined: the commit with the moved parts has to settle the messages left out.
        if self._moves:
            self._stage_moves()

    def request(self, *, settlements: bool, waiting: bool) -> int:
        """End a turn, and request a commit.

        Args:
            settlements: True if settlements alone are reason enough for a commit.
            waiting: True if a caller waits for the commit; otherwise the commit is delayed until worthwhile.

        Returns:
            The receipt of all staged changes; an earlier receipt if nothing is staged.
        """
        self.end_turn()
        changes = self._next
        if not (changes if settlements else changes.pressing):
            return changes.receipt - 1
        if waiting or _is_much(changes, self._linger_bytes):
            self._requested = True
        return changes.receipt

    def _settle_noted(self) -> None:
        if self._noted:
            self._turn.settle(self._noted, bound=bool(self._held))
            self._noted.clear()

    def _most_octets(self) -> int:
        """Return the octets of bodies after which changes go into a new commit."""
        if not self._requested:
            return self._linger_bytes
        return self._commit_bytes * (LARGE_COMMIT_FACTOR if self._next.octets >= LARGE_BODY * self._next.count else 1)

    def _discard(self, turn: Changes) -> None:
        """Forget unwritten content of dropped queues.

        Content of earlier commits stays: a crash between such a commit and the drop needs the content.
        """
        for queue_id in turn.dropped:
            self._next.discard(queue_id)
        # In order of numbers: the messages of earlier commits are the first ones of the batch.
        earlier = [changes.staged for changes in self._full]
        if self._taken is not None:
            earlier.append(self._taken.staged)
        for batch in turn.discarded | self._next.discarded:
            if batch.messages is not None:
                batch.messages = batch.messages[: sum(staged.get(batch, 0) for staged in earlier)] or None

    def _stage_moves(self) -> None:
        _, dropped = self.pending()  # after a queue's drop, no block of the queue may follow in the log
        for batch, messages in self._moves:
            if batch.remaining and batch.positions and batch.queue_id not in dropped:
                self._next.moved[batch] = messages
        self._moves = []
        self._requested = bool(self._next.moved) or self._requested

    # --- a commit ---

    @property
    def wanted(self) -> bool:
        """True if :meth:`take` would return changes: a commit was requested, and is not held."""
        return bool(self._full) or (self._requested and not self._held)

    def take(self) -> Changes | None:
        """Return the changes for the next commit; None if no commit is wanted."""
        # Full commits were staged earlier, and receipts complete in order.
        if self._full:
            self._taken = self._full.popleft()
        elif self._requested and not self._held:
            self._taken = self._take_next()
        else:
            return None
        return self._taken

    def take_full(self) -> Changes | None:
        """Like :meth:`take`, but only for a full commit."""
        return self.take() if self._full else None

    def take_last(self) -> Changes:
        """Return all staged changes, for the last commit."""
        self._taken = self._take_next()
        return self._taken

    def take_relief(self) -> Changes | None:
        """Return changes that free room on a full disk and do not depend on other changes; None without such changes.

        Completing these changes completes no receipt.
        """
        if relief := self._next.without_staged():
            self._taken = relief
            return relief
        return None

    def _take_next(self) -> Changes:
        changes, self._next = self._next, Changes(self._next.receipt + 1)
        self._requested = False
        return changes

    def written(self) -> None:
        """Forget the changes taken last, because they are complete."""
        self._taken = None

    def stored(self) -> None:
        """Keep the changes taken last until :meth:`forget_stored`: they are on disk, but not complete."""
        assert self._taken is not None
        self._stored.append(self._taken)
        self._taken = None

    def forget_stored(self) -> None:
        """Forget the oldest stored changes, because they are complete."""
        self._stored.popleft()

    def recover(self) -> None:
        """Note that the changes taken last are on disk, with all changes of a failed commit before."""
        self._failed = False

    def succeed(self, receipt: CompleteReceipt) -> None:
        """Note that all changes up to a receipt are complete."""
        self.committed = receipt

    def put_back(self, changes: Changes) -> None:
        """Return changes after a failed write. They become part of the next commit, with all changes staged since."""
        # Merged in order: later changes may settle or drop content of the failed commit.
        for later in (*self._full, self._next):
            changes.absorb(later)
        self._next = changes
        self._full.clear()
        self._taken, self._failed = None, True
        # No commit under way needs the messages of dropped queues any more.
        for batch in changes.discarded:
            batch.messages = None

    def request_again(self) -> None:
        """Request a commit of the changes put back by :meth:`put_back`.

        If all of these changes were already written to free room, the commit is empty. Its completion still notifies
        the waiting callers.
        """
        self._requested = True

    def close_batch(self, batch: Batch) -> None:
        """Begin a new batch for the queue's next messages."""
        if self._growing.get(batch.queue_id) is batch:
            del self._growing[batch.queue_id]

    def close_batches(self) -> None:
        """Begin new batches for the next messages of all queues, in a new segment."""
        self._growing.clear()


def _is_much(changes: Changes, octets: int) -> bool:
    """Return True if a commit should take no more changes.

    The limit is ``octets`` of bodies, or less if small bodies have to be copied together.
    """
    count = changes.count
    if octets > COPIED_BYTES and changes.octets < GATHER * count:
        octets = COPIED_BYTES
    return changes.octets >= octets or count >= COMMIT_MESSAGES or len(changes.definitions) >= COMMIT_DEFINITIONS
