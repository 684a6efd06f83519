"""The compiled kernel agrees with its reference implementation, for any input of a client."""

import itertools
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amqp.field_tables import nested
from tests.amqp.streams import (
    HEADERS,
    MALFORMED_PROPERTIES,
    MESSAGES,
    PROPERTIES,
    WHOLE,
    damaged,
    method_frame,
    publication,
)
from tests.generating import examples
from tests.wire import BODY, HEADER, content_header, frame

from jumpmq.amqp import _reference as reference
from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, MalformedFrame
from jumpmq.amqp.events import Ack, Publish, RawFrame
from jumpmq.amqp.fields import MAX_DEPTH, Field
from jumpmq.amqp.frames import with_entries, with_header
from jumpmq.amqp.properties import Properties

kernel: ModuleType = pytest.importorskip("jumpmq.amqp._kernel", reason="the compiled kernel is not built")
IMPLEMENTATIONS = pytest.mark.parametrize("module", [kernel, reference], ids=["kernel", "reference"])

NOW = 1_700_000_000.25


def shown(event: Any) -> tuple[Any, ...]:
    """An event as plain values."""
    match event:
        case Publish():
            messages = [content(message) for message in event.messages]
            head = (event.channel, event.exchange, event.mandatory, event.immediate, event.flags, event.size)
            return ("publish", *map(_typed, head), messages)
        case Ack():
            return ("ack", event.channel, event.tags, _typed(event.multiple))
        case AMQPError():
            return (type(event), event.text)
    return ("frame", event.type, event.channel, event.payload)


def _typed(value: Any) -> tuple[type, Any]:
    return type(value), value


def content(message: Any) -> tuple[Any, ...]:
    """All fields of a message, except its position."""
    return (
        message.exchange, message.routing_key, message.properties, message.body, bool(message.persistent),
        message.published_at, message.expires_at, message.seq, bool(message.redelivered),
    )  # fmt: skip


def scanned(
    module: ModuleType, octets: bytes | bytearray | memoryview, frame_max: int = 131072
) -> tuple[list[Any], int]:
    events, used = module.scan(octets, frame_max, NOW)
    return list(map(shown, events)), used


@settings(max_examples=examples(200))
@given(damaged(), st.sampled_from([131072, 4096, 40, 28]))
def test_scan(octets: bytes, frame_max: int) -> None:
    assert scanned(kernel, octets, frame_max) == scanned(reference, octets, frame_max)


@given(WHOLE)
def test_scan_reads_a_memoryview_and_a_bytearray_as_it_reads_bytes(octets: bytes) -> None:
    for module in (kernel, reference):
        assert scanned(module, octets) == scanned(module, bytearray(octets)) == scanned(module, memoryview(octets))


@IMPLEMENTATIONS
def test_a_run_of_publishes_is_one_event(module: ModuleType) -> None:
    octets = b"".join(publication(1, b"flights", b"N%d" % i, b"x" * i, PROPERTIES[i % 3]) for i in range(5))
    (run,), used = module.scan(octets, 131072, NOW)
    assert used == len(octets)
    assert (run.channel, run.exchange, run.flags, run.size) == (1, "flights", 0x1000, 10)
    assert [(one.routing_key, len(one.body), one.persistent) for one in run.messages] == [
        (b"N0", 0, False), (b"N1", 1, True), (b"N2", 2, False), (b"N3", 3, False), (b"N4", 4, True),
    ]  # fmt: skip
    assert {one.published_at for one in run.messages} == {NOW}


@IMPLEMENTATIONS
def test_a_run_ends_with_the_channel_the_exchange_and_the_bits(module: ModuleType) -> None:
    octets = (
        publication(1, b"a", b"", b"")
        + publication(2, b"a", b"", b"")
        + publication(2, b"b", b"", b"")
        + publication(2, b"b", b"", b"", bits=1)
    )
    assert [(one.channel, one.exchange, one.mandatory) for one in module.scan(octets, 131072, NOW)[0]] == [
        (1, "a", False), (2, "a", False), (2, "b", False), (2, "b", True),
    ]  # fmt: skip


