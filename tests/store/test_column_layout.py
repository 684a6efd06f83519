"""Columns of the log's blocks equal the messages of the blocks, for any first and last message."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jumpmq.amqp.messages import Message
from jumpmq.queues.columns import Columns
from jumpmq.store.column_layout import laid_out
from jumpmq.store.records import Content, messages_block

FIELDS = ("seq", "exchange", "routing_key", "properties", "body", "published_at")
BATCH: Any = object()


@st.composite
def blocks_of_messages(draw: st.DrawFn) -> list[list[Message]]:
    """Messages in blocks, one exchange per block; some have equal properties and equal times."""
    blocks, seq = [], draw(st.integers(1, 1 << 40))
    for _ in range(draw(st.integers(1, 5))):
        exchange, single = draw(st.sampled_from(["e", "é"])), draw(st.booleans())
        block = []
        for _ in range(draw(st.integers(1, 30))):
            properties = b"\x10\0\2" if single else draw(st.binary(max_size=3))
            message = Message(exchange, draw(st.binary(max_size=3)), properties, draw(st.binary(max_size=5)))
            message.persistent, message.published_at = True, 5.25 if single else draw(st.integers(0, 1 << 50)) / 1e6
            message.seq = seq
            block.append(message)
            seq += 1
        blocks.append(block)
    return blocks


def contents(blocks: list[list[Message]]) -> list[Content]:
    made = [messages_block(1, block, new=not place) for place, block in enumerate(blocks)]
    return [Content(b"".join(map(bytes, (one.head, *one.buffers)))) for one in made]


def shown(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(message, name) for name in FIELDS) for message in messages]


@given(blocks_of_messages(), st.data(), st.sampled_from([1, 12, 1024]))
def test_any_part_of_blocks(blocks: list[list[Message]], data: st.DataObject, joined_below: int) -> None:
    every = [message for block in blocks for message in block]
    first = data.draw(st.integers(every[0].seq, blocks[0][-1].seq))
    last = data.draw(st.integers(max(first, blocks[-1][0].seq), every[-1].seq))
    layouts = laid_out(BATCH, contents(blocks), first, last, joined_below=joined_below)
    assert layouts is not None
    expected = [message for message in every if first <= message.seq <= last]
    parts = [Columns(layout) for layout in layouts]
    assert shown([message for part in parts for message in part.messages()]) == shown(expected)
    assert all(one.last_seq + 1 == other.like.seq for one, other in pairwise(parts))
    assert sum(part.octets for part in parts) == sum(
        len(one.body) + len(one.routing_key) + len(one.properties) for one in expected
    )
    rows = [row for part in parts for row in part.record_batch(("seq", "body", "properties")).to_pylist()]
    assert rows == [{"seq": one.seq, "body": one.body, "properties": one.properties} for one in expected]
    (cut,) = parts[0].cut(0, 1).record_batch(("published_at", "routing_key")).to_pylist()
    assert (cut["published_at"].timestamp(), cut["routing_key"]) == (expected[0].published_at, expected[0].routing_key)


def test_messages_that_are_missing_or_expire_have_no_columns() -> None:
    messages = [Message("e", b"k", b"", b"%d" % seq) for seq in range(20)]
    for seq, message in enumerate(messages, 1):
        message.persistent, message.seq = True, seq
    assert laid_out(BATCH, contents([messages[:10], messages[10:]]), 1, 20) is not None
    assert laid_out(BATCH, contents([messages[:10], messages[11:]]), 1, 20) is None
    assert laid_out(BATCH, contents([messages[:10]]), 1, 20) is None
    assert laid_out(BATCH, contents([messages[:9] + messages[10:]]), 1, 20) is None
    assert laid_out(BATCH, contents([messages[1:]]), 1, 20) is None
    messages[3].expires_at = 2e9
    assert laid_out(BATCH, contents([messages]), 1, 20) is None
