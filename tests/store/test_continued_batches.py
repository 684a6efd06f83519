"""A batch with blocks in two segments, whose messages are settled before the index covers the first segment."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.store.crash_points import found_in
from tests.store.opened import Opened, make_messages
from tests.waiting import until

from jumpmq.store import Store

QUEUE = 4


def test_a_settled_batch_with_a_block_behind_the_index_takes_no_message_of_an_earlier_batch(tmp_path: Path) -> None:
    """Regression: a start assigned the block and its settlements to the earlier batch, and lost all messages."""
    opened = Opened(tmp_path / "broker", commit_bytes=1)  # a commit for each turn
    store = opened.store

    def completed(is_done: Callable[[], bool]) -> Callable[[], bool]:
        def look() -> bool:
            store.completed()
            return is_done()

        return look

    stuck = make_messages(1, 8)
    store.append(QUEUE, stuck)
    opened.commit()
    for message in stuck[:7]:
        message.batch.settle(message.seq)
    opened.commit()
    store._pipeline._roll()
    until(completed(lambda: _current(store) == 2))
    messages = make_messages(9, 14)
    store.append(QUEUE, messages.copy())
    opened.commit()

    store._pipeline._roll()  # the next commit waits for the segment
    last = make_messages(15, 15)
    store.append(QUEUE, last.copy())
    store.flush()
    store.append(QUEUE + 1, make_messages(1, 1))
    store.end_turn()  # the commit of both turns is closed: the settlements below go into the next one
    for message in messages + last:
        message.batch.settle(message.seq)
    opened.commit()
    until(completed(lambda: store._upkeep._indexed == _current(store) == 3))
    shutil.copytree(tmp_path / "broker", tmp_path / "crashed")
    opened.close()
    _, found = found_in(tmp_path / "crashed")
    assert [seq for seq, _ in found[QUEUE]] == [8]


def _current(store: Store) -> int:
    return 0 if store._log.current is None else store._log.current.number
