"""The compiled kernel gives the same results as the reference implementation."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queues import reference

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import xxh64
from jumpmq.queues import _kernel as kernel
from jumpmq.queues.memory import PAGED

IMPLEMENTATIONS = pytest.mark.parametrize("module", [kernel, reference], ids=["kernel", "reference"])

NOW = 1_700_000_000.25


class Settled:
    """Replaces a message's batch, and records settled ranges."""

    def __init__(self) -> None:
        self.seqs: list[int] = []

    def settle_range(self, first: int, last: int) -> None:
        self.seqs += range(first, last + 1)


@given(
    st.lists(st.sampled_from([(b"\0\0", 0), (b"\x08\0\x03", 3), (b"\x18\0\x02\x09", 9), (b"\x88\0\x01a\x05", 5)])),
    st.integers(0, 10),
    st.integers(0, 10),
)
def test_by_priority(published: list[tuple[bytes, int]], highest: int, above: int) -> None:
    messages = [Message("", b"", properties, b"") for properties, _ in published]
    expected: dict[int, list[Message]] = {}
    for message, (_, priority) in zip(messages, published, strict=True):
        expected.setdefault(min(max(priority - above, 0), highest), []).append(message)
    for module in (kernel, reference):
        assert module.by_priority(messages, highest, above) == expected


@given(st.lists(st.integers(0, 3)))
def test_by_destination(places: list[int]) -> None:
    items, order = list(range(len(places))), ["a", "b", "c", "d"]
    expected: dict[str, list[int]] = {}
    for item, place in zip(items, places, strict=True):
        expected.setdefault(order[place], []).append(item)
    for module in (kernel, reference):
        found = module.by_destination(items, places, order)
        assert list(found.items()) == list(expected.items())


def test_a_priority_behind_headers() -> None:
    properties = Properties(content_type="a", content_encoding="b", headers=[Field("h", "S", "x" * 300)], priority=7)
    message = Message("", b"", properties.encode(), b"")
    assert kernel.by_priority([message], 255) == reference.by_priority([message], 255) == {7: [message]}


@IMPLEMENTATIONS
def test_enter_queue_numbers_messages_and_copies_those_of_another_queue(module: ModuleType) -> None:
    new, old = Message("e", b"k", b"\0\0", b"new"), Message("e", b"k", b"\0\0", b"old")
    old.queue, old.seq, old.expires_at = "other", 3, NOW
    first, second = module.enter_queue([new, old], "queue", 10)
    assert (first is new, second is old) == (True, False)
    assert [(one.queue, one.seq, one.body, one.expires_at) for one in (first, second, old)] == [
        ("queue", 10, b"new", 0.0), ("queue", 11, b"old", NOW), ("other", 3, b"old", NOW),
    ]  # fmt: skip


@IMPLEMENTATIONS
def test_the_persistent_ones_are_the_very_list_where_all_are(module: ModuleType) -> None:
    kept = [Message("", b"", b"\0\0", b"", True) for _ in range(2)]
    passing = Message("", b"", b"\0\0", b"")
    assert module.persistent(kept) is kept
    assert module.persistent([kept[0], passing, kept[1], passing]) == kept
    assert module.persistent([passing]) == module.persistent([]) == []


@IMPLEMENTATIONS
def test_what_carries_a_header_of_a_name(module: ModuleType) -> None:
    plain = Message("", b"", b"\0\0", b"")
    with_header = Message("", b"", b"\x20\0\0\0\0\x04\x01ab\0", b"")
    assert not module.carries([], b"a")
    assert not module.carries([plain, plain], b"a")
    assert module.carries([plain, with_header], b"a")
    assert not module.carries([plain, with_header], b"longer")


@IMPLEMENTATIONS
@pytest.mark.parametrize("count", [0, 1, 11, 12, 13, 24, 100])
def test_what_has_this_very_body(module: ModuleType, count: int) -> None:
    paged = bytes(bytearray(b"on disk"))
    equal = bytes(bytearray(paged))
    messages = [Message("", b"", b"\0\0", paged if place % 3 else equal) for place in range(count)]
    assert module.of_body(messages, paged) == [one for place, one in enumerate(messages) if place % 3]
    assert module.body_octets(messages) == 7 * count


@IMPLEMENTATIONS
@pytest.mark.parametrize(("last", "taken"), [(1, []), (2, [2]), (4, [2, 4]), (6, [2, 4, 5]), (1 << 63, [2, 4, 5, 9])])
def test_tags_up_to_one_are_taken(module: ModuleType, last: int, taken: list[int]) -> None:
    waiting = {tag: f"message {tag}" for tag in (2, 4, 5, 9)}
    assert module.split_upto(waiting, last) == {tag: f"message {tag}" for tag in taken}
    assert list(waiting) == [tag for tag in (2, 4, 5, 9) if tag not in taken]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 2)), max_size=12))
