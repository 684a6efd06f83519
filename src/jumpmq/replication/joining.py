"""Joining by files: a member whose log ends before the leader's log begins gets a copy as files (R11).

The leader pins the segments of a copy, and sends a manifest of the files, each with length and CRC-32. The member
requests pieces, file by file, and writes them beside its old copy. It requests a damaged piece again. If a connection
or process ends, only the piece in flight is lost. When all files are whole, the new copy replaces the old one; until
then, nothing of the old copy is deleted (I13). Then the leader ships its log from the manifest's end on.
"""

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from jumpmq.replication.actions import Alarm, Send
from jumpmq.replication.configuration import ReplicaId
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import File, Manifest, Piece, Want
from jumpmq.replication.lineage import Lineage, end_of

PIECE_OCTETS = 1 << 20
"""Maximum octets of a piece."""

PAGE_ENTRIES = 8192
"""Maximum number of segments, and of files, in a page of a manifest: some 800 kB."""

MOST_DAMAGED = 8
"""Maximum number of consecutive damaged pieces of a file. Then the join is given up: the leader's file is damaged."""


class Put(NamedTuple):
    """Write octets into a file beside the old copy."""

    name: str
    offset: int
    octets: bytes


class Clear(NamedTuple):
    """Remove files beside the old copy without an entry in any manifest, and restart certain files at
    the first octet.
    """

    names: tuple[str, ...]


class Install(NamedTuple):
    """Sync the files, replace the old copy, note the mark; answered by :meth:`Joining.on_installed`."""

    kept: int
    lineage: Lineage


JoinAction = Send | Alarm | Put | Clear | Install


def pages_of(manifest: Manifest) -> list[Manifest]:
    """Return the pages of a manifest, each of which fits into a frame."""
    most = max(len(manifest.lineage), len(manifest.files), 1)
    begins = range(0, most, PAGE_ENTRIES)
    return [
        manifest._replace(
            lineage=manifest.lineage[begin : begin + PAGE_ENTRIES],
            files=manifest.files[begin : begin + PAGE_ENTRIES],
            page=page,
            pages=len(begins),
        )
        for page, begin in enumerate(begins)
    ]


class Pages:
    """Received pages of a manifest. A page that does not follow the previous page begins a new manifest."""

    def __init__(self) -> None:
        self._have: list[Manifest] = []

    def add(self, page: Manifest) -> Manifest | None:
        """Add a page; return the manifest when complete."""
        if page.page == 0:
            self._have = []
        follows = not self._have or (page.epoch, page.kept, page.pages) == self._common
        if page.page != len(self._have) or not follows:
            self._have = []
            return None
        self._have.append(page)
        if len(self._have) < page.pages:
            return None
        have, self._have = self._have, []
        lineage = tuple(stretch for one in have for stretch in one.lineage)
        return Manifest(page.epoch, page.kept, lineage, tuple(file for one in have for file in one.files))

    @property
    def _common(self) -> tuple[int, int, int]:
        first = self._have[0]
        return first.epoch, first.kept, first.pages


