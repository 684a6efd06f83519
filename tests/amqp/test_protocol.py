"""The server's side of a connection: states, channels, contents, and invalid input of a client."""

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amqp.server import HEARTBEAT, NOW, Server, handshake, opened
from tests.amqp.streams import LARGE, METHODS, PIECES, WHOLE, damaged, method_frame, publication, reads
from tests.generating import examples
from tests.wire import BODY, HEADER, METHOD, PROTOCOL_HEADER, content_header, frame

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import ConnectionForced, NotFound
from jumpmq.amqp.messages import Message
from jumpmq.amqp.protocol import MAX_MESSAGE_SIZE, TRANSITIONS, ConnectionState, Failed, ServerProtocol

# --- the connection ---


def test_a_handshake_step_by_step() -> None:
    server = Server()
    states = [server.protocol.state]
    sent: list[Any] = []
    for octets in (
        PROTOCOL_HEADER,
        method_frame(0, m.ConnectionStartOk([], "PLAIN", b"\0guest\0guest")),
        method_frame(0, m.ConnectionTuneOk(100, 8192, 30)),
        method_frame(0, m.ConnectionOpen("/")),
        method_frame(0, m.ConnectionClose()),
    ):
        server.receive(octets)
        states.append(server.protocol.state)
        sent += [type(method) for _, method in server.sent()]
    assert states == [
        ConnectionState.HEADER,
        ConnectionState.START_OK,
        ConnectionState.TUNE_OK,
        ConnectionState.OPEN,
        ConnectionState.RUNNING,
        ConnectionState.CLOSED,
    ]
    assert sent == [m.ConnectionStart, m.ConnectionTune, m.ConnectionOpenOk]
    protocol = server.protocol
    assert (protocol.channel_max, protocol.frame_max, protocol.heartbeat) == (100, 8192, 30)


def in_state(state: ConnectionState) -> ServerProtocol:
    """A protocol in the given state."""
    server = opened() if state in (ConnectionState.RUNNING, ConnectionState.CLOSE_OK) else Server()
    if state is ConnectionState.CLOSE_OK:
        server.protocol.send_close(Failed(ConnectionForced("stop")))
    elif state is not ConnectionState.RUNNING:
        steps = [ConnectionState.HEADER, ConnectionState.START_OK, ConnectionState.TUNE_OK, ConnectionState.OPEN]
        whole = handshake()
        ends = [0, 8]
        while len(ends) < len(steps):
            ends.append(ends[-1] + 8 + int.from_bytes(whole[ends[-1] + 3 : ends[-1] + 7]))
        server.receive(
            whole[: ends[steps.index(ConnectionState.START_OK if state is ConnectionState.AUTHENTICATING else state)]]
        )
        if state is ConnectionState.AUTHENTICATING:
            list(server.protocol.receive(whole[8 : ends[2]], NOW))
    assert server.protocol.state is state
    return server.protocol


CONNECTION_METHODS = [cls for (class_id, _), cls in m.METHODS.items() if class_id == 10]
VALID: dict[type[m.Method], m.Method] = {m.ConnectionTuneOk: m.ConnectionTuneOk(100, 8192, 0)}


@pytest.mark.parametrize("state", TRANSITIONS, ids=lambda state: state.name)
@pytest.mark.parametrize("cls", CONNECTION_METHODS, ids=lambda cls: cls.spec_name)
def test_each_state_knows_what_it_may_receive(state: ConnectionState, cls: type[m.Method]) -> None:
    protocol = in_state(state)
    events = list(protocol.receive(method_frame(0, VALID.get(cls, cls())), NOW))
    if cls in TRANSITIONS[state]:
        assert [type(event).__name__ for event in events] == ["Received"]
        assert protocol.state is TRANSITIONS[state][cls]
    elif state is ConnectionState.CLOSE_OK:
        assert (events, protocol.state) == ([], state)
    else:
        (failed,) = events
        assert isinstance(failed, Failed)
        assert (failed.error.code, failed.class_id, failed.method_id) == (504, cls.class_id, cls.method_id)


