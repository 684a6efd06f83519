"""A copy of a home's log on disk: segments under ``log/``, byte for byte as the leader wrote them, and ``replica``.

``replica`` is a line of JSON and a line with its CRC-32: the identity of the log, the identity of this disk, the
highest promised epoch, and the last noted complete position (R6, R7). It is replaced as a whole, and synced.

Opening a copy repairs its end (R9). Octets behind the last whole commit are cut off. Octets behind the mark are written
again and synced, because the page cache may have octets that a failed sync has not written. A log that ends before its
own mark has lost complete commits: the disk then takes a new identity, which is in no set.

Methods block for the disk; :mod:`~jumpmq.nodes.replicas.disk_thread` calls them.
"""

import secrets
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from jumpmq.replication.lineage import (
    Lineage,
    Stretch,
    before,
    cut_to,
    end_of,
    grown_to,
    offset_at,
    position_at,
    segment_at,
)
from jumpmq.store import checked_file
from jumpmq.store.commits import ZEROED_COMMITS, ZEROS
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.lineage import ReadLineage, read_lineage
from jumpmq.store.lock import DirectoryLock
from jumpmq.store.log import ALLOCATION, DIRECTORY, file_name, read_whole
from jumpmq.store.records import OPENING_SIZE, Opening
from jumpmq.store.scan import OpenSegment

NOTE = "replica"
"""Name of the file with promise and mark."""

DAMAGED_SUFFIX = ".damaged"
"""Suffix of the name of a segment's file with a damaged opening: no part of it can be used."""

REWRITTEN = 1 << 20
"""Octets rewritten at once."""


class DamagedCopy(StoreError):
    """Complete data of a copy is damaged.

    Attributes:
        hides: True if the damage hides the ends of segments, so that the log cannot be compared with other copies'.
    """

    def __init__(self, reason: str, hides: bool) -> None:
        super().__init__(reason)
        self.hides = hides


@dataclass(frozen=True)
class Noted:
    """Content of ``replica``.

    Attributes:
        log: identity of the home's log.
        disk: identity of this disk.
        epoch: highest promised epoch.
        mark: position up to which everything is complete.
        kept: position from which on the log is sufficient. Members with a shorter log need the files of this copy, for
            example a stream's files that were not written through the log.
        known: JSON text of the last known configuration, in case etcd loses it; empty for none.
    """

    log: str
    disk: str
    epoch: int = 0
    mark: int = 0
    kept: int = 0
    known: str = ""

    def encode(self) -> bytes:
        return checked_file.encoded(asdict(self))

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        """Parse the content of ``replica``.

        Raises:
            ValueError: the content was not made by :meth:`encode`.
        """
        value = checked_file.decoded(octets)
        numbers = int(value["epoch"]), int(value["mark"]), int(value.get("kept", 0))
        return cls(str(value["log"]), str(value["disk"]), *numbers, str(value.get("known", "")))