class Joining:
    """The member's side of a join.

    Attributes:
        copy: the old copy, which may be empty.
        source: replica that sends the files.
        epoch: epoch promised to the leader.
        manifest: the newest manifest; None before the first.
        have: per file, received octets and their CRC-32; kept across connections, and across manifests with the same
            file.
        damaged: number of consecutive damaged pieces of the current file.
        installed: True once the new copy is in place.
        failed: reason for giving up the join; empty otherwise.
    """

    def __init__(
        self, copy: Copy, source: ReplicaId, epoch: int, have: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        self.copy = copy
        self.source = source
        self.epoch = epoch
        self.manifest: Manifest | None = None
        self.have: dict[str, tuple[int, int]] = dict(have or {})
        self.damaged = 0
        self.installed = False
        self.failed = ""

    def start(self) -> list[JoinAction]:
        """Request a manifest. Called at the start, and on each new connection."""
        return [Send(self.source, Want(self.epoch, "", 0))]

    def on_manifest(self, manifest: Manifest) -> list[JoinAction]:
        """Process the list of files of the leader's copy. Files already present stay unchanged."""
        if manifest.epoch != self.epoch or self.installed or self.failed:
            return []
        if max(end_of(manifest.lineage), manifest.kept) < self.copy.complete:
            return self._fail(f"the files of {self.source} end before what {self.copy.me} knows to be complete")
        names = {file.name: file for file in manifest.files}
        if len(names) != len(manifest.files):
            return self._fail(f"the manifest of {self.source} names a file twice")
        before = {file.name: file for file in self.manifest.files} if self.manifest is not None else names
        stale = tuple(sorted(name for name in self.have if self._is_stale(name, names.get(name), before.get(name))))
        self.have = {name: have for name, have in self.have.items() if name not in stale}
        self.manifest, self.damaged = manifest, 0
        return [*([Clear(stale)] if stale else []), *self._next()]

    def on_piece(self, piece: Piece) -> list[JoinAction]:
        """Process octets of a file. A damaged piece is requested again. A file with a wrong CRC is requested from the
        first octet on.
        """
        file = self._current()
        if file is None or piece.epoch != self.epoch or self.failed:
            return []
        length, crc = self.have.get(file.name, (0, 0))
        if (piece.name, piece.offset) != (file.name, length):
            return []  # an answer from the previous connection
        if not piece.octets:
            return self.start()  # the source has removed the segment: a new manifest lacks it
        if crc32(piece.octets) != piece.crc or length + len(piece.octets) > file.length:
            return self._damaged(file)
        crc = crc32(piece.octets, crc)
        length += len(piece.octets)
        self.have = {**self.have, file.name: (length, crc)}
        steps: list[JoinAction] = [Put(file.name, piece.offset, piece.octets)]
        if length == file.length and crc != file.crc:
            self.have = {name: have for name, have in self.have.items() if name != file.name}
            return [*steps, Clear((file.name,)), *self._damaged(file)]
        if length == file.length:
            self.damaged = 0
        return steps + self._next()

    def on_installed(self) -> list[JoinAction]:
        """Process the installation of the new copy: the files are in place and synced, with a mark at the end of the
        log.
        """
        assert self.manifest is not None
        self.installed = True
        self.copy.kept, self.copy.lineage = self.manifest.kept, self.manifest.lineage
        self.copy.stored = self.copy.complete = self.copy.mark = self.copy.end
        return []

    def _is_stale(self, name: str, file: File | None, before: File | None) -> bool:
        """Return True if the received part of a file belongs to a different file of this name, or is too long.

        Octets left by an earlier process may also belong to a different file. The CRC of the whole file detects this.
        """
        length, crc = self.have[name]
        if file is None or before not in (None, file) or length > file.length:
            return True
        return length == file.length and crc != file.crc

    def _current(self) -> File | None:
        """Return the first file that is not whole; None if all are, or without a manifest."""
        if self.manifest is None or self.installed:
            return None
        return next((file for file in self.manifest.files if self.have.get(file.name, (0, 0))[0] < file.length), None)

    def _next(self) -> list[JoinAction]:
        """Request the next piece, or install the whole copy."""
        assert self.manifest is not None
        file = self._current()
        if file is None:
            return [Install(self.manifest.kept, self.manifest.lineage)]
        return [Send(self.source, Want(self.epoch, file.name, self.have.get(file.name, (0, 0))[0]))]

    def _damaged(self, file: File) -> list[JoinAction]:
        self.damaged += 1
        if self.damaged > MOST_DAMAGED:
            return self._fail(f"{file.name} of {self.source} came damaged {self.damaged} times")
        return self._next()

    def _fail(self, reason: str) -> list[JoinAction]:
        self.failed = reason
        return [Alarm(reason)]