def test_runs_by_holder_and_settling(held: list[tuple[str, str, int]]) -> None:
    seen = []
    for module in (kernel, reference):
        messages, batches = [Message("", b"", b"\0\0", b"x" * size) for _, _, size in held], [Settled(), Settled()]
        for seq, (message, (consumer, queue, place)) in enumerate(zip(messages, held, strict=True), 1):
            message.seq, message.queue, message.consumer = seq, queue, consumer
            message.batch = batches[place] if place < 2 else None
        module.settle_stored(messages)
        runs = [(consumer, queue, [one.seq for one in run]) for consumer, queue, run in module.by_holder(messages)]
        module.set_consumer(messages, "c")
        assert all(message.consumer == "c" for message in messages)
        for place, batch in enumerate(batches):
            assert batch.seqs == [seq for seq, one in enumerate(held, 1) if one[2] == place]
        seen.append((runs, [batch.seqs for batch in batches], module.body_octets(messages)))
    assert seen[0] == seen[1]
    assert [seq for _, _, run in seen[0][0] for seq in run] == list(range(1, len(held) + 1))


@IMPLEMENTATIONS
@given(held=st.sets(st.integers(1, 40)), tags=st.lists(st.integers(1, 1 << 63), max_size=3).flatmap(st.permutations))
def test_claims_end_at_an_unknown_tag(module: ModuleType, held: set[int], tags: list[int]) -> None:
    tags = [*sorted(held)[:20], *tags, 41]
    messages = {tag: Message("", b"", b"\0\0", b"") for tag in held}
    pieces: dict[int, dict[int, Message]] = {}
    for tag in sorted(held):
        pieces.setdefault(tag >> 3, {})[tag] = messages[tag]
    claimed = module.claim(pieces, tags, 3)
    known = sorted(held)[:20]
    assert claimed[: len(known)] == [messages[tag] for tag in known]
    left = [tag for piece in pieces.values() for tag in piece]
    assert len(left) == len(held) - len(claimed)
    assert all(pieces.values())
    with pytest.raises((OverflowError, TypeError)):
        module.claim(pieces, ["1"], 3)


@IMPLEMENTATIONS
@given(held=st.sets(st.integers(1, 40)), tags=st.lists(st.integers(0, (1 << 63) - 1) | st.integers(0, 45), max_size=30))
def test_packed_tags_that_are_known_are_claimed(module: ModuleType, held: set[int], tags: list[int]) -> None:
    messages = {tag: Message("", b"", b"\0\0", b"") for tag in held.union(tags)}
    for tag, message in messages.items():
        message.seq = tag
    pieces: dict[int, dict[int, Message]] = {}
    for tag in sorted(held):
        pieces.setdefault(tag >> 3, {})[tag] = messages[tag]
    packed = b"head" + module.packed_seqs([messages[tag] for tag in tags])
    claimed = module.claim_packed(pieces, packed, 4, 3)
    assert [one.seq for one in claimed] == [tag for tag in dict.fromkeys(tags) if tag in held]
    assert {tag for piece in pieces.values() for tag in piece} == held.difference(tags)
    assert all(pieces.values())
    assert module.claim_packed(pieces, packed[:8], 4, 3) == []


@IMPLEMENTATIONS
def test_the_highest_number(module: ModuleType) -> None:
    messages = [Message("", b"", b"\0\0", b"") for _ in range(3)]
    for one, seq in zip(messages, (4, 9, 2), strict=True):
        one.seq = seq
    assert (module.highest_seq(messages), module.highest_seq([])) == (9, 0)


@IMPLEMENTATIONS
def test_slots_of_messages(module: ModuleType) -> None:
    messages = [Message("", b"k%d" % (number % 3), b"\0\0", b"") for number in range(9)]
    module.set_slots(messages, None, 1000, 5)
    assert [one.slot for one in messages[:3]] == [xxh64(b"k%d" % number, 5) % 1000 for number in range(3)]
    assert module.by_slot(messages) == {messages[number].slot: messages[number::3] for number in range(3)}
    module.set_slots(messages[:2], [b"a", b"b"], 7, 5)
    assert [one.slot for one in messages[:2]] == [xxh64(b"a", 5) % 7, xxh64(b"b", 5) % 7]


