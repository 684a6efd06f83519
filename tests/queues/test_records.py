"""Records of queues: a queue finds its records in a store of any release."""

import gc
import weakref

from jumpmq.queues import make_queue
from jumpmq.queues.base import QueueContext
from jumpmq.queues.records import OF_QUEUES, QueueRecords, owner_epoch, records_of_queues
from jumpmq.store.stream_files import StreamFiles

STORED = [
    ("sequence", "7", 41),
    ("delivered", "7", 12),
    ("attempts", "7 9", 3),
    ("priorities", "7", True),
    ("retry", "7 10", [1700000000.5, 2]),
    ("entered", "8", 5),
    ("group-offset", "8 a group", {"offset": 1, "delivered": 2, "skipped": 0}),
    ("owner_epoch", "home", 99),
    ("queue", "7", {"name": "q"}),
]


def test_each_record_is_found_at_its_queue() -> None:
    assert records_of_queues(STORED, clean=True) == {
        7: QueueRecords(True, 41, 12, {9: 3}, {10: [1700000000.5, 2]}, has_priorities=True),
        8: QueueRecords(True, offsets={"a group": {"offset": 1, "delivered": 2, "skipped": 0}}, entered=5),
    }
    assert owner_epoch(STORED) == 99


def test_the_example_has_every_kind() -> None:
    assert {kind for kind, _, _ in STORED} >= OF_QUEUES


def test_what_was_delivered_is_unknown_after_a_crash() -> None:
    assert records_of_queues(STORED, clean=False)[7].delivered_seq is None
    assert records_of_queues(STORED, clean=True)[7].delivered_seq == 12


def test_a_deleted_stream_needs_no_collection_of_garbage() -> None:
    context = QueueContext(streams=StreamFiles(None))
    stream = make_queue("/", "s", id=7, arguments={"x-queue-type": "stream"}, context=context)
    gone = weakref.ref(stream)
    gc.disable()
    try:
        stream.delete()
        del stream
        assert gone() is None
    finally:
        gc.enable()
