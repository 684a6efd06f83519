"""The server's side of an AMQP 0-9-1 connection, without I/O: bytes in, events out; answers in, bytes out.

How it works. A connection and each of its channels is a small state machine (AMQP 0-9-1, sections 2.2.4 and 4.2).
The connection's transitions are the table ``TRANSITIONS``: for each state, the methods that channel 0 may receive, and
the next state; everything else is an error. A channel is unknown, open, or closing. An open channel may have an
incomplete content: a publish with missing header or body frames.

:meth:`ServerProtocol.receive` is a generator. It interprets the octets one event at a time, so that the broker's
reaction to an event (closing a channel, for example) already holds for the next event of the same read. It yields

- :class:`~jumpmq.amqp.events.Publish` and :class:`~jumpmq.amqp.events.Ack`, runs from the fast path,
- :class:`Received` for every other method that is allowed in the current state,
- :class:`Failed` once, when the connection has to close: the caller answers with :meth:`ServerProtocol.send_close`, and
  the only further event is the end of the connection by the client,
- :class:`Begun` once, as the first event, if the client speaks AMQP 0-9-1,
- :class:`BadHeader` once, if the client does not speak AMQP 0-9-1.

:meth:`send` and the other senders collect output, and :meth:`data_to_send` returns the output.

The calls for one read, in their order:

1. :meth:`~ServerProtocol.receive`, with the received octets, behind the octets that
   :meth:`~ServerProtocol.take_kept` has returned. If :attr:`~ServerProtocol.scatters` is true, the octets may instead
   be read into the buffers of :meth:`~ServerProtocol.scatter`, and given to
   :meth:`~ServerProtocol.receive_scattered`.
2. Iterate over the returned events, and act on each event before the next one.
3. After the last event, :meth:`~ServerProtocol.take_kept`. To continue with the remaining events later,
   :meth:`~ServerProtocol.retain` before the buffer is read into again; no further octets may be received until the
   iterator is exhausted. To discard the remaining events, :meth:`~ServerProtocol.skip`.
4. :meth:`~ServerProtocol.data_to_send`, at any time.
"""

import contextlib
import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import (
    AMQPError,
    ChannelError,
    CommandInvalid,
    MalformedFrame,
    MalformedText,
    MethodSyntaxError,
    NotAllowed,
    ResourceError,
    UnexpectedFrame,
)
from jumpmq.amqp.events import Ack, Publish, RawFrame
from jumpmq.amqp.frames import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    HEARTBEAT_FRAME,
    encode_content,
)
from jumpmq.amqp.messages import Body, Message, check_properties, scan
from jumpmq.amqp.properties import UNKNOWN_MODE
from jumpmq.amqp.scatter import Scatter

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_MAX = 131072
"""Frame size proposed to clients, in octets."""
MAX_PROPERTIES = FRAME_MAX - FRAME_OVERHEAD - 12
"""Maximum octets of a message's headers and properties: AMQP sends them in one frame, after class and size of the
body.
"""
SPLIT_FROM = 4096
"""Size, in octets, from which a body frame is consumed in pieces on arrival."""
SCATTERED_FROM = 256 << 10
"""Missing octets of a body from which reads go directly into the body's memory."""
FRAME_MIN = 4096
"""The smallest frame size that can be negotiated, and the limit before negotiation."""
CHANNEL_MAX = 2047
MAX_MESSAGE_SIZE = 128 << 20
"""Maximum octets of a body (RabbitMQ's ``max_message_size``)."""


NOTHING = memoryview(b"")


class ConnectionState(enum.Enum):
    """State of a connection, named after the method that the server waits for."""

    HEADER = enum.auto()
    START_OK = enum.auto()
    AUTHENTICATING = enum.auto()
    TUNE_OK = enum.auto()
    OPEN = enum.auto()
    RUNNING = enum.auto()
    CLOSE_OK = enum.auto()
    CLOSED = enum.auto()
    """In ``AUTHENTICATING`` the server sends the next method: see :meth:`ServerProtocol.propose`."""


