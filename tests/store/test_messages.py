"""Messages survive a restart: whole, in order, until they are settled."""

import os

import pyarrow as pa
import pytest
from tests.store.opened import Opened, content, left, make_messages, seqs

from jumpmq.store import StoreError
from jumpmq.store.batch import MAX_BYTES
from jumpmq.store.records import MAX_COUNT


def test_come_back_whole_and_in_order(opened: Opened) -> None:
    messages = make_messages(1, 300, body=lambda seq: os.urandom(seq))
    messages[7].routing_key = b"\xff\x00 not text"
    messages[8].exchange = "another"
    messages[9].body = messages[9].properties = messages[9].routing_key = b""
    opened.store.append(4, messages[:100])
    opened.store.append(4, messages[100:200])
    opened.commit()
    opened.store.append(4, messages[200:])
    opened.commit()
    found = opened.crash().store
    (batches,) = found.batches().values()
    assert [(batch.first_seq, batch.last_seq, batch.count) for batch in batches] == [(1, 300, 300)]
    again = [message for batch in batches for message in found.read(batch)]
    assert [content(message) for message in again] == [content(message) for message in messages]
    assert {message.batch for message in again} == set(batches)


def test_staged_messages_are_read_as_the_objects_they_are(opened: Opened) -> None:
    messages = make_messages(1, 3)
    opened.store.append(1, messages)
    batch = messages[0].batch
    assert opened.store.read(batch) == messages
    batch.settle(2)
    assert opened.store.read(batch) == [messages[0], messages[2]]
    opened.commit()
    again = opened.store.read(batch)
    assert [content(message) for message in again] == [content(messages[0]), content(messages[2])]


def test_messages_kept_in_memory_between_are_only_gaps(opened: Opened) -> None:
    messages = [message for message in make_messages(1, 50) if message.seq % 3]
    opened.store.append(1, messages)
    opened.commit()
    messages[0].batch.settle(5)
    found = opened.restart()
    assert left(found) == {1: [seq for seq in range(1, 51) if seq % 3 and seq != 5]}