@pytest.mark.parametrize("octets", [b"AMQP\x00\x00\x09\x02", b"AMQP\x01\x01\x00\x0a", b"GET / HTTP/1.1\r\n\r\n", b"\0"])
def test_another_protocol_is_told_ours(octets: bytes) -> None:
    server = Server()
    assert server.receive(octets) == [("BadHeader",)]
    assert server.protocol.data_to_send() == [PROTOCOL_HEADER]
    assert server.receive(octets) == server.receive(handshake()) == []


@pytest.mark.parametrize(
    ("tune_ok", "text"),
    [
        (m.ConnectionTuneOk(2047, 131073, 0), "negotiated frame_max = 131073 is higher than the maximum allowed"),
        (m.ConnectionTuneOk(2047, 0, 0), "negotiated frame_max = no limit is higher than the maximum allowed"),
        (m.ConnectionTuneOk(2047, 4095, 0), "negotiated frame_max = 4095 is lower than the minimum allowed"),
        (m.ConnectionTuneOk(2048, 131072, 0), "negotiated channel_max = 2048 is higher than the maximum allowed"),
    ],
    ids=["frames too large", "frames without limit", "frames too small", "too many channels"],
)
def test_limits_are_negotiated_downwards_only(tune_ok: m.ConnectionTuneOk, text: str) -> None:
    protocol = in_state(ConnectionState.TUNE_OK)
    (failed,) = protocol.receive(method_frame(0, tune_ok), NOW)
    assert isinstance(failed, Failed)
    assert failed.error.code == 530
    assert failed.error.text.startswith(text)


def test_channels_wait_for_the_connection() -> None:
    for state in (ConnectionState.START_OK, ConnectionState.TUNE_OK, ConnectionState.OPEN):
        (failed,) = in_state(state).receive(method_frame(1, m.ChannelOpen()), NOW)
        assert isinstance(failed, Failed)
        assert failed.error.code == 503


def test_tune_ok_limits_the_frames_that_come_with_it() -> None:
    octets = handshake(frame_max=4096) + method_frame(1, m.ChannelOpen())
    server = Server()
    server.receive(octets + publication(1, b"", b"q", bytes(5000)))
    assert [(end.error.code, end.error.text) for end in server.ends if isinstance(end, Failed)] == [
        (501, "type 3, frame_too_large: 5008 octets, frame_max 4096")
    ]


def test_heartbeats_mean_nothing_wherever_they_come() -> None:
    whole = handshake()
    at = 8 + 8 + int.from_bytes(whole[11:15])
    server = Server()
    server.receive(whole[:at] + HEARTBEAT + whole[at:] + HEARTBEAT)
    server.receive(method_frame(1, m.ChannelOpen()))
    pieces = publication(1, b"", b"q", b"body").partition(b"\xce\x02")
    server.receive(pieces[0] + b"\xce" + HEARTBEAT + b"\x02" + pieces[2])
    assert server.seen[-1][:2] == ("publish", 1)
    assert not server.ends


@pytest.mark.parametrize(
    ("octets", "code"), [(frame(8, 0, b"x"), 501), (frame(8, 1, b""), 505), (frame(8, 1, b"x"), 501)]
)
def test_heartbeats_belong_to_channel_0_and_are_empty(octets: bytes, code: int) -> None:
    ((kind, found, *_),) = opened().receive(octets)
    assert (kind, found) == ("failed", code)


def test_a_closing_connection_hears_nothing_but_its_end() -> None:
    server = opened()
    server.receive(frame(HEADER, 0, b""))
    assert [type(method) for _, method in server.sent()] == [m.ConnectionClose]
    ignored = [
        publication(1, b"", b"q", b"body"), method_frame(1, m.BasicAck(1)), method_frame(1, m.QueueDeclare()),
        method_frame(9, m.ChannelOpen()), frame(HEADER, 0, b""), frame(METHOD, 0, b"\0"),
        frame(METHOD, 0, b"\0\x0a\0\xff"), frame(8, 3, b"x"), method_frame(0, m.ConnectionOpen()),
        frame(65, 0, b"not a frame"),
    ]  # fmt: skip
    for octets in ignored:
        assert server.receive(octets) == []
    assert server.receive(method_frame(0, m.ConnectionCloseOk())) == [("received", 0, m.ConnectionCloseOk())]
    assert server.protocol.state is ConnectionState.CLOSED
    assert server.receive(method_frame(0, m.ConnectionCloseOk()) + b"anything") == []