@IMPLEMENTATIONS
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "e", "\udcff", "x" * 255]),
            st.binary(max_size=255),
            st.binary(max_size=40),
            st.binary(max_size=40) | st.sampled_from([bytes(16383), bytes(16384), bytes(70000)]),
            st.booleans(),
            st.sampled_from([0.0, NOW - 5, NOW + 60.5]),
        ),
        max_size=6,
    )
)
def test_packed_messages_are_the_same_at_the_other_end(
    module: ModuleType, values: list[tuple[str, bytes, bytes, bytes, bool, float]]
) -> None:
    messages = []
    for exchange, key, properties, body, persistent, expires_at in values:
        message = Message(exchange, key, properties, body, persistent, NOW)
        message.expires_at = expires_at
        messages.append(message)
    buffers = module.pack(messages, NOW)
    assert [bytes(one) for one in buffers] == [bytes(one) for one in reference.pack(messages, NOW)]
    octets = b"before" + b"".join(buffers)
    found, end = module.unpack(octets, 6, len(messages), NOW + 1, NOW + 10)
    assert end == len(octets)
    for message, copy in zip(messages, found, strict=True):
        assert (copy.exchange, copy.routing_key, copy.properties, copy.body, copy.persistent, copy.published_at) == (
            message.exchange, message.routing_key, message.properties, message.body, message.persistent, NOW + 1,
        )  # fmt: skip
        left = max(0.0, message.expires_at - NOW)
        assert copy.expires_at == (NOW + 10 + left if message.expires_at else 0.0)
    for cut in {len(octets) - 1, 7} if messages else ():
        with pytest.raises(ValueError, match="cut short"):
            module.unpack(octets[:cut], 6, len(messages), NOW, NOW)


FIELDS = ("exchange", "routing_key", "properties", "body", "persistent", "published_at", "expires_at")
STATE = ("seq", "redelivered", "attempts", "slot", "queue", "batch")


@st.composite
def runs_of_messages(draw: st.DrawFn) -> list[Message]:
    """Return mostly equal messages, with some differences and gaps in the numbers."""
    first = draw(st.integers(1, 1 << 60))
    messages = []
    for number in range(draw(st.integers(0, 20))):
        body = draw(st.binary(max_size=20) | st.just(PAGED))
        message = Message(draw(rarely("", "e")), draw(st.binary(max_size=4)), draw(st.binary(max_size=9)), body)
        message.persistent, message.redelivered = draw(rarely(True, False)), draw(rarely(False, True))
        message.attempts, message.slot = draw(rarely(1, 2)), draw(rarely(0, 7))
        message.published_at = draw(st.integers(0, 1 << 50)) / 1e6
        message.expires_at = draw(rarely(0.0, NOW + 5.25))
        message.seq, message.queue = first + number + draw(rarely(0, 1)), BATCHES
        message.batch = draw(st.sampled_from([None, *BATCHES]))
        messages.append(message)
    return messages


def rarely(usual: Any, other: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 15 + [other])


BATCHES = [object(), object()]


@given(runs_of_messages(), st.integers(1, 4), st.sampled_from([0, 40, 1 << 20]))
def test_messages_laid_out_are_the_same_again(messages: list[Message], least: int, most: int) -> None:
    rest, other = messages.copy(), messages.copy()
    layout, expected = kernel.lay_out(rest, PAGED, least, most), reference.lay_out(other, PAGED, least, most)
    assert rest == other
    if layout is None:
        assert expected is None
        assert rest == messages
        return
    assert layout[1:] == expected[1:]
    for like in (layout[0], expected[0]):
        assert [getattr(like, name) for name in STATE[:5]] == [getattr(messages[0], name) for name in STATE[:5]]
    count, batches = layout[1], layout[6]
    columns: Any = layout[3:6]  # made of bytearrays; the store's own columns may have other types
    times, expiries, binary = columns
    found = kernel.from_layout(layout[0], count, times, expiries, binary, batches)
    again = reference.from_layout(expected[0], count, times, expiries, binary, batches)
    assert messages[count:] == rest
    for message, one, second in zip(messages[:count], found, again, strict=True):
        values = [getattr(message, name) for name in FIELDS + STATE]
        assert [getattr(one, name) for name in FIELDS + STATE] == values
        assert [getattr(second, name) for name in FIELDS + STATE] == values


@given(runs_of_messages())
def test_runs_of_a_batch(messages: list[Message]) -> None:
    assert kernel.ends_of_runs(messages) == reference.ends_of_runs(messages)
    assert kernel.last_redelivered(messages) == reference.last_redelivered(messages)


def test_more_octets_than_are_copied_at_once_stay_in_their_messages() -> None:
    messages = [Message("", b"", b"", bytes(10)) for _ in range(600)]
    for seq, message in enumerate(messages):
        message.seq = seq
    for module in (kernel, reference):
        rest = messages.copy()
        layout = module.lay_out(rest, PAGED, 64, 5200)
        assert (layout[1], rest) == (512, messages[512:])
        assert module.lay_out(messages.copy(), PAGED, 64, 2000) is None
