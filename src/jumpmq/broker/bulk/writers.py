"""Writers with retries: the broker records the published rows of each writer, so that a retry publishes no row twice.

A *writer* belongs to a user and a virtual host; users have separate writers of the same name. A writer may publish in
several *parts* at once. Each part publishes the rows of numbered *batches*, a chunk of rows at a time. After a failure
a part asks for its progress, and continues after the published rows. The commit of a chunk also stores the part's
progress, with a digest of all rows of the batch so far. By the digest the writer checks that a retry has the same rows.

A retry may divide the rows of a batch into other parts. So an *attempt* *begins* a batch, and gets the rows published
by earlier attempts; from then on, chunks of earlier attempts are refused. When the batch is *complete*, all its chunks
are refused.

A writer that was *opened* can be closed for good: later chunks that require an open writer are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.broker.security.accounts import Principal
from jumpmq.store.kinds import WRITER
from jumpmq.topology import Change, ChangePrincipal, DeleteUser, DeleteVirtualHost

if TYPE_CHECKING:
    from jumpmq.store import Store

REMEMBERED = 30 * 86400
"""Seconds after which an unused part is deleted, at a start of the broker or when the user has too many parts."""

MAX_PLACES = 50_000
"""Maximum number of parts of all writers of a user: some 20 MB of memory."""

MAX_BATCH = (1 << 53) - 1
"""The highest number of a batch: JSON represents higher numbers inexactly."""

WHOLE = ""
"""Part of a writer that publishes in one part, also the record of an open writer."""

ATTEMPT = "\0attempt"
"""Part that records the attempt of a begun batch and, as digest, the batch's origin. For a complete batch it has rows:
:data:`COMPLETE` more than the batch, or one if an earlier version has completed the batch."""

COMPLETE = 2
"""Rows of :data:`ATTEMPT` for a complete batch without rows."""

ANOTHER_TARGET = (
    "is complete, and its rows went to another exchange or queue: the broker would skip these rows, and they would be "
    "lost. Give each write its own name (option 'txnAppId')"
)

NUMBERED_ANEW = (
    "the broker skips the rows of a published number. A query whose checkpoint was deleted numbers its batches from 0 "
    "again, and would lose rows. Give the writer another name (option 'txnAppId'), or use the old checkpoint"
)

Owner = str | tuple[str, ...]
"""A user's name; for a user with a token ``("token", NAME)``, distinct from a stored user of that name."""


class WriterId(NamedTuple):
    """Identity of a writer."""

    vhost: str
    name: str
    owner: Owner

    @classmethod
    def of(cls, vhost: str, name: str, user: Principal) -> WriterId:
        """Return the identity of a user's writer."""
        return cls(vhost, name, ("token", user.name) if user.granted is not None else user.name)

    def key(self, part: str) -> str:
        """Return the storage key of a part's progress."""
        return json.dumps([self.vhost, self.name, part, self.owner])


class WriterPlace(NamedTuple):
    """Progress of a part: number of rows of a batch, and their digest; no batch if nothing was published.

    Attributes:
        attempt: the attempt that has published the rows; empty without attempts.
    """

    batch: int | None = None
    rows: int = 0
    digest: str = ""
    attempt: str = ""


@dataclass(frozen=True)
class BatchRows:
    """Some rows of a batch.

    Attributes:
        writer, part: the publishing part.
        first: number of rows of the batch before this chunk.
        place: progress of the part after the chunk is published.
        opened: True if the writer must be open.
    """

    writer: WriterId
    part: str
    first: int
    place: WriterPlace
    opened: bool = False