def test_the_end_of_a_failed_connection_is_heard_in_the_same_read() -> None:
    server = opened()
    server.receive(method_frame(9, m.QueueDeclare()) + frame(HEADER, 0, b"") + method_frame(0, m.ConnectionClose()))
    assert [one[0] for one in server.seen] == ["failed", "received"]
    assert server.protocol.state is ConnectionState.CLOSED


def test_garbage_behind_a_malformed_frame_is_not_kept() -> None:
    server = opened()
    server.receive(b"\xff" * 100)
    for _ in range(100):
        server.receive(b"\xff" * 65536)
    assert len(server.protocol.take_kept()) < 65536
    assert len(server.ends) == 1


def test_a_failure_names_the_method_at_fault() -> None:
    assert opened().receive(frame(METHOD, 1, b"\x00\x32\x00\x0a\x00")) == [
        ("failed", 501, "malformed arguments of queue.declare", 1, 50, 10)
    ]


# --- channels ---


@pytest.mark.parametrize(
    ("octets", "code", "text"),
    [
        (method_frame(2, m.QueueDeclare()), 504, "expected 'channel.open'"),
        (method_frame(2, m.BasicAck(1)), 504, "expected 'channel.open'"),
        (publication(2, b"", b"q", b""), 504, "expected 'channel.open'"),
        (frame(BODY, 2, b"x"), 504, "expected 'channel.open'"),
        (method_frame(1, m.ChannelOpen()), 504, "second 'channel.open' seen"),
        (method_frame(11, m.ChannelOpen()), 530, "number of channels opened (1) has reached the negotiated"),
        (method_frame(1, m.ConnectionOpen()), 503, "unimplemented method"),
        (method_frame(1, m.BasicDeliver()), 503, "unimplemented method"),
        (method_frame(1, m.QueueDeclareOk()), 503, "unimplemented method"),
        (method_frame(0, m.QueueDeclare()), 504, "unexpected method in connection state running"),
        (frame(BODY, 0, b"x"), 505, "content frame on channel 0"),
        (frame(HEADER, 1, content_header(1)), 505, "expected method frame, got non method frame instead"),
    ],
)
def test_channel_errors_end_the_connection(octets: bytes, code: int, text: str) -> None:
    ((kind, found, said, *_),) = opened(channel_max=1).receive(octets)
    assert (kind, found) == ("failed", code)
    assert said.startswith(text)


def test_a_channel_closed_by_its_client_may_be_opened_again() -> None:
    server = opened()
    server.receive(method_frame(1, m.ChannelClose()) + method_frame(1, m.ChannelOpen()))
    assert server.receive(publication(1, b"", b"q", b""))[0][0] == "publish"


def test_a_channel_closed_by_the_server_ignores_all_but_its_end() -> None:
    server = opened(channels=2)
    server.protocol.close_channel(1, NotFound("no queue 'q'"), m.BasicConsume)
    assert server.sent() == [(1, m.ChannelClose(404, "NOT_FOUND - no queue 'q'", 60, 20))]
    ignored = [
        publication(1, b"", b"q", b"body"), publication(1, b"", b"q", bytes(100), piece=10),
        method_frame(1, m.BasicAck(1)), method_frame(1, m.QueueDeclare()),
        frame(METHOD, 1, b"\xff\xff"), frame(BODY, 1, b"x"),
    ]  # fmt: skip
    for octets in ignored:
        assert server.receive(octets) == []
    assert server.receive(publication(2, b"", b"q", b"body"))[0][:2] == ("publish", 2)
    assert server.receive(method_frame(1, m.ChannelCloseOk()) + method_frame(1, m.ChannelOpen())) == [
        ("received", 1, m.ChannelOpen())
    ]


