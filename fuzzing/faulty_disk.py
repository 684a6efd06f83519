"""Disks that fail, are slow, hang, or lose unsynced writes: ``faulty_disk.c``, preloaded into a process."""

import mmap
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CREATE, OPEN, WRITE, SYNC, ALLOCATE, TRUNCATE, NAMES, READ = (1 << place for place in range(8))
CHANGES = CREATE | WRITE | ALLOCATE | TRUNCATE | NAMES

SLOW = -1
"""Instead of an error number: calls succeed after a delay."""

FAILED, DELAY = 48, 52
"""Offsets in the control page."""

RECORD = struct.Struct("=iiqqii")
"""Header of a journal record: kind, padding, position, earlier size of the file, lengths of path and octets."""


def is_available() -> bool:
    """Return true if a C compiler is installed."""
    return shutil.which("cc") is not None


class _Change(NamedTuple):
    """A write or a truncation: position in the journal, and the replaced octets."""

    place: int
    at: int
    size: int
    octets: bytes


class FaultyDisk:
    """The disk of a broker's data directory.

    Args:
        directory: for the library and its control file; a directory per disk.
        data: the data directory.
        journals: record unsynced writes, for a loss of power.
    """

    def __init__(self, directory: Path, data: Path, *, journals: bool = False) -> None:
        self._library, self._control_path = directory / "faulty_disk.so", directory / "control"
        self._data, self._journal = data, directory / "journal" if journals else None
        source = Path(__file__).with_name("faulty_disk.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self._library, source, "-ldl"], check=True)
        self._control_path.write_bytes(bytes(mmap.PAGESIZE))
        with self._control_path.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    @property
    def environment(self) -> Mapping[str, Path]:
        """Environment of the broker's process."""
        settings = {
            "LD_PRELOAD": self._library,
            "FAULTY_DIRECTORY": self._data,
            "FAULTY_CONTROL": self._control_path,
        }
        return settings if self._journal is None else settings | {"FAULTY_JOURNAL": self._journal}

    def fail(self, calls: int, error: int, after: int = 0, count: int = -1, delay: float = 0.0) -> None:
        """Make ``count`` calls of the given kinds fail (-1: all), after ``after`` successful calls.

        Args:
            delay: seconds of a call, with the error :data:`SLOW`.

        Args:
            delay: seconds that each of them takes instead, where the error is :data:`SLOW`.
        """
        struct.pack_into("4i", self._control, 0, 0, error, after, count)
        struct.pack_into("i", self._control, DELAY, round(delay * 1000))
        struct.pack_into("i", self._control, 0, calls)

    def be_well(self) -> None:
        """End all injected failures."""
        struct.pack_into("i", self._control, 0, 0)

    @property
    def failed(self) -> int:
        """Number of failed calls so far."""
        return int(struct.unpack_from("i", self._control, FAILED)[0])

    def lose_power(self, choose: random.Random) -> int:
        """Undo all or some unsynced writes. No process may use the data. Return the number of undone writes."""
        assert self._journal is not None
        undone, keeps = 0, choose.choice([0.0, 0.0, 0.5])
        for path, changes in self._unsynced().items():
            if not changes or not Path(path).is_file():
                continue
            with Path(path).open("r+b") as file:
                for change in reversed(changes):
                    if choose.random() < keeps:
                        continue
                    os.pwrite(file.fileno(), change.octets, change.at)
                    os.ftruncate(file.fileno(), change.size)
                    undone += 1
        self._journal.write_bytes(b"")
        return undone

    def _unsynced(self) -> dict[str, list[_Change]]:
        assert self._journal is not None
        found: dict[str, list[_Change]] = {}
        octets, place = self._journal.read_bytes() if self._journal.exists() else b"", 0
        while place + RECORD.size <= len(octets):
            kind, _, at, size, of_path, count = RECORD.unpack_from(octets, place)
            begin = place + RECORD.size
            path = octets[begin : begin + of_path].decode()
            more = octets[begin + of_path : begin + of_path + count]
            match chr(kind):
                case "S":
                    found[path] = [change for change in found.get(path, []) if change.place >= at]
                case "U":
                    _move(found, path, None)
                case "R":
                    _move(found, path, more.decode())
                case _:
                    found.setdefault(path, []).append(_Change(place, at, size, more))
            place = begin + of_path + count
        return found


def _move(found: dict[str, list[_Change]], path: str, to: str | None) -> None:
    """Assign the changes of a file, or of all files of a directory, to a new name, which they replace."""
    for name in [one for one in found if to is not None and (one == to or one.startswith(f"{to}/"))]:
        del found[name]
    for name in [one for one in found if one == path or one.startswith(f"{path}/")]:
        changes = found.pop(name)
        if to is not None:
            found[to + name.removeprefix(path)] = changes
