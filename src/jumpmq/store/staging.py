"""Staged changes: gathered across event-loop iterations, until taken by a commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import Batch
from jumpmq.store.changes import Changes, Definitions, json_text
from jumpmq.store.completion import NO_RECEIPT, CompleteReceipt
from jumpmq.store.layout import body_octets
from jumpmq.store.records import GATHER
from jumpmq.store.upkeep import Moves

if TYPE_CHECKING:
    from jumpmq.store.stream_import import ImportedChunk
    from jumpmq.store.stream_log import StreamLog

COMMIT_BYTES = 8 << 20
"""Octets of bodies after which changes go into a further commit: more would hold up the broker's thread."""

LARGE_BODY = 64 << 10
"""Octets of a body, on average, from which on the broker's thread has next to nothing to do for a commit."""

LARGE_COMMIT_FACTOR = 4
"""Factor by which a large commit may exceed the limit: the disk takes 32 MB at once 1.5 times as fast
as four times 8.
"""

COMMIT_MESSAGES = 1 << 15
"""Number of messages after which changes go into a new commit."""

COMMIT_DEFINITIONS = 1 << 12
"""Changes of definitions after which changes go into a further commit."""

LINGER_BYTES = 32 << 20
"""Octets of bodies up to which turns without confirms are put off, unless told otherwise."""

COPIED_BYTES = 16 << 20
"""Octets of small bodies after which changes go into a further commit: the broker's thread copies small bodies side by
side.
"""

SPILLED = 1 << 62
"""From here on the numbers of queues are made up, for messages that are here only for want of memory."""