def test_both_sides_may_close_a_channel_at_once() -> None:
    server = opened()
    server.protocol.close_channel(1, NotFound("no queue 'q'"))
    server.sent()
    assert server.receive(method_frame(1, m.ChannelClose())) == []
    assert server.sent() == [(1, m.ChannelCloseOk())]
    server.receive(method_frame(1, m.ChannelCloseOk()))
    assert server.receive(method_frame(1, m.ChannelOpen())) == [("received", 1, m.ChannelOpen())]


def test_what_the_broker_does_about_an_event_holds_for_the_next_of_the_same_read() -> None:
    server = opened()
    events = server.protocol.receive(method_frame(1, m.BasicConsume()) + publication(1, b"", b"q", b""), NOW)
    assert type(next(events)).__name__ == "Received"
    server.protocol.close_channel(1, NotFound("no queue ''"), m.BasicConsume)
    assert list(events) == []


# --- contents ---


@pytest.mark.parametrize("piece", [1, 3, 4088, 65536])
def test_a_body_may_come_in_pieces_of_any_size(piece: int) -> None:
    body = bytes(range(256)) * 20
    octets = publication(1, b"e", b"k", body, b"\x10\x00\x02", bits=1, piece=piece)
    assert opened().receive(octets) == [("publish", 1, "e", b"k", b"\x10\x00\x02", body, True, True, False)]


def test_contents_of_several_channels_may_interleave() -> None:
    server = opened(channels=2)
    one, two = (publication(number, b"", b"q", b"body-%d" % number, piece=3) for number in (1, 2))
    frames: list[bytes] = []
    for octets in (one, two):
        at = 0
        while at < len(octets):
            end = at + 8 + int.from_bytes(octets[at + 3 : at + 7])
            frames.append(octets[at:end])
            at = end
    half = len(frames) // 2
    for pair in zip(frames[:half], frames[half:], strict=True):
        server.receive(b"".join(pair))
    assert [(seen[1], seen[5]) for seen in server.seen] == [(1, b"body-1"), (2, b"body-2")]


def test_the_smallest_frames() -> None:
    server = opened(frame_max=4096)
    body = bytes(100_000)
    server.receive(publication(1, b"", b"q", body, piece=4088))
    assert server.seen[0][5] == body
    ((kind, code, text, *_),) = server.receive(publication(1, b"", b"q", body, piece=4089))
    assert (kind, code, text) == ("failed", 501, "type 3, frame_too_large: 4097 octets, frame_max 4096")


def test_sixteen_megabytes_in_reads_of_64_kilobytes() -> None:
    server = opened()
    body = bytes(range(256)) * 65536
    octets = publication(1, b"", b"q", body, piece=131064)
    for at in range(0, len(octets), 65536):
        server.receive(octets[at : at + 65536])
    assert [len(seen[5]) for seen in server.seen] == [16 << 20]
    assert server.seen[0][5] == body


def test_a_body_that_is_too_large_closes_the_channel_before_it_comes() -> None:
    server = opened()
    size = MAX_MESSAGE_SIZE + 1
    assert server.receive(publication(1, b"", b"q", b"beginning", announced=size)) == [("too large", 1, size)]
    assert server.receive(frame(BODY, 1, bytes(1000))) == []
    assert not server.ends


