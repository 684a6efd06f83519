"""The compiled kernel lays messages out as the reference implementation does."""

import itertools
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.streams import MESSAGES
from tests.store import reference

from jumpmq.amqp.messages import Message
from jumpmq.store import _kernel as kernel
from jumpmq.store.records import COLUMNS, Content, messages_block

NOW = 1_700_000_000.25


@given(MESSAGES)
def test_columns(values: list[tuple[Any, ...]]) -> None:
    messages = [Message(*(*value, NOW + place)) for place, value in enumerate(values)]
    for place, message in enumerate(messages):
        message.seq = 5 + place

    def columns(module: ModuleType) -> list[Any]:
        binary = [module.binary_column(messages, name) for name in ("exchange", "routing_key", "properties", "body")]
        return [*binary, module.seq_column(messages), module.time_column(messages)]

    assert columns(kernel) == columns(reference)


@given(MESSAGES, st.booleans(), st.sampled_from([0, 3, 1 << 20]))
def test_rows_and_what_messages_have_in_common(values: list[tuple[Any, ...]], expires: bool, gather: int) -> None:
    messages = [Message(*(*value, NOW + place % 2)) for place, value in enumerate(values)]
    for seq, message in enumerate(messages, 5):
        message.seq = seq
        message.expires_at = NOW + 60 if expires and seq > 5 else 0.0
    if messages:
        assert kernel.alike(messages) == reference.alike(messages)
        assert kernel.octets(messages) == reference.octets(messages)
        assert kernel.row_block(messages, 7, 1, gather) == reference.row_block(messages, 7, 1, gather)
        messages[-1].seq += 1
        gaps = [module.row_block(messages, 7, 1, gather) is None for module in (kernel, reference)]
        assert gaps == 2 * [len(messages) > 1]
    assert kernel.expiry_column(messages) == reference.expiry_column(messages)


@pytest.mark.parametrize("module", [kernel, reference], ids=["kernel", "reference"])
@pytest.mark.parametrize(
    ("most", "most_octets", "taken", "bodies", "octets"),
    [(9, 99, 4, 9, 21), (2, 99, 2, 3, 9), (9, 9, 2, 3, 9), (9, 10, 3, 7, 16), (0, 99, 0, 0, 0)],
)
def test_a_batch_takes_messages_up_to_its_limits(
    module: ModuleType, most: int, most_octets: int, taken: int, bodies: int, octets: int
) -> None:
    messages = [Message("", b"k", b"\0\0", bytes(size), True) for size in (1, 2, 4, 2)]
    batch = object()
    assert module.join_batch(messages, batch, most, most_octets) == (taken, bodies, octets)
    assert [message.batch is batch for message in messages] == [place < taken for place in range(4)]


def described(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [
        (
            one.seq,
            one.exchange,
            one.routing_key,
            one.properties,
            one.body,
            one.persistent,
            one.published_at,
            one.expires_at,
        )
        for one in messages
    ]


@given(MESSAGES.filter(bool), st.booleans(), st.booleans())
def test_blocks_come_back_as_they_were(values: list[tuple[Any, ...]], expires: bool, gaps: bool) -> None:
    """Blocks are read back unchanged, for any common fields, and from the reference implementation, too."""
    messages = [Message(*(*value, NOW + place % 2)) for place, value in enumerate(values)]
    for place, message in enumerate(messages, 1):
        message.seq, message.persistent = place * (1 + gaps), True
        message.expires_at = NOW + 60 if expires and place % 2 else 0.0
    block = messages_block(7, messages, new=True)
    content = Content(b"".join([bytes(block.head), *block.buffers]))
    assert described(content.messages()) == described(messages)
    assert (content.head.queue, content.head.rows, content.last) == (7, len(messages), messages[-1].seq)
    if content.head.flags & COLUMNS:
        columns = content.columns()
        names = [content.octets[start:end].decode() for start, end in columns.exchange.spans()]
        own = [content.octets[start:end] for start, end in columns.properties.spans()]
        key, body = columns.routing_key, columns.body
        again = reference.from_columns(
            content.octets, columns.seq, columns.published, columns.expires, names, own,
            key.start, key.offsets, body.start, body.offsets, len(messages),
        )  # fmt: skip
        assert described(again) == described(messages)


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 9), st.integers(-(1 << 62), 1 << 62), st.integers(0, 3))
def test_columns_grow(sizes: list[int], begin: int, first: int, step: int) -> None:
    offsets = array("i", itertools.accumulate(sizes, initial=begin))
    grown = []
    for module in (kernel, reference):
        column, numbers = bytearray(array("i", [0, 7]).tobytes()), bytearray()
        module.append_offsets(column, memoryview(offsets))
        module.append_numbers(column, first % 1000, step, len(sizes), True)
        module.append_numbers(numbers, first, step, len(sizes))
        grown.append((column, numbers))
    assert grown[0] == grown[1]
    assert [*memoryview(grown[0][0]).cast("i")][1 : len(sizes) + 2] == [7 + offset - begin for offset in offsets]
