"""Segments of the log."""

from pathlib import Path

from jumpmq.store.files import Files
from jumpmq.store.log import Log


def open_files() -> list[str]:
    return [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]


def test_a_segment_that_is_cut_while_it_goes_gives_its_room_back(tmp_path: Path) -> None:
    log = Log(tmp_path, Files())
    segment = log.begin(1)
    log.begin(2)
    remove = log.forget(segment)
    log.cut(segment)
    remove()
    assert not [path for path in open_files() if path.startswith(str(segment.path))]
    log.close()