@pytest.mark.parametrize(
    ("octets", "code", "text"),
    [
        (publication(1, b"", b"q", b"four", announced=3), 501, "content body has more octets than"),
        (publication(1, b"", b"q", b"fo", announced=3) + HEARTBEAT + frame(BODY, 1, b"ur"), 501, "content body"),
        (publication(1, b"", b"q", b"x", announced=0), 505, "expected method frame, got non method frame"),
        (publication(1, b"", b"q", b"", announced=3) + publication(1, b"", b"q", b""), 505, "expected content body"),
        (publication(1, b"", b"q", b"", announced=3) + method_frame(1, m.BasicAck(1)), 505, "expected content body"),
        (publication(1, b"", b"q", b"", announced=3) + method_frame(1, m.ChannelClose()), 505, "expected content body"),
        (publication(1, b"", b"q", b"", b"\x10\x00"), 502, "malformed message properties"),
        (publication(1, b"", b"q", b"", b""), 501, "content header is too short"),
        (method_frame(1, m.BasicPublish()) + frame(HEADER, 1, content_header(1, class_id=50)), 505, "expected content"),
        (method_frame(1, m.BasicPublish()) + frame(BODY, 1, b"x"), 505, "expected content header for class 60"),
        (publication(1, b"\xff", b"q", b""), 501, "Malformed UTF-8 in shortstr"),
    ],
)  # fmt: skip
def test_a_content_that_is_not_what_was_announced(octets: bytes, code: int, text: str) -> None:
    seen = opened().receive(octets)
    (failed,) = [one for one in seen if one[0] == "failed"]
    assert failed is seen[-1]
    assert failed[1] == code
    assert failed[2].startswith(text)


# --- sending ---


def test_what_is_sent_is_collected() -> None:
    protocol = opened(frame_max=4096).protocol
    assert protocol.data_to_send() == []
    protocol.send_content(
        1, m.BasicReturn(312, "NO_ROUTE", "e", b"k"), Message("e", b"k", b"\x10\x00\x02", bytes(5000))
    )
    protocol.send_encoded([HEARTBEAT])
    assert b"".join(protocol.data_to_send()) == (
        method_frame(1, m.BasicReturn(312, "NO_ROUTE", "e", b"k"))
        + frame(HEADER, 1, content_header(5000, b"\x10\x00\x02"))
        + frame(BODY, 1, bytes(4088))
        + frame(BODY, 1, bytes(912))
        + HEARTBEAT
    )
    assert protocol.data_to_send() == []


def test_the_text_of_an_error_fits_a_short_string() -> None:
    server = opened()
    server.protocol.close_channel(1, NotFound("ü" * 300))
    ((_, close),) = server.sent()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_text.startswith("NOT_FOUND - " + "ü" * 100)
    assert 250 <= len(close.reply_text.encode()) <= 255


# --- arbitrary input of a client ---

CONVERSATIONS = st.one_of(
    damaged(st.builds(lambda piece: handshake() + piece, WHOLE)),
    damaged(st.builds(lambda piece: handshake(4096, 2) + method_frame(1, m.ChannelOpen()) + piece, WHOLE)),
    st.builds(lambda piece: handshake() + method_frame(1, m.ChannelOpen()) + piece, damaged()),
    st.lists(METHODS, max_size=8).map(lambda pieces: handshake() + b"".join(pieces)),
    st.binary(max_size=64),
    st.binary(max_size=64).map(PROTOCOL_HEADER.__add__),
)


@settings(max_examples=examples(200))
@given(CONVERSATIONS, st.data())
def test_no_input_does_more_than_end_the_connection(octets: bytes, data: st.DataObject) -> None:
    server = Server()
    for read in data.draw(reads(octets)):
        server.receive(read)
    assert len(server.ends) <= 1
    if server.ends:
        place = next(at for at, one in enumerate(server.seen) if one[0] in ("failed", "BadHeader"))
        ends = server.seen[place + 1 :]
        assert all(isinstance(one[2], m.ConnectionClose | m.ConnectionCloseOk) for one in ends)
        assert server.protocol.state in (ConnectionState.CLOSE_OK, ConnectionState.CLOSED)


@settings(max_examples=examples(200))
@given(CONVERSATIONS, st.data())
def test_how_a_stream_is_split_into_reads_changes_nothing(octets: bytes, data: st.DataObject) -> None:
    whole, split = Server(), Server()
    whole.receive(octets)
    for read in data.draw(reads(octets)):
        split.receive(read)
    # Frame boundaries after a malformed frame are unknown: the later end of the connection depends on the reads.
    assert until_failure(split) == until_failure(whole)
    assert b"".join(split.protocol.data_to_send()) == b"".join(whole.protocol.data_to_send())
    if not whole.ends:
        assert split.protocol.state is whole.protocol.state