_HEADER, _RUNNING, _CLOSED = ConnectionState.HEADER, ConnectionState.RUNNING, ConnectionState.CLOSED
"""Module globals: access to a member of the enum takes ten times as long, which is measurable per read."""

TRANSITIONS: dict[ConnectionState, dict[type[m.Method], ConnectionState]] = {
    ConnectionState.START_OK: {
        m.ConnectionStartOk: ConnectionState.AUTHENTICATING,
        m.ConnectionClose: ConnectionState.CLOSED,
    },
    ConnectionState.AUTHENTICATING: {m.ConnectionClose: ConnectionState.CLOSED},
    ConnectionState.TUNE_OK: {m.ConnectionTuneOk: ConnectionState.OPEN, m.ConnectionClose: ConnectionState.CLOSED},
    ConnectionState.OPEN: {m.ConnectionOpen: ConnectionState.RUNNING, m.ConnectionClose: ConnectionState.CLOSED},
    ConnectionState.RUNNING: {
        m.ConnectionClose: ConnectionState.CLOSED,
        m.ConnectionUpdateSecret: ConnectionState.RUNNING,
    },
    ConnectionState.CLOSE_OK: {m.ConnectionCloseOk: ConnectionState.CLOSED, m.ConnectionClose: ConnectionState.CLOSED},
}
"""Methods that channel 0 may receive, by state, with the next state."""

HANDSHAKE = frozenset(
    {ConnectionState.START_OK, ConnectionState.AUTHENTICATING, ConnectionState.TUNE_OK, ConnectionState.OPEN}
)
"""The states before the connection is open."""

SERVER_METHODS = frozenset(
    one
    for one in m.METHODS.values()
    if one.spec_name.endswith("-ok")
    and one not in (m.ConnectionStartOk, m.ConnectionSecureOk, m.ConnectionTuneOk, m.ConnectionCloseOk)
) | {m.ConnectionStart, m.ConnectionSecure, m.ConnectionTune, m.BasicDeliver, m.BasicReturn, m.BasicGetEmpty}
"""Methods that only servers send, or clients only in answer to a server's request."""


@dataclass(slots=True)
class Received:
    """A method from the client."""

    channel: int
    method: m.Method


@dataclass(slots=True)
class Failed:
    """The connection must close.

    Attributes:
        error: the reason.
        channel: channel number of the fault.
        class_id, method_id: the method at fault, 0 without one.
    """

    error: AMQPError
    channel: int = 0
    class_id: int = 0
    method_id: int = 0


@dataclass(slots=True)
class Begun:
    """The client speaks AMQP 0-9-1, and expects ``connection.start``."""


@dataclass(slots=True)
class BadHeader:
    """The client has not begun with AMQP 0-9-1. The answer is in the output; the caller closes the socket."""


@dataclass(slots=True)
class TooLargeContent:
    """A content on ``channel`` announced more octets than a message may have; the channel must close."""

    channel: int
    size: int


ServerEvent = Publish | Ack | Received | Failed | Begun | BadHeader | TooLargeContent


@dataclass(slots=True)
class _Content:
    """A publish with an incomplete header or body.

    Attributes:
        size: octets of the body, as announced by the header.
        dropped: True if the channel no longer waits for the content.
    """

    method: m.BasicPublish
    properties: bytes | None = None
    size: int = 0
    body: Body | None = None
    dropped: bool = False

    @property
    def missing(self) -> int:
        """Octets of the body not yet arrived."""
        return self.body.missing if self.body is not None else 0

    @property
    def gathered(self) -> int:
        """Octets of properties and body already arrived."""
        if self.body is None or self.properties is None:
            return 0
        return len(self.properties) + self.size - self.missing


@dataclass(slots=True)
class _Channel:
    closing: bool = False
    content: _Content | None = None


@dataclass(slots=True)
class _SplitFrame:
    """A body frame arriving in several reads. The octets are appended to the body at once and counted at the frame's
    end.

    Attributes:
        length: octets of the payload.
        missing: octets of the payload that have not arrived.
    """

    channel: int
    content: _Content
    length: int
    missing: int


_Scanned = Publish | Ack | RawFrame | _SplitFrame | AMQPError