class Staging:
    """Changes staged and settled by the broker's thread, not yet on disk by a commit.

    A turn's changes belong together. When it ends they join those of the turns before it, which the next commit takes
    (:meth:`take`); where these are many, they are sealed, and the turns that follow go into another commit. One commit
    is taken at a time, and is written (:meth:`written`) or comes back (:meth:`put_back`) before the next is taken.

    Attributes:
        committed: last complete receipt; all lower receipts are complete, too.

    Args:
        noted: what was settled and belongs to no turn yet, as (batch, first, last): batches append to it themselves.
        commit_bytes: octets of bodies after which turns go into another commit.
        linger_bytes: the same where no publisher waits for it.
    """

    def __init__(self, noted: list[tuple[Batch, int, int]], *, commit_bytes: int, linger_bytes: int) -> None:
        self.committed = NO_RECEIPT
        self._noted = noted
        self._note = noted.append  # one bound method shared by all batches
        self._commit_bytes = commit_bytes
        self._linger_bytes = linger_bytes
        self._turn = Changes(0)  # of the turn that is under way
        self._next = Changes(1)  # of turns that have ended
        self._sealed: deque[Changes] = deque()  # of turns before these, each as much as a commit should hold
        self._taken: Changes | None = None  # what is being written
        self._stored: deque[Changes] = deque()  # what is on disk, and not complete
        self._growing: dict[int, Batch] = {}  # the batch that takes a queue's next messages, by the queue's number
        self._next_spill = SPILLED  # the number last made up
        self._moves: Moves = []  # blocks to be moved once the current turn has ended
        self._requested = False  # whether the next commit is to begin as soon as it can
        self._held = 0  # how many say that what belongs together is not all staged
        self._failed = False  # whether the last commit came back: all that follows goes into the same one, then

    # --- what there is ---

    @property
    def staged_bytes(self) -> int:
        """Octets of messages that are staged or being written, and not yet on disk."""
        waiting = self._turn.octets + self._next.octets
        for changes in self._sealed:
            waiting += changes.octets
        for changes in self._stored:
            waiting += changes.octets
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
        return bool(self._turn or self._next or self._sealed or self._noted)

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
        """All changes that are not complete, in order, but those of the commit that is being noted."""
        taken = () if self._taken is None else (self._taken,)
        return (*self._stored, *taken, *self._sealed, self._next, self._turn)

    # --- a turn ---

    def put(self, kind: str, key: str, value: Any) -> None:
        """Stage a definition, new or changed; the value is taken as it is now.

        Raises:
            TypeError, ValueError: JSON cannot hold the value, or UTF-8 the key.
        """
        key.encode()
        self._turn.definitions.put[kind, key] = json_text(value)

    def put_text(self, kind: str, key: str, value: str) -> None:
        """As :meth:`put`, with a value already in JSON text."""
        self._turn.definitions.put[kind, key] = value

    def delete(self, kind: str, key: str) -> None:
        """Stage the removal of a definition; a missing definition is no error."""
        self._turn.definitions.delete((kind, key))

    def change(self, definitions: Definitions) -> None:
        """Stage many prepared changes of definitions; the store owns the object from then on."""
        self._turn.definitions.absorb(definitions)

    def append(self, queue_id: int, messages: list[Message]) -> None:
        """Stage messages, by ascending ``seq``, at the end of a queue; sets their ``batch``.

        A message's slots that the log holds (all but ``redelivered`` and what the broker hangs on) must not change from
        here on.
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
        """Stage messages at the end of a stream. They must not change from here on."""
        self._turn.stream(log, messages, body_octets(messages))

    def import_chunks(self, log: StreamLog, chunks: list[ImportedChunk]) -> None:
        """Stage chunks of another home at the end of a stream."""
        self._turn.import_chunks(log, chunks)

    def spill(self, messages: list[Message]) -> None:
        """As :meth:`append`, for transient messages: readable by the current process, dropped at a start.

        They need not follow what was spilled before.
        """
        self._next_spill += 1
        self.append(self._next_spill, messages)

    def drop_queue(self, queue_id: int) -> None:
        """Stage the removal of a queue's or stream's content. The id is not used again, the batches may still be
        settled."""
        self._growing.pop(queue_id, None)
        self._turn.drop(queue_id)

    def when_complete(self, act: Callable[[], None]) -> None:
        """Stage a call, made when the commit of this unit of work is complete; a crash before leaves it out."""
        self._turn.gone.append(act)

    def drop_spilled(self, queue_ids: list[int]) -> None:
        """Stage the removal of messages spilled by an earlier process."""
        for queue_id in queue_ids:
            self._next_spill = max(self._next_spill, queue_id)
            self.drop_queue(queue_id)

    def part(self) -> None:
        """Separate changes staged from now on from earlier settlements, and later settlements from earlier staged
        changes, as of different units of work, though both end with the next flush."""
        self._settle_noted()
        self._turn.parted = self._turn.count

    def hold(self) -> None:
        """Collect all changes from now on in a single commit, across event-loop iterations, begun after
        :meth:`release`."""
        self._held += 1

    def release(self) -> None:
        """End the collection of changes begun by :meth:`hold`."""
        self.end_turn()
        self._held -= 1

    def move(self, moves: Moves) -> None:
        """Stage the rewriting of remaining parts of batches, together with all settlements made before the read: during
        a unit of work, at its end."""
        self._moves = moves
        if not (self._turn or self._noted):
            self._stage_moves()

    def end_turn(self) -> None:
        """Put the changes staged and settled up to now into a single commit, the commit of earlier units of work if
        room remains.
        """
        self._settle_noted()
        turn = self._turn
        if turn:
            turn.receipt = self._next.receipt
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
            waits = self._failed or self._held
            if not waits and _is_much(self._next, self._most_octets()):
                self._sealed.append(self._next)
                self._next = Changes(self._next.receipt + 1)
        if self._moves:
            self._stage_moves()

    def request(self, *, settlements: bool, waiting: bool) -> int:
        """End a turn, and ask for a commit.

        Args:
            settlements: whether a commit is worth while if there is nothing but settlements to write.
            waiting: True if a caller waits for the commit; otherwise the commit is delayed until worthwhile.

        Returns:
            The receipt that covers all that is staged; an earlier one where nothing is.
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
        """Forget unwritten content of dropped queues, except content of earlier commits: needed after a crash between
        such a commit and the drop."""
        for queue_id in turn.dropped:
            self._next.discard(queue_id)
        earlier = [changes.staged for changes in self._sealed]
        if self._taken is not None:
            earlier.append(self._taken.staged)
        for batch in turn.discarded | self._next.discarded:
            if batch.messages is not None:
                batch.messages = batch.messages[: sum(staged.get(batch, 0) for staged in earlier)] or None

    def _stage_moves(self) -> None:
        _, dropped = self.pending()  # the log says so of these queues: nothing of them follows there
        for batch, messages in self._moves:
            if batch.remaining and batch.positions and batch.queue_id not in dropped:
                self._next.moved[batch] = messages
        self._moves = []
        self._requested = bool(self._next.moved) or self._requested

    # --- a commit ---

    @property
    def wanted(self) -> bool:
        """True if :meth:`take` has work: a commit was requested, and is not held."""
        return bool(self._sealed) or (self._requested and not self._held)

    def take(self) -> Changes | None:
        """Hand over what the next commit is to hold; None where none is wanted."""
        if self._sealed:
            self._taken = self._sealed.popleft()
        elif self._requested and not self._held:
            self._taken = self._take_next()
        else:
            return None
        return self._taken

    def take_sealed(self) -> Changes | None:
        """As :meth:`take`, where a commit is full."""
        return self.take() if self._sealed else None

    def take_last(self) -> Changes:
        """Hand over all staged changes for the last commit."""
        self._taken = self._take_next()
        return self._taken

    def take_relief(self) -> Changes | None:
        """Hand over changes that free room on a full disk, independent of all other staged changes; None without any.
        The changes have no separate receipt."""
        if relief := self._next.without_staged():
            self._taken = relief
            return relief
        return None

    def _take_next(self) -> Changes:
        changes, self._next = self._next, Changes(self._next.receipt + 1)
        self._requested = False
        return changes

    def written(self) -> None:
        """Forget the changes taken last: complete, about to be noted, and no longer pending."""
        self._taken = None

    def stored(self) -> None:
        """Keep the changes taken last until :meth:`forget_stored`: on disk, but not complete."""
        assert self._taken is not None
        self._stored.append(self._taken)
        self._taken = None

    def forget_stored(self) -> None:
        """Forget the oldest stored changes: complete, about to be noted, and no longer pending."""
        self._stored.popleft()

    def recover(self) -> None:
        """The changes taken last are on disk, with all changes of a failed commit before."""
        self._failed = False

    def succeed(self, receipt: CompleteReceipt) -> None:
        """All changes up to a receipt are complete."""
        self.committed = receipt

    def put_back(self, changes: Changes) -> None:
        """Return changes after a failed write: part of the next commit, with all changes staged since."""
        for later in (*self._sealed, self._next):
            changes.absorb(later)
        self._next = changes
        self._sealed.clear()
        self._taken, self._failed = None, True
        for batch in changes.discarded:
            batch.messages = None

    def request_again(self) -> None:
        """Request a commit of the returned changes; if all changes went ahead to free room, the commit is empty, and
        notifies waiters."""
        self._requested = True

    def close_batch(self, batch: Batch) -> None:
        """Put the queue's next messages into a new batch."""
        if self._growing.get(batch.queue_id) is batch:
            del self._growing[batch.queue_id]

    def close_batches(self) -> None:
        """Put the next messages of all queues into new batches: in a new segment."""
        self._growing.clear()


def _is_much(changes: Changes, octets: int) -> bool:
    """Return True if a commit should take no more: ``octets`` of bodies, or fewer if bodies have to be
    copied together.
    """
    count = changes.count
    if octets > COPIED_BYTES and changes.octets < GATHER * count:
        octets = COPIED_BYTES
    return changes.octets >= octets or count >= COMMIT_MESSAGES or len(changes.definitions) >= COMMIT_DEFINITIONS