@IMPLEMENTATIONS
def test_acks_are_one_event_but_multiple_stands_alone(module: ModuleType) -> None:
    acks = [(1, False), (2, False), (9, True), (10, False)]
    octets = b"".join(method_frame(7, m.BasicAck(tag, multiple)) for tag, multiple in acks)
    events, _ = module.scan(octets, 131072, NOW)
    assert [(one.channel, one.tags, one.multiple) for one in events] == [
        (7, [1, 2], False), (7, [9], True), (7, [10], False),
    ]  # fmt: skip


@IMPLEMENTATIONS
def test_runs_have_a_largest_size(module: ModuleType) -> None:
    publishes, _ = module.scan(publication(1, b"", b"q", b"") * 5000, 131072, NOW)
    acks, _ = module.scan(method_frame(1, m.BasicAck(1)) * 5000, 131072, NOW)
    assert [len(one.messages) for one in publishes] == [4096, 904]
    assert [len(one.tags) for one in acks] == [4096, 904]


@IMPLEMENTATIONS
def test_a_publish_that_is_not_yet_whole_is_handed_over_frame_by_frame(module: ModuleType) -> None:
    octets = publication(1, b"", b"q", b"body")
    method_only = octets[: octets.index(b"\xce") + 1]
    for end in range(len(method_only), len(octets)):
        events, used = module.scan(octets[:end], 131072, NOW)
        assert isinstance(events[0], RawFrame)
        assert used <= end


@IMPLEMENTATIONS
@pytest.mark.parametrize("announced", [(1 << 64) - 1, (1 << 64) - 8, (1 << 63), 1 << 32])
def test_a_body_that_no_memory_holds_is_not_looked_for(module: ModuleType, announced: int) -> None:
    octets = publication(1, b"", b"q", b"", announced=announced)
    events, used = module.scan(octets, 131072, NOW)
    assert [type(event) for event in events] == [RawFrame, RawFrame]
    assert used == len(octets)


@IMPLEMENTATIONS
@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (frame(0, 1, b""), "type 0, unknown frame type"),
        (b"GET / HTTP/1.1\r\n", "type 71, unknown frame type"),
        (frame(BODY, 1, b"", size=4089), "type 3, frame_too_large: 4097 octets, frame_max 4096"),
        (frame(HEADER, 1, b"x", end=b"\0"), "type 2, invalid frame end marker 0"),
    ],
    ids=["unknown type", "http", "too large", "end"],
)
def test_a_malformed_frame_ends_the_reading(module: ModuleType, octets: bytes, text: str) -> None:
    before = method_frame(1, m.BasicAck(1))
    events, used = module.scan(before + octets + before, 4096, NOW)
    assert used == len(before)
    assert isinstance(events[-1], MalformedFrame)
    assert (len(events), events[-1].text) == (2, text)


# --- properties ---


@settings(max_examples=examples(200))
@given(st.sampled_from(PROPERTIES + MALFORMED_PROPERTIES).flatmap(lambda octets: damaged(st.just(octets))))
def test_check_properties(octets: bytes) -> None:
    assert kernel.check_properties(octets) == reference.check_properties(octets)


@given(st.binary(max_size=40).map(lambda octets: b"\x20\x00" + len(octets).to_bytes(4) + octets))
def test_check_properties_with_any_headers(octets: bytes) -> None:
    assert kernel.check_properties(octets) == reference.check_properties(octets)


@IMPLEMENTATIONS
def test_check_properties_answers_the_delivery_mode(module: ModuleType) -> None:
    assert [module.check_properties(octets) for octets in PROPERTIES] == [0, 2, 1, 2, 0]
    assert {module.check_properties(octets) for octets in MALFORMED_PROPERTIES} == {-1}
    assert module.check_properties(HEADERS) == 0