class ServerProtocol:
    """Server side of one AMQP connection, without I/O.

    Attributes:
        state: state of the connection.
        frame_max, channel_max, heartbeat: negotiated values (octets, channels, seconds).
        unfinished: octets in memory of the properties and bodies of incomplete messages.
    """

    def __init__(self) -> None:
        self.state = ConnectionState.HEADER
        self.frame_max = FRAME_MIN
        self.channel_max = CHANNEL_MAX
        self.heartbeat = 0
        self.unfinished = 0
        self._proposed = m.ConnectionTune(CHANNEL_MAX, FRAME_MAX, 0)  # limits proposed to the client
        self._partial_frame = b""  # beginning of an incomplete frame
        self._unread = NOTHING  # received octets, from the first unscanned frame on
        self._borrowed = False  # True if _unread is the caller's buffer, which is read into again
        self._scanned: deque[_Scanned] = deque()  # scanned frames and runs that have not become events
        self._split: _SplitFrame | None = None  # body frame whose first octets are already in the body
        self._channels: dict[int, _Channel] = {}  # state of each open channel
        self._out: list[bytes | memoryview] = []  # output for data_to_send
        self._now = 0.0  # time of the current read, in seconds since the epoch

    # --- sending ---

    def propose(self, heartbeat: int, channel_max: int = CHANNEL_MAX, frame_max: int = FRAME_MAX) -> None:
        """Send ``connection.tune`` to the authenticated client.

        Args:
            heartbeat: seconds.
            channel_max, frame_max: maxima of the negotiation, in channels and octets; ``FRAME_MAX`` octets at most.
        """
        self.state = ConnectionState.TUNE_OK
        self._proposed = m.ConnectionTune(channel_max, frame_max, heartbeat)
        self.send(0, self._proposed)

    def send(self, channel: int, method: m.Method) -> None:
        """Send a method."""
        self._out.append(method.frame(channel))

    def send_content(self, channel: int, method: m.Method, message: Message) -> None:
        """Send a method with content: ``basic.get-ok`` or ``basic.return``."""
        self._out.append(method.frame(channel))
        self._out += encode_content(message, channel, self.frame_max, count_first=True)

    def send_heartbeat(self) -> None:
        """Send a heartbeat."""
        self._out.append(HEARTBEAT_FRAME)

    def send_encoded(self, buffers: list[bytes | memoryview]) -> None:
        """Send whole frames."""
        self._out += buffers

    @property
    def has_data_to_send(self) -> bool:
        """True if output is waiting to be sent."""
        return bool(self._out)

    def data_to_send(self) -> list[bytes | memoryview]:
        """Return all data to send since the last call, as buffers to write in order."""
        out, self._out = self._out, []
        return out

    def send_close(self, failed: Failed) -> None:
        """Close the connection with an error, and wait for the client's close-ok."""
        error = failed.error
        self.send(0, m.ConnectionClose(error.code, error.reply_text, failed.class_id, failed.method_id))
        for channel in self._channels.values():
            self._drop_content(channel)
        self._channels.clear()
        self.state = ConnectionState.CLOSE_OK

    def close_channel(self, channel: int, error: AMQPError, method: m.Method | type[m.Method] | None = None) -> None:
        """Close a channel with an error; frames on it are ignored until the client's close-ok."""
        class_id, method_id = (method.class_id, method.method_id) if method is not None else (0, 0)
        self.send(channel, m.ChannelClose(error.code, error.reply_text, class_id, method_id))
        # AMQP 0-9-1, channel.close: any method received after this one, except close and close-ok, is discarded.
        self._channels[channel].closing = True
        self._drop_content(self._channels[channel])

    # --- receiving ---

    def receive(self, octets: bytes | bytearray | memoryview, now: float) -> Iterator[ServerEvent]:
        """Parse received octets. Before the next call, exhaust the iterator, or abandon it with :meth:`skip`.

        Args:
            octets: may be a view of a buffer; the buffer may be reused when the iterator is exhausted, or after
                :meth:`retain`.
            now: seconds since the epoch.
        """
        if self.state is _CLOSED:
            return iter(())
        self._now = now
        self._unread = memoryview(self.take_kept() + octets if self._partial_frame else octets)
        self._borrowed = True
        return self._read()

    def _read(self) -> Iterator[ServerEvent]:
        if self.state is _HEADER:
            # Octets that may still become the header wait for more; other octets are answered at once.
            if len(self._unread) < 8 and PROTOCOL_HEADER.startswith(bytes(self._unread)):
                self._keep()
                return
            if not self._accept_header(bytes(self._unread[:8])):
                yield BadHeader()
                return
            self._unread = self._unread[8:]
            yield Begun()
        while self._unread and self._scan():
            while self._scanned:
                event = self._scanned.popleft()
                try:
                    found = self._advance(event)
                except AMQPError as error:
                    # The traceback would make a reference cycle with this frame, left to the garbage collector.
                    found = self._failed(event, error.with_traceback(None))
                if found is not None:
                    yield found
        self._keep()

    @property
    def holds_large_part(self) -> bool:
        """True while a large body is being received, False for an incomplete small message."""
        return self.unfinished >= SPLIT_FROM

    @property
    def scatters(self) -> bool:
        """True if :meth:`scatter` returns buffers: in the middle of a large body."""
        split = self._split
        return split is not None and split.content.missing >= SCATTERED_FROM and not split.content.dropped

    def scatter(self, behind: memoryview) -> Scatter | None:
        """Return buffers for the next read, in the middle of a large body. After calling this method you must read into
        the buffers at once and call :meth:`receive_scattered`.

        Args:
            behind: buffer for the octets after the body.
        """
        split = self._split
        if split is None or not self.scatters:
            return None
        assert split.content.body is not None
        return Scatter(split.content.body.room(), split.channel, split.missing, split.length, behind)

    def receive_scattered(self, scatter: Scatter, octets: int, now: float) -> Iterator[ServerEvent]:
        """Parse octets that were read into the buffers of :meth:`scatter`; otherwise as :meth:`receive`.

        Args:
            octets: number of octets read.
        """
        split = self._split
        assert split is not None and split.content.body is not None
        placed, split.missing, rest = scatter.sort(octets)
        split.content.body.placed(placed)
        self.unfinished += placed
        return self.receive(rest, now)

    def take_kept(self) -> bytes:
        """Return the incomplete frame at the end of the received octets. Call it when the iterator of :meth:`receive`
        is exhausted, and prepend the result to the next octets."""
        kept, self._partial_frame = self._partial_frame, b""
        return kept

    def retain(self) -> None:
        """Copy the unparsed octets, before their buffer is reused. Call this method between two events, before the
        buffer is read into; the iterator continues with the copy. Further calls do nothing."""
        if not self._borrowed:
            return
        self._borrowed = False
        self._unread = memoryview(bytes(self._unread))
        for event in self._scanned:
            if isinstance(event, RawFrame):
                event.payload = bytes(event.payload)

    @property
    def unread(self) -> bytes:
        """Octets received but not parsed."""
        return bytes(self._unread)

    def give_up(self) -> None:
        """End parsing: another process continues with the client, from ``connection.open`` on."""
        self.skip()
        self.state = ConnectionState.CLOSED

    def go_on(self, frame_max: int, channel_max: int, heartbeat: int) -> None:
        """Continue with a client of another process, with the negotiated limits."""
        self.frame_max, self.channel_max, self.heartbeat = frame_max, channel_max, heartbeat
        self.state = ConnectionState.RUNNING

    def skip(self) -> None:
        """Discard unparsed octets: the iterator of :meth:`receive` then ends."""
        self._unread = NOTHING
        self._scanned.clear()

    def _scan(self) -> bool:
        """Scan frames; return True if at least one frame was found."""
        if self._split is not None:
            return self._continue_split_frame(self._split)
        unread = self._unread
        reach = unread
        if self.state is not _RUNNING and self.state in HANDSHAKE:
            # One frame only, because tune-ok sets the size limit of the next frames.
            reach = unread[: 8 + int.from_bytes(unread[3:7])]
        events, used = scan(reach, self.frame_max, self._now)
        if events and isinstance(events[-1], AMQPError):
            used = len(unread)  # the begin of the next frame is unknown
        self._unread = unread[used:] if used < len(unread) else NOTHING
        self._scanned.extend(events)
        return bool(events)

    def _keep(self) -> None:
        """Keep an incomplete frame: a large body frame's octets go into the body at once, other octets are buffered."""
        unread, self._unread = self._unread, NOTHING
        if unread and not self._begin_split_frame(unread):
            self._partial_frame = bytes(unread)

    def _begin_split_frame(self, unread: memoryview) -> bool:
        if self.state is not ConnectionState.RUNNING or len(unread) < 7 or unread[0] != FRAME_BODY:
            return False
        number, length = int.from_bytes(unread[1:3]), int.from_bytes(unread[3:7])
        channel = self._channels.get(number)
        content = channel.content if channel is not None else None
        # A frame beyond the content or beyond frame_max goes through the scan, which reports the error.
        if content is None or not SPLIT_FROM <= length <= min(content.missing, self.frame_max - FRAME_OVERHEAD):
            return False
        self._split = _SplitFrame(number, content, length, length)
        self._gather(content, unread[7:])
        self._split.missing -= len(unread) - 7
        return True

    def _continue_split_frame(self, split: _SplitFrame) -> bool:
        piece = self._unread[: split.missing]
        self._gather(split.content, piece)
        split.missing -= len(piece)
        self._unread = self._unread[len(piece) :]
        if not self._unread:
            return False
        end, self._unread, self._split = self._unread[0], self._unread[1:], None
        if end == FRAME_END:
            self._scanned.append(split)
        else:
            self._scanned.append(MalformedFrame(f"type {FRAME_BODY}, invalid frame end marker {end}"))
            self._unread = self._unread[:0]
        return True

    def _accept_header(self, octets: bytes) -> bool:
        if octets == PROTOCOL_HEADER:
            self.state = ConnectionState.START_OK
            return True
        self.state = ConnectionState.CLOSED
        # AMQP 0-9-1, section 4.2.2: the server answers another header with its own, and closes the socket.
        self._out.append(PROTOCOL_HEADER)
        return False

    def _failed(self, event: object, error: AMQPError) -> Failed:
        channel, class_id, method_id = 0, 0, 0
        if isinstance(event, RawFrame):
            channel = event.channel
            known = self._channels.get(channel)
            if isinstance(error, MalformedText):
                pass  # RabbitMQ checks text before the channel, and then names no method
            elif isinstance(error, UnexpectedFrame) and known is not None and known.content is not None:
                class_id, method_id = m.BasicPublish.class_id, m.BasicPublish.method_id
            elif event.type == FRAME_METHOD and len(event.payload) >= 4:
                class_id, method_id = int.from_bytes(event.payload[:2]), int.from_bytes(event.payload[2:4])
        elif isinstance(event, Publish | Ack):
            channel, (class_id, method_id) = event.channel, _identity(event)
        return Failed(error, channel, class_id, method_id)

    def _advance(self, event: _Scanned) -> ServerEvent | None:
        """Interpret a scanned event in the connection's state; return None if the caller has nothing to do."""
        if self.state is _RUNNING and isinstance(event, (Publish, Ack)):
            return self._advance_run(event)
        if self.state is ConnectionState.CLOSED:
            return None
        if self.state is ConnectionState.CLOSE_OK:
            return self._await_close_ok(event)
        if isinstance(event, AMQPError):
            raise event
        if isinstance(event, RawFrame):
            if event.type == FRAME_HEARTBEAT:
                _check_heartbeat(event)
                return None
            if event.channel == 0:
                return self._advance_connection(event)
        if self.state is not ConnectionState.RUNNING:
            raise CommandInvalid("channel frame before connection.open")
        if isinstance(event, RawFrame):
            return self._advance_channel(event)
        assert isinstance(event, _SplitFrame)
        split_on = self._channels[event.channel]
        return self._finish_content(event.channel, split_on, event.content) if split_on.content else None

    def _advance_run(self, run: Publish | Ack) -> ServerEvent | None:
        if run.channel == 0:
            raise self._unexpected_on_zero()
        channel = self._channel(run.channel)
        if channel is None:
            return None
        if channel.content is not None:
            raise _unexpected(channel.content)
        return run

    def _await_close_ok(self, event: _Scanned) -> ServerEvent | None:
        """Handle a frame while the connection closes: only close and close-ok count."""
        # AMQP 0-9-1, connection.close: any method received after this one, except close and close-ok, is discarded.
        if isinstance(event, RawFrame) and (event.type, event.channel) == (FRAME_METHOD, 0):
            with contextlib.suppress(AMQPError):
                method = m.decode(event.payload)
                self.state = TRANSITIONS[ConnectionState.CLOSE_OK].get(type(method), ConnectionState.CLOSE_OK)
                if self.state is ConnectionState.CLOSED:
                    return Received(0, method)
        return None

    def _advance_connection(self, frame: RawFrame) -> ServerEvent | None:
        if frame.type != FRAME_METHOD:
            raise UnexpectedFrame("content frame on channel 0")
        method = m.decode(frame.payload)
        follows = TRANSITIONS[self.state].get(type(method))
        if follows is None:
            raise self._unexpected_on_zero()
        self.state = follows
        if isinstance(method, m.ConnectionTuneOk):
            self._tune(method)
        return Received(0, method)

    def _unexpected_on_zero(self) -> ChannelError:
        return ChannelError(f"unexpected method in connection state {self.state.name.lower()}")

    def _tune(self, method: m.ConnectionTuneOk) -> None:
        for name, proposed, got in (
            ("frame_max", self._proposed.frame_max, method.frame_max),
            ("channel_max", self._proposed.channel_max, method.channel_max),
        ):
            # 0 means no limit, which exceeds every proposed limit: RabbitMQ refuses both.
            if got == 0 or got > proposed:
                raise NotAllowed(
                    f"negotiated {name} = {got or 'no limit'} is higher than the maximum allowed value ({proposed})"
                )
        # AMQP 0-9-1: both sides have to accept frames of frame-min-size, 4096 octets.
        if method.frame_max < FRAME_MIN:
            raise NotAllowed(
                f"negotiated frame_max = {method.frame_max} is lower than the minimum allowed value ({FRAME_MIN})"
            )
        self.frame_max, self.channel_max, self.heartbeat = method.frame_max, method.channel_max, method.heartbeat

    def _advance_channel(self, frame: RawFrame) -> ServerEvent | None:
        if frame.type != FRAME_METHOD:
            channel = self._channel(frame.channel)
            return self._advance_content(frame, channel) if channel is not None else None
        known = self._channels.get(frame.channel)
        if known is not None and known.closing:
            return self._advance_closing(frame)
        method = m.decode(frame.payload)
        # AMQP 0-9-1: the content frames of a method follow the method on its channel, without other frames in between.
        if known is not None and known.content is not None:
            raise _unexpected(known.content)
        if isinstance(method, m.ChannelOpen):
            self._open_channel(frame.channel)
            return Received(frame.channel, method)
        channel = self._channel(frame.channel)
        assert channel is not None
        # Methods of class connection (10) belong to channel 0.
        if method.class_id == 10 or type(method) in SERVER_METHODS:
            raise CommandInvalid("unimplemented method")
        if isinstance(method, m.BasicPublish):
            channel.content = _Content(method)
            return None
        if isinstance(method, m.ChannelClose):
            del self._channels[frame.channel]
        return Received(frame.channel, method)

    def _advance_closing(self, frame: RawFrame) -> ServerEvent | None:
        """Handle a frame on a channel that the server has closed: only close and close-ok count."""
        identity = (int.from_bytes(frame.payload[:2]), int.from_bytes(frame.payload[2:4]))
        if identity == (m.ChannelCloseOk.class_id, m.ChannelCloseOk.method_id):
            del self._channels[frame.channel]
        elif identity == (m.ChannelClose.class_id, m.ChannelClose.method_id):
            self.send(frame.channel, m.ChannelCloseOk())
        return None

    def _open_channel(self, number: int) -> None:
        # AMQP 0-9-1, channel.open: not on an open channel (channel-error).
        if number in self._channels:
            raise ChannelError("second 'channel.open' seen")
        if len(self._channels) >= self.channel_max:
            raise NotAllowed(
                f"number of channels opened ({len(self._channels)}) has reached the negotiated "
                f"channel_max ({self.channel_max})"
            )
        self._channels[number] = _Channel()

    def _channel(self, number: int) -> _Channel | None:
        """Return the open channel of the given number; None while the channel closes.

        Raises:
            ChannelError: the channel is not open.
        """
        channel = self._channels.get(number)
        if channel is None:
            raise ChannelError("expected 'channel.open'")
        return None if channel.closing else channel

    # --- contents that the fast path has not found complete ---

    def _advance_content(self, frame: RawFrame, channel: _Channel) -> ServerEvent | None:
        content = channel.content
        if content is None:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        if content.properties is None:
            if frame.type != FRAME_HEADER:
                raise _unexpected(content)
            size = self._begin_body(frame.payload, content)
            # Refused by its header: no memory is taken for the body.
            if size > MAX_MESSAGE_SIZE:
                return TooLargeContent(frame.channel, size)
        else:
            if frame.type != FRAME_BODY:
                raise _unexpected(content)
            if len(frame.payload) > content.missing:
                raise MalformedFrame(
                    f"content body has more octets than its header announced: {len(frame.payload)}, "
                    f"not {content.missing}"
                )
            self._gather(content, frame.payload)
        return self._finish_content(frame.channel, channel, content)

    def _gather(self, content: _Content, piece: bytes | memoryview) -> None:
        assert content.body is not None
        content.body.add(piece)
        # The rest of a dropped content is read until its frame ends, but counts no more.
        if not content.dropped:
            self.unfinished += len(piece)

    def _finish_content(self, number: int, channel: _Channel, content: _Content) -> ServerEvent | None:
        """Return the event of a complete content; None while octets are missing."""
        if content.missing:
            return None
        self._drop_content(channel)
        return self._whole(number, content)

    def _drop_content(self, channel: _Channel) -> None:
        if channel.content is not None:
            self.unfinished -= channel.content.gathered
            channel.content.dropped = True
            channel.content = None

    def _begin_body(self, payload: bytes, content: _Content) -> int:
        if len(payload) < 14:
            raise MalformedFrame("content header is too short")
        class_id = int.from_bytes(payload[:2])
        if class_id != 60:
            raise UnexpectedFrame(f"expected content header for class 60, got one for class {class_id} instead")
        content.properties, content.size = payload[12:], int.from_bytes(payload[4:12])
        if check_properties(content.properties) < 0:
            raise MethodSyntaxError("malformed message properties")
        if content.size <= MAX_MESSAGE_SIZE:
            try:
                content.body = Body(content.size)
            # The size announced by a client must not end the broker.
            except MemoryError:
                raise ResourceError(f"no memory for a message of {content.size} octets") from None
            self.unfinished += content.gathered
        return content.size

    def _whole(self, channel: int, content: _Content) -> Publish:
        properties, method = content.properties, content.method
        assert properties is not None and content.body is not None
        body, mode = content.body.whole(), check_properties(properties)
        message = Message(method.exchange, method.routing_key, properties, body, mode == 2, self._now)
        flags = int.from_bytes(properties[:2]) | (UNKNOWN_MODE if mode > 2 else 0)
        return Publish(channel, method.exchange, method.mandatory, method.immediate, flags, len(body), [message])


def _identity(run: Publish | Ack) -> tuple[int, int]:
    """Return class and method ids of a run."""
    method = m.BasicPublish if isinstance(run, Publish) else m.BasicAck
    return method.class_id, method.method_id


def _check_heartbeat(frame: RawFrame) -> None:
    if frame.payload:
        raise MalformedFrame("heartbeat frame with a payload")
    if frame.channel:
        raise UnexpectedFrame(f"heartbeat frame on channel {frame.channel}")


def _unexpected(content: _Content) -> UnexpectedFrame:
    if content.properties is None:
        return UnexpectedFrame("expected content header for class 60, got non content header frame instead")
    return UnexpectedFrame("expected content body, got non content body frame instead")