def test_large_headers_count_as_bodies_do(opened: Opened) -> None:
    messages = make_messages(1, 9, body=lambda seq: b"")
    for message in messages:
        message.properties = bytes(MAX_BYTES // 2)
    opened.store.append(1, messages)
    opened.commit()
    (batches,) = opened.crash().store.batches().values()
    assert [batch.count for batch in batches] == [2, 2, 2, 2, 1]
    assert opened.store.staged_bytes == 0


def test_a_long_append_is_split_so_that_reading_back_stays_cheap(opened: Opened) -> None:
    messages = make_messages(1, MAX_COUNT * 2 + 10, body=lambda seq: b"")
    opened.store.append(1, messages)
    opened.store.append(2, make_messages(1, 5, body=lambda seq: bytes(MAX_BYTES // 2)))
    opened.commit()
    found = opened.restart().store
    batches = found.batches()
    assert [batch.count for batch in batches[1]] == [MAX_COUNT, MAX_COUNT, 10]
    assert [batch.count for batch in batches[2]] == [2, 2, 1]
    assert seqs(found, batches[1]) == list(range(1, MAX_COUNT * 2 + 11))


def test_arrow_columns(opened: Opened) -> None:
    messages = make_messages(5, 7)
    opened.store.append(1, messages)
    batch = messages[0].batch
    staged = opened.store.arrow(batch)
    opened.commit()
    columns = opened.store.arrow(batch)
    assert columns == staged
    assert columns.schema == pa.schema(
        [
            ("seq", pa.int64()),
            ("exchange", pa.string()),
            ("routing_key", pa.binary()),
            ("properties", pa.binary()),
            ("body", pa.binary()),
            ("published_at", pa.timestamp("us", "UTC")),
        ]
    )
    assert columns.column("seq").to_pylist() == [5, 6, 7]
    assert columns.column("body").to_pylist() == [b"body 5", b"body 6", b"body 7"]
    assert [time.timestamp() for time in columns.column("published_at").to_pylist()] == [
        message.published_at for message in messages
    ]


def test_a_batch_goes_when_all_its_messages_are_settled(opened: Opened) -> None:
    messages = make_messages(1, 4)
    opened.store.append(1, messages)
    opened.commit()
    for seq in (3, 1, 4):
        messages[0].batch.settle(seq)
    opened.commit()
    assert left(opened.crash()) == {1: [2]}
    messages[0].batch.settle(2)
    assert opened.store.dirty
    opened.commit()
    assert left(opened.crash()) == {}
    assert opened.store.read(messages[0].batch) == []
    assert not opened.store.dirty


def test_settling_a_message_twice_settles_no_other(opened: Opened) -> None:
    messages = make_messages(1, 2)
    opened.store.append(1, messages)
    opened.commit()
    messages[0].batch.settle(1)
    messages[0].batch.settle(1)
    opened.commit()
    found = opened.crash()
    assert left(found) == {1: [2]}


@pytest.mark.parametrize("settle", ["one by one", "at once"])
def test_what_is_settled_before_it_was_written_never_reaches_the_file(opened: Opened, settle: str) -> None:
    messages = make_messages(1, 3)
    opened.store.append(1, messages)
    if settle == "at once":
        messages[0].batch.settle_all()
    else:
        for message in messages:
            message.batch.settle(message.seq)
    number = opened.commit()
    assert opened.commits == [number] == [1]
    assert left(opened.crash()) == {}
    assert opened.store.staged_bytes == 0


def test_a_batch_that_looked_finished_goes_on_growing(opened: Opened) -> None:
    messages = make_messages(1, 3)
    opened.store.append(1, messages[:1])
    messages[0].batch.settle(1)
    opened.store.append(1, messages[1:])
    opened.commit()
    found = opened.crash()
    assert left(found) == {1: [2, 3]}


def test_a_batch_emptied_at_once_is_gone(opened: Opened) -> None:
    messages = make_messages(1, 3)
    opened.store.append(1, messages)
    opened.commit()
    messages[0].batch.settle(2)
    messages[0].batch.settle_all()
    opened.commit()
    assert left(opened.crash()) == {}


def test_a_clean_stop_notes_exactly_what_is_settled(opened: Opened) -> None:
    messages = make_messages(1, 10)
    opened.store.append(1, messages)
    opened.commit()
    for seq in (2, 3, 9):
        messages[0].batch.settle(seq)
        opened.store.put("other", "work", seq)
        opened.commit()
    found = opened.restart()
    assert found.store.clean
    assert left(found) == {1: [1, 4, 5, 6, 7, 8, 10]}
    again = found.restart()
    assert left(again) == {1: [1, 4, 5, 6, 7, 8, 10]}


def test_after_a_crash_settled_messages_may_come_again_but_none_is_missing(opened: Opened) -> None:
    messages = make_messages(1, 10)
    opened.store.append(1, messages)
    opened.commit()
    messages[0].batch.settle(2)
    found = opened.crash()
    assert not found.store.clean
    assert left(found) == {1: list(range(1, 11))}


def test_a_start_that_came_to_nothing_does_not_hide_a_crash(opened: Opened) -> None:
    """After a crash and a failed start, for example on a used port, the next start still marks redeliveries."""
    opened.store.append(1, make_messages(1, 10))
    opened.commit()
    found = opened.crash()
    assert not found.store.clean
    found.restart()
    assert not found.store.clean
    found.store.put("queue", "q", 1)
    found.commit()
    found.restart()
    assert found.store.clean


def test_a_dropped_queue_loses_all_it_had_and_no_other_does(opened: Opened) -> None:
    written, staged, others = make_messages(1, 5), make_messages(6, 9), make_messages(1, 3)
    opened.store.append(1, written)
    opened.store.append(2, others)
    opened.commit()
    written[0].batch.settle(1)
    opened.commit()
    opened.store.append(1, staged)
    opened.store.drop_queue(1)
    opened.commit()
    for message in (*written, *staged):
        message.batch.settle(message.seq)  # a consumer with unsettled messages
    opened.commit()
    assert not opened.store.dirty
    found = opened.crash()
    assert left(found) == {2: [1, 2, 3]}


def test_a_queue_that_was_dropped_before_a_crash_does_not_come_back_with_the_index(opened: Opened) -> None:
    opened.store.append(1, make_messages(1, 5))
    opened.store.append(2, make_messages(1, 3))
    opened.commit()
    opened.store.drop_queue(1)
    opened.commit()
    found = opened.crash()
    found.store.append(2, make_messages(4, 4))
    assert left(found.restart()) == {2: [1, 2, 3, 4]}  # from the index that the end of the first has written


def test_messages_of_a_dropped_queue_cannot_be_read(opened: Opened) -> None:
    messages = make_messages(1, 2)
    opened.store.append(1, messages)
    opened.commit()
    opened.store.drop_queue(1)
    opened.commit()
    with pytest.raises(StoreError, match="no longer"):
        opened.store.read(messages[0].batch)


def used(opened: Opened) -> int:
    """Octets of all files."""
    return sum(file.stat().st_size for file in opened.directory.rglob("*") if file.is_file())


def test_segments_in_which_nothing_lives_go(opened: Opened) -> None:
    body = os.urandom(100_000)
    for first in range(1, 2000, 200):
        opened.store.append(1, make_messages(first, first + 199, body=lambda seq: body))
        opened.commit()
    assert used(opened) > 200_000_000
    for batch in opened.restart().store.batches()[1]:
        batch.settle_all()
    opened.commit()
    opened.work_until(lambda: used(opened) < 20 << 20)


def test_what_little_lives_in_a_segment_is_moved(opened: Opened) -> None:
    """A segment with one remaining message in a hundred is removed; its remaining messages are moved."""
    for first in range(1, 2000, 100):
        messages = make_messages(first, first + 99, body=lambda seq: b"%7d" % seq + bytes(100_000))
        opened.store.append(1, messages)
        opened.commit()
        for message in messages[1:]:
            message.batch.settle(message.seq)
        opened.commit()
    opened.work_until(lambda: used(opened) < 150 << 20)
    kept = list(range(1, 2000, 100))
    assert left(opened.crash()) == {1: kept}
    opened.restart()
    batches = opened.store.batches()[1]
    assert [message.body[:7] for batch in batches for message in opened.store.read(batch)] == [b"%7d" % n for n in kept]


def test_room_of_settled_messages_is_used_again(opened: Opened) -> None:
    body = os.urandom(100_000)
    for round in range(60):
        messages = make_messages(1 + 20 * round, 20 + 20 * round, body=lambda seq: body)
        opened.store.append(1, messages)
        opened.commit()
        messages[0].batch.settle_all()
        opened.commit()
    opened.work_until(lambda: used(opened) < 90 << 20)  # 120 MB went through
