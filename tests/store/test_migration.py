"""Opening a store of version 0.1 converts it to a log, once; a crash in between changes nothing."""

import gzip
import shutil
from pathlib import Path

import pytest
from tests.store.opened import Opened, content, left, make_messages

OLD = Path(__file__).parents[1] / "data" / "store-0.1"
EXPECTED = {1: [*range(1, 24), *range(25, 31)], 2: [1, 2, 3, 4, 5]}


def old_store(state: str, directory: Path) -> Path:
    """Make a store as JumpMQ 0.1: messages 1 to 30 of queue 1, without 24, and 1 to 5 of queue 2."""
    directory.mkdir()
    for path in (OLD / state).iterdir():
        (directory / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return directory


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_nothing_is_missing_and_nothing_comes_again(tmp_path: Path, state: str) -> None:
    opened = Opened(old_store(state, tmp_path / "broker"))
    assert opened.store.clean == (state == "stopped")
    assert opened.store.definitions() == [("queue", "orders", {"id": 1}), ("vhost", "/", {})]
    batches = opened.store.batches()
    found = {queue: [one for batch in of for one in opened.store.read(batch)] for queue, of in batches.items()}
    assert {queue: [one.seq for one in messages] for queue, messages in found.items()} == EXPECTED
    assert content(found[1][0]) == content(make_messages(1, 1)[0])
    assert not (tmp_path / "broker" / "migrating").exists()
    opened.store.append(1, make_messages(31, 31))
    opened.commit()
    assert left(opened.crash()) == {1: [*EXPECTED[1], 31], 2: EXPECTED[2]}
    opened.close()


def test_a_migration_that_was_interrupted_begins_again(tmp_path: Path) -> None:
    """An interrupted migration starts again, after a crash at any step."""
    whole = old_store("stopped", tmp_path / "new")
    Opened(whole).close()
    first = old_store("killed", tmp_path / "first")
    shutil.copytree(whole, first / "migrating")
    second = old_store("killed", tmp_path / "second")
    (second / "migrating").mkdir()
    shutil.copytree(whole / "log", second / "log")
    for directory in (first, second):
        opened = Opened(directory)
        assert left(opened) == EXPECTED
        opened.close()