class Writers:
    """Recorded progress of writers."""

    def __init__(self) -> None:
        self._store: Store | None = None
        # Progress of each writer by part, with the time of its record, in seconds since the epoch.
        self._places: dict[WriterId, dict[str, tuple[float, WriterPlace]]] = {}
        # Number of parts of each user.
        self._counts: Counter[Owner] = Counter()
        # Progress recorded by an earlier version by virtual host and name, without a user: only read.
        self._unowned: dict[tuple[str, str], WriterPlace] = {}
        # Lock held while a part publishes, and the number of its holders and waiters.
        self._publishing: dict[tuple[WriterId, str], tuple[asyncio.Lock, int]] = {}

    def restore(self, definitions: list[tuple[str, str, Any]], store: Store) -> None:
        """Restore the progress from the store.

        Args:
            definitions: all stored definitions, as (kind, key, value).
        """
        self._store = store
        for kind, key, (written_at, *place) in (one for one in definitions if one[0] == WRITER):
            if time.time() - written_at >= REMEMBERED:
                store.delete(kind, key)
                continue
            vhost, name, *owned = json.loads(key)
            if owned:
                part, owner = owned
                writer = WriterId(vhost, name, owner if isinstance(owner, str) else tuple(owner))
                self._put(writer, part, written_at, WriterPlace(*place))
            else:
                self._unowned[vhost, name] = WriterPlace(*place)

    def follow(self, change: Change, principal: ChangePrincipal) -> None:
        """Delete the writers of a deleted user or virtual host: a new one of the same name begins without writers."""
        match change:
            case DeleteVirtualHost(name):
                for writer in [writer for writer in self._places if writer.vhost == name]:
                    self.forget(writer)
                for vhost, unowned in [key for key in self._unowned if key[0] == name]:
                    self._forget_unowned(vhost, unowned)
            case DeleteUser(name):
                for writer in [writer for writer in self._places if writer.owner == name]:
                    self.forget(writer)

    def place(self, writer: WriterId, part: str) -> WriterPlace:
        """Return the progress of a part."""
        found = self._places.get(writer, {}).get(part)
        if found is not None:
            return found[1]
        return self._unowned.get((writer.vhost, f"{writer.name} {part}" if part else writer.name), WriterPlace())

    @contextlib.asynccontextmanager
    async def publishing(self, chunk: BatchRows) -> AsyncIterator[None]:
        """Serialize the checks, publishes and records of a part's chunks, also of retries and of abandoned requests
        that still run."""
        key = chunk.writer, chunk.part
        lock, waiting = self._publishing.get(key, (asyncio.Lock(), 0))
        self._publishing[key] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            waiting = self._publishing[key][1] - 1
            if waiting:
                self._publishing[key] = lock, waiting
            else:
                del self._publishing[key]

    def has_published(self, chunk: BatchRows) -> bool:
        """Return True if exactly the given chunk is published already, for example if the answer was lost.

        Raises:
            PreconditionFailed: the chunk does not follow the published rows, its writer is no longer open, another
                attempt has begun the batch, or the user has too many parts.
        """
        if chunk.place.attempt:
            self._require_begun(chunk)
        if chunk.opened and WHOLE not in self._places.get(chunk.writer, {}):
            raise PreconditionFailed(
                f"writer '{chunk.writer.name}' of this user is not open: it was closed, or never opened"
            )
        known = self.place(chunk.writer, chunk.part)
        # The attempt does not count: another attempt publishes the same rows again.
        if known[:3] == chunk.place[:3]:
            return True
        reached = known.rows if known.batch == chunk.place.batch else 0
        if chunk.first != reached or (known.batch is not None and known.batch > (chunk.place.batch or 0)):
            raise PreconditionFailed(f"batch {chunk.place.batch} has {reached} published rows, not {chunk.first}")
        self._require_room(chunk.writer, chunk.part)
        return False

    def note(self, chunk: BatchRows) -> None:
        """Record the chunk as published, within the publishing event-loop iteration."""
        self._note(chunk.writer, chunk.part, chunk.place)

    def is_known(self, chunk: BatchRows) -> bool:
        """Return True if the chunk was recorded by its own attempt."""
        return self.place(chunk.writer, chunk.part) == chunk.place

    def begin(self, writer: WriterId, batch: int, attempt: str, origin: str = "") -> bool:
        """Begin a batch, possibly again; return False if the batch is complete.

        Args:
            origin: source of the batch numbers, such as a streaming query, and after a space the target of the rows;
                an unknown source or target is empty.

        Raises:
            PreconditionFailed: a later batch was begun, or another query has begun this batch: the numbers have begun
                again from 0, with other rows. Or the batch is complete, and its rows went to another target. Or the
                user has too many parts.
        """
        query, _, target = origin.partition(" ")
        known = self.place(writer, ATTEMPT)
        if known.batch is not None and known.batch > batch:
            raise PreconditionFailed(
                f"batch {batch} of writer '{writer.name}' comes behind batch {known.batch}: {NUMBERED_ANEW}"
            )
        if known.batch == batch:
            begun_by, _, went_to = known.digest.partition(" ")
            if query and begun_by not in ("", query):
                raise PreconditionFailed(
                    f"batch {batch} of writer '{writer.name}' was begun by another query: {NUMBERED_ANEW}"
                )
            if known.rows:
                if target and went_to not in ("", target):
                    raise PreconditionFailed(f"batch {batch} of writer '{writer.name}' {ANOTHER_TARGET}")
                return False
        if (known.batch, known.attempt) != (batch, attempt):
            self._require_room(writer, ATTEMPT)
            self._note(writer, ATTEMPT, WriterPlace(batch, 0, origin, attempt))
        return True

    def begun(self, writer: WriterId, batch: int) -> tuple[str, dict[str, WriterPlace]]:
        """Return the attempt of a batch, empty if not begun, and the published rows by part."""
        known = self.place(writer, ATTEMPT)
        parts = {part: place for part, (_, place) in self._places.get(writer, {}).items() if place.batch == batch}
        parts.pop(ATTEMPT, None)
        return known.attempt if known.batch == batch else "", parts

    def rows_of_complete(self, writer: WriterId, batch: int) -> int | None:
        """Return the number of rows of a complete batch; None if unknown, or not complete."""
        known = self.place(writer, ATTEMPT)
        return known.rows - COMPLETE if known.batch == batch and known.rows >= COMPLETE else None

    def complete(self, writer: WriterId, batch: int) -> None:
        """Complete a batch: no further row of the batch is published. Of its parts, only the sum of rows is kept."""
        known = self.place(writer, ATTEMPT)
        if known.batch == batch and not known.rows:
            rows = sum(place.rows for place in self.begun(writer, batch)[1].values())
            self._note(writer, ATTEMPT, known._replace(rows=COMPLETE + rows))
            for part in [part for part in self._places[writer] if part not in (ATTEMPT, WHOLE)]:
                del self._places[writer][part]
                self._counts[writer.owner] -= 1
                self._delete(writer.key(part))

    def _require_begun(self, chunk: BatchRows) -> None:
        known, place = self.place(chunk.writer, ATTEMPT), chunk.place
        if (known.batch, known.rows, known.attempt) != (place.batch, 0, place.attempt):
            raise PreconditionFailed(
                f"batch {place.batch} of writer '{chunk.writer.name}' is complete, or another attempt has begun it"
            )

    def open(self, writer: WriterId) -> None:
        """Record a writer as open, unless already open.

        Raises:
            PreconditionFailed: the user has too many parts.
        """
        if WHOLE not in self._places.get(writer, {}):
            self._require_room(writer, WHOLE)
            self._note(writer, WHOLE, WriterPlace())

    def forget(self, writer: WriterId, *, also_unowned: bool = False) -> None:
        """Delete a writer with all its parts, and close the writer.

        Args:
            also_unowned: True to delete an earlier version's record of that name, too.
        """
        for part in self._places.pop(writer, ()):
            self._counts[writer.owner] -= 1
            self._delete(writer.key(part))
        if also_unowned:
            for vhost, name in [key for key in self._unowned if key[0] == writer.vhost]:
                if name == writer.name or name.rpartition(" ")[0] == writer.name:
                    self._forget_unowned(vhost, name)

    def _note(self, writer: WriterId, part: str, place: WriterPlace) -> None:
        now = time.time()
        self._put(writer, part, now, place)
        if self._store is not None:
            self._store.put(WRITER, writer.key(part), [now, *place])

    def _put(self, writer: WriterId, part: str, written_at: float, place: WriterPlace) -> None:
        parts = self._places.setdefault(writer, {})
        self._counts[writer.owner] += part not in parts
        parts[part] = written_at, place

    def _require_room(self, writer: WriterId, part: str) -> None:
        if part in self._places.get(writer, {}) or self._counts[writer.owner] < MAX_PLACES:
            return
        self._forget_old(writer.owner)
        if self._counts[writer.owner] >= MAX_PLACES:
            raise PreconditionFailed(f"the user has {MAX_PLACES} parts of writers: delete finished writers")

    def _forget_old(self, owner: Owner) -> None:
        oldest = time.time() - REMEMBERED
        for writer, parts in list(self._places.items()):
            if writer.owner == owner and all(written_at < oldest for written_at, _ in parts.values()):
                self.forget(writer)

    def _forget_unowned(self, vhost: str, name: str) -> None:
        del self._unowned[vhost, name]
        self._delete(json.dumps([vhost, name]))

    def _delete(self, key: str) -> None:
        if self._store is not None:
            self._store.delete(WRITER, key)