class CopyDirectory:
    """A copy, locked from creation to :meth:`close`. A missing directory is created.

    Args:
        directory: directory with the layout of a home's.
        log: identity of the home's log.
        files: the file calls to use.
        damaged: True to open a copy in spite of damaged complete data, because the home has no better copy. The damage
            stays in the log, and is reported by the home's store.

    Attributes:
        noted: content of ``replica``.
        lineage: lineage of the written log.
        renewed: True if the disk took a new identity, after a loss of complete commits.
        next_number: number of the next commit at the end of the log, as of the opening or the last truncation; None if
            unknown.
        damage: the first damaged complete part of the log; empty without damage.

    Raises:
        DamagedCopy: a complete part of the log is damaged, behind the first octet that the copy could ship.
        StoreError: the directory is in use, of another log, or cannot be read or written; the text says what to do.
    """

    def __init__(self, directory: Path, log: str, files: Files | None = None, *, damaged: bool = False) -> None:
        self.directory = directory
        self.renewed = False
        self.damage = ""
        self._files = files or Files()
        self._segment: tuple[int, int] | None = None  # number and descriptor of the current segment's file
        self._allocated = self._zeroed = 0  # allocated octets of that file, and those of them written as zeros
        self._unsynced = False  # True if octets were written since the last sync
        self._lock: DirectoryLock | None = DirectoryLock(directory)
        try:
            self.noted = self._read_note(log)
            (directory / DIRECTORY).mkdir(mode=0o700, exist_ok=True)
            self.lineage = self._settled(damaged)
            # R7: the disk has lost complete commits, and must not count as one of the set or the eligible.
            if self.end < self.noted.mark and self.kept < self.noted.mark:
                self.renew()
            self.next_number = self.next_commit() if self.lineage else None
        except OSError as error:
            self.close()
            raise StoreError(f"cannot open the copy in {directory}: {error.strerror}; correct the cause") from error
        except BaseException:
            self.close()
            raise

    # --- what it has ---

    @property
    def end(self) -> int:
        """End of the log."""
        return end_of(self.lineage)

    @property
    def kept(self) -> int:
        """Position after the last gap of the log; the copy can ship the log from here on.

        A copy made from files may lack the last segments, if its index had all of them. The position is then the mark.
        """
        mark = self.noted.mark
        if mark > self.end and mark == before(segment_at(mark) + 1):
            return mark
        if not self.lineage:
            return self.noted.kept
        first = self.lineage[-1].segment
        numbers = {stretch.segment for stretch in self.lineage}
        while first - 1 in numbers:
            first -= 1
        return max(before(first), self.noted.kept)

    @property
    def lock(self) -> DirectoryLock | None:
        """Lock of the directory; None once the directory was handed over or closed."""
        return self._lock

    def next_commit(self) -> int:
        """Return the number of the next commit in the log."""
        if not self.lineage:
            return 1
        last = self.lineage[-1]
        with closing(OpenSegment(self._files, self.path(last.segment))) as file:
            assert file.opening is not None
            numbers = [found.number for found in file.commits() if found.end <= last.end]
            return numbers[-1] + 1 if numbers else file.opening.first_commit

    def path(self, segment: int) -> Path:
        return self.directory / DIRECTORY / file_name(segment)

    # --- promise, mark, identity ---

    def note(self, epoch: int, mark: int) -> None:
        """Sync a promise and a mark; neither ever decreases."""
        self._write_note(replace(self.noted, epoch=max(epoch, self.noted.epoch), mark=max(mark, self.noted.mark)))

    def know(self, configuration: str) -> None:
        """Sync the last known configuration of the home."""
        self._write_note(replace(self.noted, known=configuration))

    def renew(self) -> None:
        """Take a new identity, which is in no set: the octets on this disk no longer count as stored."""
        self.renewed = True
        self._write_note(replace(self.noted, disk=secrets.token_hex(8), mark=0, kept=0))

    def _read_note(self, log: str) -> Noted:
        path = self.directory / NOTE
        try:
            noted = Noted.decode(path.read_bytes())
        except FileNotFoundError:  # the copy is new, or the home had no copies so far
            noted = Noted(log, secrets.token_hex(8))
            self._write_note(noted)
            return noted
        # No default is safe here: a forgotten promise would let this replica answer a deposed leader (R6).
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{path} is damaged ({error}): what this copy promised is unknown; move {self.directory} away, and the"
                " home is copied again"
            ) from error
        if noted.log != log:
            raise StoreError(f"{self.directory} is a copy of another home's log: {noted.log}, not {log}; move it away")
        return noted

    def _write_note(self, noted: Noted) -> None:
        checked_file.replace(self.directory / NOTE, noted.encode(), self._files)
        self.noted = noted

    # --- opening ---

    def _settled(self, damaged: bool) -> Lineage:
        """Truncate the log behind its last whole commit, and sync it; return the lineage."""
        mark = self.noted.mark
        read = read_lineage(self.directory, mark, self._files)
        if read.damaged:
            at = read.damaged[0]
            self.damage = f"{self.path(segment_at(at))} is damaged at octet {offset_at(at)}, in what was complete"
            # A copy made from files has the damage of the leader's files, before its part that can be shipped.
            if not damaged and read.damaged[-1] >= self.noted.kept:
                remedy = "the copy is replaced when the home has others to spare"
                raise DamagedCopy(f"{self.damage}; {remedy}", any(one >= self.noted.kept for one in read.hidden))
        ends = {file_name(stretch.segment): stretch for stretch in read.lineage}
        for path in sorted((self.directory / DIRECTORY).glob("*.log")):
            stretch = ends.pop(path.name, None)
            if stretch is None:
                self._remove_unused(path, read)
            elif stretch.segment >= segment_at(mark) or self._has_surplus(path, stretch):
                self._rewrite(path, stretch, mark)
        # The name of a segment's file decides its place; a renamed file would leave a gap in the log.
        if ends:
            raise StoreError(f"{next(iter(ends))} is under another name in {self.directory / DIRECTORY}; rename it")
        self._files.sync_directory(self.directory / DIRECTORY)
        last = read.lineage[-1].segment if read.lineage else 0
        if gaps := [segment_at(one) for one in read.hidden if segment_at(one) < last]:  # members need files
            self._write_note(replace(self.noted, kept=max(self.noted.kept, before(gaps[-1] + 1))))
        return read.lineage

    def _remove_unused(self, path: Path, read: ReadLineage) -> None:
        """Remove a file without commits. A file with a damaged opening gets another name."""
        if path.stem.isdigit() and position_at(int(path.stem), 0) in read.hidden:
            path.rename(path.with_name(f"{path.name}{DAMAGED_SUFFIX}"))
        else:
            self._files.remove(path)

    def _has_surplus(self, path: Path, stretch: Stretch) -> bool:
        """Return True if a file has octets behind the segment's end. In a damaged copy these may be data, and stay."""
        return not self.damage and path.stat().st_size != stretch.end

    def _rewrite(self, path: Path, stretch: Stretch, mark: int) -> None:
        """Truncate a segment at its end, rewrite the octets behind the mark, and sync."""
        begin = offset_at(mark) if stretch.segment == segment_at(mark) else 0
        if stretch.segment < segment_at(mark):
            begin = stretch.end
        file = self._files.open(path)
        try:
            self._files.truncate(file, stretch.end)
            for offset in range(begin, stretch.end, REWRITTEN):
                octets = read_whole(file, min(REWRITTEN, stretch.end - offset), offset)
                self._files.write(file, offset, [octets])
            self._files.sync(file)
        finally:
            self._files.close(file)

    # --- writing ---

    def begin(self, epoch: int) -> Stretch:
        """Begin a segment of an own epoch at the log's end, and sync it."""
        number = self.lineage[-1].segment + 1 if self.lineage else 1
        opening = Opening(number, self.next_commit(), secrets.randbits(32), epoch)
        stretch = Stretch(number, epoch, opening.salt, 0)
        self.open_segment(stretch)
        self.append(position_at(number, 0), opening.encode())
        self.sync()
        return stretch._replace(end=OPENING_SIZE)

    def open_segment(self, stretch: Stretch) -> None:
        """Create an empty file for a segment begun by the leader; the segment begins with a shipped opening."""
        self.sync()
        self._release()
        # The earlier segment is synced and closed by now: a segment implies that everything before it is stored.
        file = self._files.create(self.path(stretch.segment))
        self._segment = stretch.segment, file
        self._allocated = self._zeroed = 0
        self._unsynced = True
        self._files.sync_directory(self.directory / DIRECTORY)
        self.lineage = (*self.lineage, stretch._replace(end=0))

    def append(self, position: int, octets: bytes) -> None:
        """Write octets at the end."""
        assert position == self.end, "a copy grows at its end"
        segment = segment_at(position)
        if self._segment is None or self._segment[0] != segment:
            self._release()
            self._segment = segment, self._files.open(self.path(segment))
            self._allocated = self._zeroed = offset_at(position)
        self._unsynced = True
        self._write(self._segment[1], offset_at(position), octets)
        self.lineage = grown_to(self.lineage, position + len(octets))

    def place(self, octets: Sequence[bytes]) -> tuple[int, int, list[bytes]] | None:
        """Reserve room for octets at the log's end, within the segment's allocated room. The caller writes and syncs
        the octets.

        Returns:
            The file, the offset, and the octets to write; None without sufficient room: :meth:`append` has to be used.
        """
        if self._segment is None or type(self._files) is not Files:
            return None
        (segment, file), last = self._segment, self.lineage[-1]
        end = last.end + sum(map(len, octets))
        if segment != last.segment or end > self._zeroed:
            return None
        self.lineage = grown_to(self.lineage, position_at(segment, end))
        return file, last.end, [*octets]

    def _write(self, file: int, offset: int, octets: bytes) -> None:
        """Write octets into room allocated in advance, because a sync is slower if the file has grown."""
        end = offset + len(octets)
        if end > self._allocated:
            room = -(-(end - self._allocated) // ALLOCATION) * ALLOCATION
            self._files.allocate(file, self._allocated, room)
            self._allocated += room
        buffers = [octets]
        if end > self._zeroed and len(octets) < ZEROS // ZEROED_COMMITS:
            # Zeros behind the end make later writes overwrite written blocks, without a change of the file's extents.
            buffers.append(bytes(min(ZEROS, self._allocated - end)))
            self._zeroed = end + len(buffers[-1])
        self._files.write(file, offset, buffers)

    def sync(self) -> None:
        """Sync the octets written so far."""
        if self._unsynced:
            assert self._segment is not None
            self._files.sync(self._segment[1])
            self._unsynced = False

    def cut(self, position: int) -> None:
        """Truncate the log at a position, synced. The last file is removed first: after a crash the log is shorter,
        without a gap.
        """
        self.sync()
        self._release()
        lineage = cut_to(self.lineage, position)
        kept = {stretch.segment for stretch in lineage}
        for stretch in reversed(self.lineage):
            if stretch.segment not in kept:
                self._files.remove(self.path(stretch.segment))
        self._files.sync_directory(self.directory / DIRECTORY)
        if lineage:
            self._rewrite(self.path(lineage[-1].segment), lineage[-1], position)
        self.lineage = lineage
        self.next_number = self.next_commit() if lineage else None

    def remove(self, segments: Collection[int]) -> None:
        """Remove consumed segments, by the copy's index, in ascending order."""
        assert max(segments) < segment_at(self.noted.mark), "only what is complete is consumed"
        for segment in sorted(segments):
            self._files.remove(self.path(segment))
        self.lineage = tuple(stretch for stretch in self.lineage if stretch.segment not in segments)

    # --- the end ---

    def release(self) -> None:
        """Hand the directory over to a store. Only :meth:`note` may be called afterwards."""
        self.sync()
        self._release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def close(self) -> None:
        """Close all files without a sync: the next opening truncates and rewrites the unsynced end."""
        self._release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _release(self) -> None:
        if self._segment is not None:
            segment, file = self._segment
            end = next((one.end for one in self.lineage if one.segment == segment), self._allocated)
            if end < self._allocated:
                self._files.truncate(file, end)
            self._files.close(file)
            self._segment = None