@IMPLEMENTATIONS
@pytest.mark.parametrize(("depth", "answer"), [(MAX_DEPTH, 0), (MAX_DEPTH + 1, -1), (50_000, -1)])
def test_headers_nest_so_deep_and_no_deeper(module: ModuleType, depth: int, answer: int) -> None:
    assert module.check_properties(b"\x20\x00" + nested(depth)) == answer


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=6),
            st.none() | st.sampled_from([b"", *PROPERTIES, *MALFORMED_PROPERTIES, HEADERS]),
            st.binary(max_size=9),
        ),
        max_size=20,
    ),
    st.integers(0, 5),
    st.integers(0, 40),
    st.booleans(),
)
def test_messages_of_rows(rows: list[Any], first: int, most: int, persistent: bool) -> None:
    columns = [cells([row[place] for row in rows]) for place in range(3)]

    def made(module: ModuleType) -> list[Any]:
        start = min(first, len(rows))
        keys, properties, bodies = columns
        asked = ("e", keys, b"key", properties, b"\0\0", bodies, start, len(rows) - start, most, persistent, NOW)
        return [content(message) for message in module.messages_of_rows(*asked)]

    assert made(kernel) == made(reference)


def cells(values: list[bytes | None]) -> tuple[bytes | None, bytes, bytes]:
    """An Arrow column of binary values, as its buffers."""
    ends = itertools.accumulate((len(value or b"") for value in values), initial=0)
    bits = sum(1 << row for row, value in enumerate(values) if value is not None)
    return bits.to_bytes(len(values) // 8 + 1, "little"), array("i", ends).tobytes(), b"".join(v or b"" for v in values)


@IMPLEMENTATIONS
def test_rows_that_make_no_messages_are_errors(module: ModuleType) -> None:
    def made(keys: Any, key: bytes | None, bodies: Any) -> list[Any]:
        found: list[Any] = module.messages_of_rows("e", keys, key, None, b"\0\0", bodies, 0, 1, 99, True, NOW)
        return found

    whole, null = cells([b"body"]), cells([None])
    assert [message.routing_key for message in made(None, b"k", whole)] == [b"k"]
    for keys, key, bodies in [(None, None, whole), (null, None, whole), (None, b"k", null)]:
        with pytest.raises(ValueError, match="null"):
            made(keys, key, bodies)
    with pytest.raises(ValueError, match="outside its octets"):
        made(None, b"k", (None, array("i", [0, 5]).tobytes(), b"body"))
    with pytest.raises(ValueError, match="column"):
        made(None, b"k", (None, array("i", [0]).tobytes(), b"body"))


@given(st.lists(st.sampled_from(PROPERTIES + MALFORMED_PROPERTIES[:1]), max_size=6))
def test_examine(properties: list[bytes]) -> None:
    def examined(module: ModuleType) -> Any:
        messages = [module.Message("e", b"k", octets, b"") for octets in properties]
        flags, acted_on = module.examine(messages)
        return flags, [messages.index(one) for one in acted_on], [bool(one.persistent) for one in messages]

    assert examined(kernel) == examined(reference)


# --- messages ---


def made(module: ModuleType, values: list[tuple[Any, ...]]) -> list[Any]:
    return [module.Message(*value, NOW) for value in values]


@given(
    MESSAGES,
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.binary(max_size=255),
    st.integers(1, 1 << 40),
    st.sampled_from([9, 12, 50, 4096]),
)
def test_encode_deliveries(
    values: list[tuple[Any, ...]], redelivered: list[bool], consumer_tag: bytes, first_tag: int, frame_max: int
) -> None:
    encoded = []
    for module in (kernel, reference):
        messages = made(module, values)
        for message, again in zip(messages, redelivered, strict=False):
            message.redelivered = again
        encoded.append(module.encode_deliveries(messages, 3, consumer_tag, first_tag, frame_max))
    assert encoded[0] == encoded[1]


def decoded(module: ModuleType, octets: bytes, at: int) -> tuple[Any, ...]:
    """Decoded deliveries as plain values."""
    tag, messages, end = module.decode_deliveries(octets, at)
    return tag, list(map(content, messages)), end


@given(
    st.lists(st.tuples(MESSAGES, st.binary(max_size=9)), max_size=3),
    st.lists(st.booleans(), max_size=9),
    st.integers(1, 1 << 40),
    st.sampled_from([9, 50, 4096]),
    st.data(),
)
def test_decode_deliveries(
    runs: list[tuple[Any, bytes]], redelivered: list[bool], first_tag: int, frame_max: int, data: st.DataObject
) -> None:
    """Kernel and reference decode the encoded messages, for several consumers in sequence, and agree on damaged
    octets.
    """
    octets, expected = b"head", []
    for values, tag in runs:
        messages = made(kernel, values)
        for number, message in enumerate(messages, first_tag):
            message.redelivered = bool(redelivered and redelivered[number % len(redelivered)])
            expected.append((tag, number, bool(message.redelivered), message.exchange, message.body))
        octets += b"".join(kernel.encode_deliveries(messages, 3, tag, first_tag, frame_max))
    found, at = [], 4
    while at < len(octets):
        tag, messages, end = kernel.decode_deliveries(octets, at)
        assert decoded(kernel, octets, at) == decoded(reference, octets, at)
        if not messages:  # a body of several frames
            assert frame_max < 4096
            break
        found += [(tag, one.seq, bool(one.redelivered), one.exchange, one.body) for one in messages]
        at = end
    assert found == expected[: len(found)]
    assert frame_max < 4096 or len(found) == len(expected)
    if len(octets) > 4:
        changed = bytearray(octets)
        changed[data.draw(st.integers(4, len(octets) - 1))] = data.draw(st.integers(0, 255))
        short = bytes(changed[: data.draw(st.integers(4, len(octets)))])
        for damaged_octets in (bytes(changed), short):
            assert decoded(kernel, damaged_octets, 4) == decoded(reference, damaged_octets, 4)


def test_delivery_tags_of_64_bits() -> None:
    """The kernel keeps the number of a message as a signed integer."""
    octets = b"".join(kernel.encode_deliveries([kernel.Message("", b"", b"\0\0", b"")], 1, b"t", 1 << 63 | 2, 4096))
    assert decoded(kernel, octets, 0) == decoded(reference, octets, 0)
    assert relayed(kernel, octets, 0, 1, 4096, True) == relayed(reference, octets, 0, 1, 4096, True)


def relayed(module: ModuleType, octets: bytes, at: int, tag: int, frame_max: int, held: bool) -> tuple[Any, ...]:
    """Relayed deliveries as plain values; all other octets are unchanged."""
    relayed = bytearray(octets)
    messages, *rest, end = module.relay_deliveries(relayed, at, tag, frame_max, "q", "c", held)
    assert relayed[:at] == octets[:at]
    assert relayed[end:] == octets[end:]
    return (
        bytes(relayed[at:end]),
        [(one.seq, bool(one.redelivered), one.queue, one.consumer) for one in messages],
        *rest,
        end,
    )


@given(
    st.lists(st.tuples(MESSAGES, st.binary(max_size=9)), max_size=3),
    st.lists(st.booleans(), max_size=9),
    st.integers(1, 1 << 40),
    st.integers(1, 1 << 40),
    st.sampled_from([50, 200, 4096]),
    st.data(),
)
def test_relay_deliveries(
    runs: list[tuple[Any, bytes]],
    redelivered: list[bool],
    first_tag: int,
    new_tag: int,
    frame_max: int,
    data: st.DataObject,
) -> None:
    """Relaying equals decoding and encoding with the new tags; kernel and reference agree on damaged octets."""
    octets = b"head"
    for values, tag in runs:
        messages = made(kernel, values)
        for number, message in enumerate(messages):
            message.redelivered = bool(redelivered and redelivered[number % len(redelivered)])
        octets += b"".join(kernel.encode_deliveries(messages, 3, tag, first_tag, 4096))
    at = 4
    while at < len(octets):
        tag, messages, end = kernel.decode_deliveries(octets, at)
        found = relayed(kernel, octets, at, new_tag, frame_max, True)
        frames, held, count, again, relayed_end = found
        assert found == relayed(reference, octets, at, new_tag, frame_max, True)
        assert relayed(kernel, octets, at, new_tag, frame_max, False) == (frames, [], count, again, relayed_end)
        assert frames == b"".join(kernel.encode_deliveries(messages[:count], 3, tag, new_tag, frame_max))
        assert held == [(one.seq, bool(one.redelivered), "q", "c") for one in messages[:count]]
        assert again == sum(one.redelivered for one in messages[:count])
        assert count == len(messages) or frame_max < 4096
        assert (relayed_end == end) == (count == len(messages))
        at = end
    if len(octets) > 4:
        changed = bytearray(octets)
        changed[data.draw(st.integers(4, len(octets) - 1))] = data.draw(st.integers(0, 255))
        short = bytes(changed[: data.draw(st.integers(4, len(octets)))])
        for damaged in (bytes(changed), short):
            one = relayed(kernel, damaged, 4, new_tag, frame_max, True)
            assert one == relayed(reference, damaged, 4, new_tag, frame_max, True)


@given(MESSAGES, st.integers(0, 3), st.binary(max_size=255))
def test_deliveries_with_headers_added(values: list[tuple[Any, ...]], attempts: int, value: bytes) -> None:
    """Headers added to the messages of all slots, or of a slot, follow the messages' own headers."""
    entries = [b"\x07x-queueS" + len(one).to_bytes(4) + one for one in (value, b"other")]
    encoded = []
    for module in (kernel, reference):
        messages = made(module, values)
        for place, message in enumerate(messages):
            message.attempts, message.redelivered, message.slot = attempts, True, place % 2
        before = [message.properties for message in messages]
        kinds: list[Any] = [entries[0], dict(enumerate(entries))]
        encoded += [module.encode_deliveries(messages, 3, b"t", 1, 4096, added) for added in kinds]
        assert [message.properties for message in messages] == before
    assert encoded[:2] == encoded[2:]
    for each in (bytes, dict):
        dressed = made(reference, values)
        for place, message in enumerate(dressed):
            message.attempts, message.redelivered = attempts, True
            message.properties = with_entries(message.properties, entries[place % 2 if each is dict else 0])
        assert b"".join(encoded[each is dict]) == b"".join(reference.encode_deliveries(dressed, 3, b"t", 1, 4096))
    with pytest.raises(KeyError):
        kernel.encode_deliveries([kernel.Message("", b"", b"\0\0", b"")], 1, b"t", 1, 4096, {1: b""})


@given(
    st.lists(st.sampled_from([0, 10, 4095, 4096, 5000, 20_000]), max_size=6),
    st.sampled_from([4096, 4104, 8192, 131072]),
)
def test_encode_deliveries_with_large_bodies(sizes: list[int], frame_max: int) -> None:
    values = [("e", b"k", b"\0\0", bytes([place]) * size, False) for place, size in enumerate(sizes)]
    encoded = [module.encode_deliveries(made(module, values), 3, b"t", 7, frame_max) for module in (kernel, reference)]
    assert encoded[0] == encoded[1]
    whole = [
        reference.encode_deliveries([one], 3, b"t", tag, frame_max)
        for tag, one in enumerate(made(reference, values), 7)
    ]
    assert b"".join(encoded[0]) == b"".join(b"".join(one) for one in whole)


@IMPLEMENTATIONS
def test_a_large_body_is_not_copied_into_its_frames(module: ModuleType) -> None:
    body = bytes(10_000)
    messages = [module.Message("e", b"k", b"\0\0", one) for one in (b"small", body, b"small", body)]
    buffers = module.encode_deliveries(messages, 1, b"t", 1, 131072)
    assert [len(buffers), sum(buffer is body or getattr(buffer, "obj", None) is body for buffer in buffers)] == [5, 2]


@IMPLEMENTATIONS
def test_a_body_is_gathered_from_pieces(module: ModuleType) -> None:
    body = module.Body(5)
    for piece in (b"ab", memoryview(b"c"), b"", memoryview(bytearray(b"de"))):
        with pytest.raises(ValueError, match="missing"):
            body.whole()
        body.add(piece)
    assert (body.missing, body.whole()) == (0, b"abcde")
    with pytest.raises(ValueError, match="more octets"):
        body.add(b"f")


@IMPLEMENTATIONS
def test_a_body_takes_what_was_written_to_its_room(module: ModuleType) -> None:
    body = module.Body(5)
    body.add(b"a")
    body.room()[:3] = b"bcd"
    body.placed(3)
    assert body.missing == len(body.room()) == 1
    for count in (2, -1):
        with pytest.raises(ValueError, match="more octets"):
            body.placed(count)
    body.add(b"e")
    assert body.whole() == b"abcde"


@IMPLEMENTATIONS
def test_a_delivery_written_out(module: ModuleType) -> None:
    message = module.Message("logs", b"info", b"\x10\x00\x02", b"abcde")
    message.redelivered = True
    assert b"".join(module.encode_deliveries([message], 1, b"t", 7, 11)) == (
        frame(1, 1, b"\x00\x3c\x00\x3c\x01t\x00\x00\x00\x00\x00\x00\x00\x07\x01\x04logs\x04info")
        + frame(HEADER, 1, content_header(5, b"\x10\x00\x02"))
        + frame(BODY, 1, b"abc")
        + frame(BODY, 1, b"de")
    )


@given(MESSAGES, st.integers(0, 3), st.binary(max_size=255), st.integers(0, 1 << 40), st.sampled_from([9, 50, 4096]))
def test_encode_rows(values: list[tuple[Any, ...]], start: int, tag: bytes, offset: int, frame_max: int) -> None:
    """Rows of columns are delivered as messages with an additional header."""
    buffers: list[Any] = []
    for column in ([value[0].encode() for value in values], *([value[at] for value in values] for at in (1, 2, 3))):
        buffers += [array("i", itertools.accumulate(map(len, column), initial=0)).tobytes(), b"".join(column)]
    start = min(start, len(values))
    encoded = [
        module.encode_rows(buffers, start, len(values), offset, 7, tag, 5, frame_max) for module in (kernel, reference)
    ]
    numbered: list[Any] = [
        reference.Message(one[0], one[1], with_header(one[2], b"x-stream-offset", offset + place), one[3])
        for place, one in enumerate(values[start:])
    ]
    assert encoded[0] == encoded[1] == b"".join(reference.encode_deliveries(numbered, 7, tag, 5, frame_max))


@given(st.sampled_from(PROPERTIES), st.integers(0, 1 << 40))
def test_one_header_more(octets: bytes, value: int) -> None:
    before, after = Properties.parse(octets), Properties.parse(with_header(octets, b"number", value))
    assert after.headers is not None
    assert after.headers.pop() == Field("number", "l", value)
    after.headers = after.headers or before.headers
    assert after.encode() == before.encode()


@given(MESSAGES, st.integers(2, 9))
def test_deliveries_that_are_counted(values: list[tuple[Any, ...]], attempts: int) -> None:
    encoded = []
    for module in (kernel, reference):
        messages = made(module, values)
        for message in messages:
            message.attempts = attempts
        encoded.append(module.encode_deliveries(messages, 3, b"tag", 1, 4096))
    assert encoded[0] == encoded[1]
    assert b"".join(encoded[0]).count(b"x-delivery-count") >= len(values)


@IMPLEMENTATIONS
def test_a_new_message_is_nowhere(module: ModuleType) -> None:
    message = module.Message("e", b"k", b"\0\0", b"b")
    assert (message.persistent, message.published_at, message.expires_at) == (False, 0.0, 0.0)
    assert (message.seq, message.redelivered) == (0, False)
    assert (message.queue, message.consumer, message.batch) == (None, None, None)


@IMPLEMENTATIONS
def test_a_copy_shares_the_content_and_is_in_no_queue(module: ModuleType) -> None:
    message = module.Message("e", b"k", b"\x10\x00\x02", b"b", True, NOW)
    message.seq, message.queue, message.consumer, message.batch = 7, "queue", "consumer", "batch"
    message.redelivered, message.expires_at = True, NOW + 1
    copy = message.copy()
    assert content(copy) == ("e", b"k", b"\x10\x00\x02", b"b", True, NOW, 0.0, 0, False)
    assert (copy.queue, copy.consumer, copy.batch) == (None, None, None)
    assert copy.body is message.body
