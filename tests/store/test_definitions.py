"""Definitions survive a restart, in the order of their creation."""

import gc
import os
import weakref
from functools import partial
from pathlib import Path

import pytest
from tests.store.opened import Opened

from jumpmq.store import definitions, index, schema, upkeep
from jumpmq.store.definitions import QueueNaming
from jumpmq.store.files import Files
from jumpmq.store.recovery import Recovery
from jumpmq.store.staging import COMMIT_DEFINITIONS


def test_come_back_in_the_order_of_their_insertion(opened: Opened) -> None:
    for name in ("c", "a", "b"):
        opened.store.put("queue", name, {"durable": True, "arguments": {"x": [1, 2.5, None, "ü"]}})
        opened.commit()
    found = opened.crash().store
    assert [(kind, key) for kind, key, _ in found.definitions()] == [("queue", "c"), ("queue", "a"), ("queue", "b")]


def test_a_change_keeps_the_place_and_a_new_insertion_goes_to_the_end(opened: Opened) -> None:
    for key in ("a", "b", "c"):
        opened.store.put("ring", key, 1)
    opened.commit()
    opened.store.put("ring", "a", 2)
    opened.store.delete("ring", "b")
    opened.store.put("ring", "b", 3)
    opened.commit()
    found = opened.crash().store
    assert found.definitions() == [("ring", "a", 2), ("ring", "c", 1), ("ring", "b", 3)]


def test_of_several_changes_in_one_commit_the_last_counts(opened: Opened) -> None:
    opened.store.put("queue", "kept", 1)
    opened.store.put("queue", "kept", 2)
    opened.store.put("queue", "gone", 1)
    opened.store.delete("queue", "gone")
    opened.store.delete("queue", "never there")
    opened.commit()
    found = opened.crash().store
    assert found.definitions() == [("queue", "kept", 2)]


def test_many_changes_of_many_turns_are_more_than_one_commit(opened: Opened) -> None:
    names = [str(number) for number in range(COMMIT_DEFINITIONS)]
    store = opened.store
    for change in (partial(store.put, "queue", value=1), partial(store.delete, "queue")):
        for name in [*names, "last"]:
            change(name)
            receipt = opened.store.flush(begin=False)
    opened.store.put("queue", "kept", 1)
    assert receipt == 3
    opened.commit()
    found = opened.crash().store
    assert found.definitions() == [("queue", "kept", 1)]


def test_a_value_is_taken_as_it_was_when_put(opened: Opened) -> None:
    value = {"buckets": [1, 2]}
    opened.store.put("ring", "r", value)
    value["buckets"].append(3)
    opened.commit()
    found = opened.crash().store
    assert found.definitions() == [("ring", "r", {"buckets": [1, 2]})]


def test_what_the_file_cannot_hold_is_refused_at_once(opened: Opened) -> None:
    with pytest.raises(TypeError):
        opened.store.put("queue", "q", {1, 2})
    with pytest.raises(ValueError):
        opened.store.put("queue", "\udcff", 1)
    assert not opened.store.dirty


def test_the_copy_of_the_definitions_keeps_its_name_over_a_failure_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [], os.fsync

    def note(file: int) -> None:
        synced.append((Path(f"/proc/self/fd/{file}").readlink(), (tmp_path / "definitions").exists()))
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    definitions.write(tmp_path / "definitions", 1, [("queue", "orders", "{}")])
    assert synced == [(tmp_path / "definitions.new", False), (tmp_path, True)]


def test_what_a_start_has_read_of_the_definitions_goes(opened: Opened) -> None:
    opened.store.put("queue", "orders", {"id": 7, "name": "orders", "vhost": "/"})
    opened.commit()
    gc.disable()  # as at a start
    try:
        found = weakref.ref(Recovery(opened.crash().directory, Files(), lambda settled: None))
        assert found() is None
        naming = QueueNaming({("queue", "orders"): '{"id": 7, "name": "orders", "vhost": "/"}'})
        assert naming(7) == "queue 'orders' in vhost '/'"
        assert naming(definitions.ON_WAY | 7) == "the messages on the way to queue 'orders' in vhost '/'"
        gone = weakref.ref(naming)
        del naming
        assert gone() is None
    finally:
        gc.enable()


def test_a_copy_that_lacks_a_line_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "definitions"
    kept = [("queue", "ö", '{"id":1}'), ("queue", "a\n", '{"id":2}')]
    definitions.write(path, 3, kept)
    copy = definitions.look(path)
    assert copy is not None
    assert (copy.segment, copy.whole) == (3, True)
    assert copy.definitions() == {(kind, key): text for kind, key, text in kept}
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    copy = definitions.look(path)
    assert copy is not None
    assert not copy.whole
    assert copy.definitions() == {("queue", "ö"): '{"id":1}'}


def test_many_definitions_are_in_the_index_once_no_more_come(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    path = opened.directory / schema.FILE_NAME

    def indexed() -> int:
        return len(index.read(path, lambda settled: None).definitions)

    opened.store.put("queue", "last", 1)
    opened.commit()
    opened.work_until(lambda: indexed() == 1)  # with the first segment
    names = [str(number) for number in range(upkeep.MANY_DEFINITIONS)]
    for name in names:
        opened.store.put("queue", name, 1)
    opened.commit()
    opened.store.index_definitions()
    opened.store.put("queue", "last", 2)
    opened.commit()
    assert indexed() == 1
    monkeypatch.setattr(upkeep, "QUIET", 0.0)
    opened.store.index_definitions()
    opened.work_until(lambda: indexed() == len(names) + 1)
    for name in names:
        opened.store.delete("queue", name)
    opened.commit()
    opened.store.index_definitions()
    opened.work_until(lambda: indexed() == 1)
    assert opened.crash().store.definitions() == [("queue", "last", 2)]