@given(st.lists(LARGE | PIECES, max_size=6).map(b"".join), st.data())
def test_how_large_bodies_are_split_into_reads_changes_nothing(octets: bytes, data: st.DataObject) -> None:
    whole, split = opened(channels=2), opened(channels=2)
    whole.receive(octets)
    buffer = bytearray(len(octets))
    for read in data.draw(reads(octets)):
        buffer[: len(read)] = read  # one buffer for all reads, as in a connection
        split.receive(memoryview(buffer)[: len(read)])
    assert until_failure(split) == until_failure(whole)
    if not whole.ends:
        assert split.protocol.unfinished == whole.protocol.unfinished


@pytest.mark.parametrize("cut", [5000, 9000, -1])
def test_a_body_frame_that_arrives_in_pieces_must_end_as_frames_do(cut: int) -> None:
    server = opened()
    octets = publication(1, b"", b"q", bytes(9900))[:-1] + b"\0"
    server.receive(octets[:cut])
    assert server.receive(octets[cut:]) == [("failed", 501, "type 3, invalid frame end marker 0", 0, 0, 0)]


def test_octets_of_a_body_are_counted_until_it_is_whole() -> None:
    server = opened()
    octets = publication(1, b"", b"q", bytes(20_000), piece=8000)
    header = octets.index(frame(HEADER, 1, content_header(20_000))) + len(frame(HEADER, 1, content_header(20_000)))
    for received in (5000, 8000, 12_000):
        server = opened()
        server.receive(octets[: header + 7 + received + 8 * (received > 8000)])
        assert server.protocol.unfinished == received + 2  # and the properties
    server.protocol.close_channel(1, NotFound("no exchange 'e'"))
    assert server.protocol.unfinished == 0
    server.receive(octets[header + 7 + 12_000 + 8 :])
    assert server.protocol.unfinished == 0
    assert not server.ends


def test_a_read_that_ends_behind_the_header_of_a_small_message_is_in_no_large_body() -> None:
    for size, large in ((100, False), (3000, False), (20_000, True)):
        server = opened()
        header = frame(HEADER, 1, content_header(size))
        octets = publication(1, b"", b"q", bytes(size), piece=8000)
        server.receive(octets[: octets.index(header) + len(header)])
        assert server.protocol.unfinished and not server.protocol.holds_large_part
        server.receive(octets[octets.index(header) + len(header) :][:5000])
        assert server.protocol.holds_large_part is large


@pytest.mark.parametrize("read", [0, 1])
def test_what_was_not_yet_read_can_be_retained_when_its_buffer_is_used_again(read: int) -> None:
    server, bodies = opened(), [b"a" * 5000, b"b" * 6000]
    octets = b"".join(publication(1, b"", b"q", body, piece=3000) for body in bodies)
    buffer = bytearray(octets + method_frame(1, m.BasicConsume()))
    events = server.protocol.receive(memoryview(buffer), NOW)
    seen = list(islice(events, read))
    server.protocol.retain()
    buffer[:] = bytes(len(buffer))
    seen += events
    assert [one.messages[0].body for one in seen[:2]] == bodies  # type: ignore[union-attr]
    assert len(seen) == 3


def until_failure(server: Server) -> list[tuple[Any, ...]]:
    """Received events up to the failure, if any."""
    places = [at for at, one in enumerate(server.seen) if one[0] == "failed"]
    return server.seen[: places[0] + 1] if places else server.seen


def test_octet_by_octet() -> None:
    octets = handshake() + method_frame(1, m.ChannelOpen()) + publication(1, b"e", b"k", b"body") * 3
    whole, split = Server(), Server()
    whole.receive(octets)
    for at in range(len(octets)):
        split.receive(octets[at : at + 1])
    assert split.seen == whole.seen
    assert len(split.seen) == 8
