"""A simulated disk: it records all calls, and derives possible contents after a power failure at any moment.

Synced octets are kept. An unsynced write is kept, missing, or kept in part. A file made or removed since the
last sync of its directory may be there or not.
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from jumpmq.store.files import Files

SECTOR = 512


def _key(path: Path) -> str:
    """Return the relative path of a file or directory in its data directory."""
    parts = path.parts
    begin = max(parts.index(name) for name in ("log", "streams") if name in parts)
    return "/".join(parts[begin:])


@dataclass(frozen=True)
class Call:
    """A call that changes the disk, or a note of the test."""

    name: str
    path: str = ""
    number: int = 0
    octets: bytes = b""
    log: bytes = b""


class Recorder(Files):
    """Files with real writes and without syncs, and a record of all calls in order."""

    allocated_ahead = 8 << 10

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._paths: dict[int, str] = {}
        self._lock = threading.Lock()

    def note(self, name: str, number: int) -> None:
        """Add a note of the test to the record."""
        self._record(Call(name, number=number))

    def create(self, path: Path) -> int:
        self._record(Call("create", _key(path)))
        file = super().create(path)
        self._paths[file] = _key(path)
        return file

    def open(self, path: Path) -> int:
        file = super().open(path)
        self._paths[file] = _key(path)
        return file

    def write(self, file: int, offset: int, buffers: Sequence[Any]) -> None:
        self._record(Call("write", self._paths[file], offset, b"".join(buffers)))
        super().write(file, offset, buffers)

    def sync(self, file: int) -> None:
        self._record(Call("sync", self._paths[file]))

    def allocate(self, file: int, offset: int, length: int) -> None:
        self._record(Call("allocate", self._paths[file], offset + length))
        super().allocate(file, offset, length)

    def truncate(self, file: int, size: int) -> None:
        self._record(Call("truncate", self._paths[file], size))
        super().truncate(file, size)

    def remove(self, path: Path) -> None:
        self._record(Call("remove", _key(path)))
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._record(Call("sync_directory", _key(path)))

    def noted(self, path: Path) -> None:
        log = path.with_name(path.name + "-wal")
        self._record(Call("index", octets=path.read_bytes(), log=log.read_bytes() if log.exists() else b""))

    def _record(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)


class Failing(Recorder):
    """Files with random failures: a failed write may be partial, a failed sync may lose the octets for good.

    Attributes:
        rate: share of failing calls.
        error: error number.
    """

    def __init__(self, chance: Random, rate: float, error: int) -> None:
        super().__init__()
        self.rate, self.error = rate, error
        self._chance = chance

    def create(self, path: Path) -> int:
        self._fail()
        return super().create(path)

    def write(self, file: int, offset: int, buffers: Sequence[Any]) -> None:
        try:
            self._fail()
        except OSError:
            octets = b"".join(buffers)
            super().write(file, offset, [octets[: self._chance.randrange(len(octets))]])
            raise
        super().write(file, offset, buffers)

    def sync(self, file: int) -> None:
        try:
            self._fail()
        except OSError:
            self._record(Call("sync_failed", self._paths[file]))
            raise
        super().sync(file)

    def allocate(self, file: int, offset: int, length: int) -> None:
        self._fail()
        super().allocate(file, offset, length)

    def truncate(self, file: int, size: int) -> None:
        self._fail()
        super().truncate(file, size)

    def remove(self, path: Path) -> None:
        self._fail()
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._fail()
        super().sync_directory(path)

    def _fail(self) -> None:
        if self._chance.random() < self.rate:
            raise OSError(self.error, os.strerror(self.error))


@dataclass
class Image:
    """A file on the disk: its synced content, and later unsynced calls."""

    octets: bytearray = field(default_factory=bytearray)
    size: int = 0
    since: list[Call] = field(default_factory=list)
    named: bool = False
    removed: bool = False

    def apply(self, call: Call, octets: bytes | None = None) -> None:
        if call.name == "write":
            content = call.octets if octets is None else octets
            end = call.number + len(content)
            if len(self.octets) < end:
                self.octets.extend(bytes(end - len(self.octets)))
            self.octets[call.number : end] = content
            self.size = max(self.size, end)
        elif call.name == "allocate":
            self.size = max(self.size, call.number)
        else:
            del self.octets[call.number :]
            self.size = call.number

    def after_crash(self, chance: Random) -> "Image":
        image = Image(bytearray(self.octets), self.size)
        for call in self.since:
            outcome = chance.random()
            if outcome < 0.4:
                image.apply(call)
            elif outcome < 0.7 and call.name == "write":
                torn = bytearray(call.octets)
                before = image.octets[call.number : call.number + len(torn)]
                before += bytes(len(torn) - len(before))
                for start in range(-call.number % SECTOR, len(torn), SECTOR):
                    if chance.random() < 0.5:  # this sector is unchanged
                        torn[start : start + SECTOR] = before[start : start + SECTOR]
                image.apply(call, bytes(torn[: chance.randint(0, len(torn))] if chance.random() < 0.5 else torn))
        return image


class SimulatedDisk:
    """The disk after the recorded calls so far.

    Attributes:
        committed: the last number noted as ``committed``.
    """

    def __init__(self, index: bytes, chance: Random | None = None) -> None:
        self.committed = 0
        self._chance = Random(0) if chance is None else chance
        self._index, self._index_log = index, b""
        self._files: dict[str, Image] = {}

    def take(self, call: Call) -> None:
        """Apply the next call."""
        if call.name == "committed":
            self.committed = call.number
        elif call.name == "index":
            self._index, self._index_log = call.octets, call.log
        elif call.name == "create":
            self._files[call.path] = Image()
        elif call.name in ("sync", "truncate") and call.path not in self._files:
            pass  # another thread has removed it
        elif call.name == "sync_directory":
            for name, image in list(self._files.items()):
                if name.rpartition("/")[0] == call.path:
                    image.named = True
                    if image.removed:
                        del self._files[name]
        elif call.name == "remove":
            if call.path in self._files:
                self._files[call.path].removed = True
        elif call.name == "sync":
            image = self._files[call.path]
            for one in image.since:
                image.apply(one)
            image.since.clear()
        elif call.name == "sync_failed":
            if (failed := self._files.get(call.path)) is not None:
                self._files[call.path] = failed.after_crash(self._chance)
                self._files[call.path].named, self._files[call.path].removed = failed.named, failed.removed
        else:
            self._files[call.path].since.append(call)

    def crash(self, directory: Path, chance: Random) -> None:
        """Write a possible content of the disk after a power failure now."""
        directory.mkdir()
        (directory / "jumpmq.db").write_bytes(self._index)
        if self._index_log:
            (directory / "jumpmq.db-wal").write_bytes(self._index_log)
        for name, image in self._files.items():
            if (image.named or chance.random() < 0.5) and not (image.removed and chance.random() < 0.5):
                found = image.after_crash(chance)
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found.octets)
                os.truncate(path, found.size)
