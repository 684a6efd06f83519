"""Limits of octets dropped from memory and read back at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.opened import Opened

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues.bodies import READ_AT_ONCE, at_once, drop, read_back
from jumpmq.queues.read_ahead import AHEAD_OCTETS, ReadAhead
from jumpmq.queues.segment import BatchSegment
from jumpmq.store.batch import MAX_BYTES

HEADER = 50_000
COUNT = 400


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path / "store")
    yield opened
    opened.close()


def stored(opened: Opened) -> list[Message]:
    """Return messages on disk, each with a header of 50,000 octets and a body of one octet."""
    messages = []
    for number in range(COUNT):
        properties = Properties(headers=[Field("large", "S", f"{number:0{HEADER}}")]).encode()
        messages.append(Message("", b"orders", properties, b"b", True, 0.0))
    for first in range(0, COUNT, 10):
        for place in range(first, first + 10):
            messages[place].seq = place + 1
        opened.store.append(1, messages[first : first + 10])
        opened.commit()
    return messages


@pytest.mark.parametrize("last", [False, True])
def test_large_headers_count_for_what_is_read_back_at_one_stretch(opened: Opened, last: bool) -> None:
    messages = stored(opened)
    drop(messages)
    count = at_once(messages, last=last)
    assert READ_AT_ONCE / HEADER <= count <= READ_AT_ONCE / HEADER + 2
    some = messages[-count:] if last else messages[:count]
    assert not read_back(some, opened.store)
    assert all(message.body == b"b" and len(message.properties) > HEADER for message in some)


def test_large_headers_count_for_what_is_read_ahead(opened: Opened) -> None:
    stored(opened)
    opened.restart()
    batches = opened.store.batches()[1]
    assert max(batch.stored for batch in batches) < MAX_BYTES + 20 * HEADER
    found: list[int] = []
    ahead = ReadAhead(lambda read: found.extend(len(messages) for _, messages in read))
    assert ahead.ask(opened.store, [BatchSegment.stored(batch, 0) for batch in batches])
    opened.work_until(lambda: bool(found))
    assert AHEAD_OCTETS / HEADER <= sum(found) <= (AHEAD_OCTETS + MAX_BYTES) / HEADER + 20
