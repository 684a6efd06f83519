"""A client's connection on its socket: bytes to events to channels, and answers back.

All that one read asks for is done before anything is written; then every connection that got something to send writes
it at once (:mod:`turns`). Where a read changed definitions, its answers are *deferred* until the change is on disk: a
``declare-ok`` is a promise that survives kill -9.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import (
    AccessRefused,
    AMQPError,
    ConnectionForced,
    InternalError,
    NotAllowed,
    PreconditionFailed,
)
from jumpmq.amqp.events import Ack, Publish
from jumpmq.amqp.messages import Message
from jumpmq.amqp.protocol import (
    MAX_MESSAGE_SIZE,
    BadHeader,
    Begun,
    Event,
    Failed,
    Received,
    ServerProtocol,
    State,
    TooLarge,
)
from jumpmq.broker.channel import settling
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.connection.busy_polling import SOON
from jumpmq.broker.connection.handshake import Handshake
from jumpmq.broker.connection.origin import Encryption, Origin
from jumpmq.broker.connection.reading import Reading, Wait
from jumpmq.broker.connection.receiving import READ_SIZE
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.security.accounts import NO_ONE, Principal
from jumpmq.broker.security.rate import PublishRate
from jumpmq.broker.telemetry import audit
from jumpmq.broker.upkeep.slices import SLICE
from jumpmq.topology import Asker, VirtualHost
from jumpmq.topology.bindings import Kind
from jumpmq.topology.changes import DeleteQueue
from jumpmq.topology.users import Operation

if TYPE_CHECKING:
    from jumpmq.broker.connection.services import Services

log = logging.getLogger(__name__)

WRITE_AT = 256 << 10
"""Octets of deliveries that are gathered before they are written, within one read."""

STEP = 0.005
"""Seconds of work on what one connection has sent before others are served."""

JOINED_UP_TO = 16 << 10
"""Octets of many buffers that are copied together, which is cheaper then than to hand over each."""

LEFT = Wait.WORK | Wait.CLIENT | Wait.RATE | Wait.METHOD
"""Why the rest of a read may have been left for later."""

CONGESTED_AT = 1 << 20
"""Octets that may wait for a slow client before its consumers are left out."""

FLOODED_AT = 16 << 20
"""Octets that may wait for a client that goes on asking without reading the answers, before it is no longer read."""

UNNUMBERED = 1 << 62
"""Stands for the commit that this turn's changes will be in, until the turn's end gives it a number."""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a client has from connecting to ``connection.open`` (RabbitMQ's ``handshake_timeout``)."""

CLOSE_TIMEOUT = 30.0
"""Seconds that a client has to answer ``connection.close``, or to close the socket once its own was answered
(RabbitMQ's ``CLOSING_TIMEOUT``)."""

DELETED_AT_ONCE = 50
"""Exclusive queues that are deleted before others are served."""

LONGEST_TIMER = 86400.0 * 365
"""Seconds that a timer may run."""

SHOWN_STATES = {
    State.HEADER: "starting",
    State.START_OK: "starting",
    State.AUTHENTICATING: "starting",
    State.TUNE_OK: "tuning",
    State.OPEN: "opening",
    State.RUNNING: "running",
    State.CLOSE_OK: "closed",
    State.CLOSED: "closed",
}


class _GoOn(NamedTuple):
    """What is to be done next: a method that waited."""

    channel: Channel
    method: type[m.Method]
    waiting: Waiting


class Connection(asyncio.BufferedProtocol):
    """One client.

    Args:
        origin: where it comes from; what the socket says, unless given.

    Attributes:
        name: ``CLIENT:PORT -> SERVER:PORT``, as it is shown; another node may have one of the same name.
        identity: tells it from all others, of other nodes and other times too: what is exclusive belongs to it.
        node: name of the node that it leads to.
        user: who logged in, ``NO_ONE`` before.
        tls: how it is encrypted; None without.
        vhost: the virtual host, from ``connection.open`` on.
        handshake: how the client introduced itself.
        opened: whether ``connection.open`` has succeeded.
        closed: set when the socket is closed.
        reading: whether the client is read.
        rate: how fast it publishes, and may.
        charges: what it holds of the broker's memory.
        congested: whether the client reads too slowly for more deliveries.
        connected_at: seconds since the epoch.
        received_octets, sent_octets: since the start.
        reads, writes: how often the socket was read and written.
    """

    vhost: VirtualHost

    def __init__(self, services: "Services", origin: Origin | None = None) -> None:
        self._services = services  # what it shares with others
        self._turns = services.turns  # those of the broker
        self.node = services.topology.node
        self.protocol = ServerProtocol()
        self.channels: dict[int, Channel] = {}
        self.name = ""
        self.identity = next(services.identities)
        self.user = NO_ONE
        self.peer_host, self.peer_port = "", 0
        self._origin = origin
        self.tls: Encryption | None = None
        self.handshake = Handshake(self, services)
        self.opened = False
        self._gone = False  # whether its end has come, and its exclusive queues go
        self._answers_close = False  # whether the client waits for close-ok until they are gone
        self.congested = False
        self.closed = asyncio.Event()
        self.connected_at = time.time()
        self.received_octets = self.sent_octets = 0
        self.reads = self.writes = 0
        self._transport: asyncio.Transport  # the socket, as the event loop has it
        self._socket = -1  # the descriptor where octets may be read and written at once: not with TLS
        self.reading = Reading()
        self._pending_events: Iterator[Event] | None = None  # what was read and waits for its turn
        self._current_event: Event | _GoOn | None = None  # comes before them: of a run a piece, or what waited
        self.charges = Charges(services.memory)
        self.rate = PublishRate(services.config.publish_rate)
        self._buffer = services.receive_buffer  # what the socket is read into, as all are
        self._partial_frame = b""  # the beginning of a frame whose end did not arrive yet
        self._deferred_until = 0  # the commit that is to be complete before anything is written; 0 is none
        self._hanging_up = False  # whether the socket is closed once everything is written
        self._unwritten = 0  # octets of deliveries that wait to be written
        self._last_sent = time.monotonic()  # when the socket was written last, by the monotonic clock
        self._expects_request = False  # whether the client asks again soon after it was answered
        self._deadline: asyncio.TimerHandle | None = None  # ends a handshake or a close that takes too long
        self._expiry: asyncio.TimerHandle | None = None  # ends the connection with its user's token

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.reading.start(self._transport)
        if self._transport.get_extra_info("ssl_object") is None:
            self._socket = self._transport.get_extra_info("socket").fileno()
        self._transport.set_write_buffer_limits(high=CONGESTED_AT, low=CONGESTED_AT // 4)
        origin = self._origin or Origin.of(transport)
        self.peer_host, self.peer_port = origin.peer
        server_host, server_port = origin.server
        self.tls = origin.tls
        self.name = f"{self.peer_host}:{self.peer_port} -> {server_host}:{server_port}"
        self._set_deadline(HANDSHAKE_TIMEOUT)
        self._services.connections.add(self)

    @property
    def asker(self) -> Asker:
        """Who asks for what is changed at the client's wish."""
        return Asker(self.user.name, self.name, self.peer_host)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.protocol.unfinished and self._socket >= 0 and self.protocol.scatters:
            return self._buffer.small
        # Not every call is followed by buffer_updated, so what was kept must survive this one.
        return self._buffer.after(self._partial_frame, self.protocol.unfinished > 0)

    def buffer_updated(self, nbytes: int) -> None:
        self.reading.last = now = time.monotonic()
        self._expects_request = now - self._last_sent < SOON
        self._services.busy_polling.end()
        self.received_octets += nbytes
        self.reads += 1
        octets = self._buffer.received(len(self._partial_frame) + nbytes)
        self._work(self.protocol.receive(octets, time.time()))
        if self.protocol.unfinished and self._socket >= 0 and self.protocol.scatters:
            nbytes += self._read_bodies(now + SLICE)
        if nbytes >= READ_SIZE:
            self.reading.let_others()

    def _read_bodies(self, until: float) -> int:
        """Read large bodies straight to their memory, which the event loop cannot; returns how many octets came.

        Args:
            until: when to let others be served, in seconds by the monotonic clock.
        """
        total = 0
        while not (self.reading.waits or self._transport.is_closing()):
            scatter = self.protocol.scatter(self._buffer.small)
            if scatter is None:
                break
            try:
                octets = os.readv(self._socket, scatter.buffers)
            except OSError:  # nothing there, or no client: for the transport to deal with
                break
            total += octets
            self.received_octets += octets
            self.reads += 1
            self._work(self.protocol.receive_scattered(scatter, octets, time.time()))
            if octets < scatter.size or time.monotonic() > until:
                break
        return total

    def _work(self, events: Iterator[Event]) -> None:
        """Act on what was read. Leave the rest for later where that takes long, so that others are served in between,
        or where the client does not read what it is answered."""
        wait = Wait.NOTHING
        with self._turns.turn(self):
            until = 0.0
            try:
                while (event := self._next(events)) is not None:
                    began = time.perf_counter()
                    until = until or began + STEP
                    self._act(event)
                    now = time.perf_counter()
                    if isinstance(event, Publish):
                        self._services.run_sizes.learn(self.vhost.name, event, now - began)
                    if isinstance(self._current_event, _GoOn):
                        wait = Wait.METHOD
                    elif self.congested and self._is_flooded():
                        wait = Wait.CLIENT
                    elif self.rate.wait():
                        wait = Wait.RATE
                    elif now > until:
                        wait = Wait.WORK
                    if wait:
                        break
            except Exception:
                log.exception("connection %s: unexpected error", self.name)
                self._current_event = None
                self.protocol.skip()
                self.fail(Failed(InternalError("unexpected error; see the broker's log")))
        self._charge_memory()
        if wait:
            self._leave_rest(events, wait)
        else:
            self._partial_frame = self.protocol.take_kept()
            if self.reading.waits:
                self.reading.resume(LEFT)

    def _next(self, events: Iterator[Event]) -> Event | _GoOn | None:
        """What is to be acted on next: of a long run of publishes a piece."""
        event, self._current_event = self._current_event or next(events, None), None
        if isinstance(event, Publish) and len(event.messages) > 1:
            event, self._current_event = self._services.run_sizes.cut(self.vhost.name, event, self.rate.piece)
        return event

    @property
    def unwritten_octets(self) -> int:
        """What waits for the client to read."""
        return self._unwritten + self._transport.get_write_buffer_size()

    def _is_flooded(self) -> bool:
        """Whether so much waits for the client that it must read first; less where memory is small, or one client that
        does not read would keep up the alarm for all."""
        most = max(CONGESTED_AT, min(FLOODED_AT, self._services.memory.limit // 16))
        return self.unwritten_octets > most

    def _leave_rest(self, events: Iterator[Event], wait: Wait) -> None:
        self._pending_events = events
        self._partial_frame = b""
        self.protocol.retain()
        self.reading.pause(wait)
        self.reading.resume(LEFT & ~wait)
        if wait is Wait.WORK:
            asyncio.get_running_loop().call_soon(self._go_on)
        elif wait is Wait.RATE:
            asyncio.get_running_loop().call_later(self.rate.wait(), self._go_on)
        elif isinstance(self._current_event, _GoOn):
            waiting = self._current_event.waiting
            waiting.on_end(lambda: asyncio.get_running_loop().call_soon(self._end_wait, waiting))

    def _end_wait(self, waiting: Waiting) -> None:
        """Go on with a method that waited, and what was left after it."""
        if isinstance(self._current_event, _GoOn) and self._current_event.waiting is waiting:
            self._go_on()

    def _go_on(self) -> None:
        """Act on what was left."""
        rest, self._pending_events = self._pending_events, None
        if rest is not None:
            self._work(rest)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        if self._expiry is not None:
            self._expiry.cancel()
        self.handshake.close()
        self._services.alarms.forget(self)
        self._pending_events = None
        self.protocol.state = State.CLOSED
        self._answers_close = False
        with self._turns.turn():
            self._close_channels()
        self._services.churn.connection_closed += self.opened
        self.charges.release()
        self.closed.set()
        self._services.connections.discard(self)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        with self._turns.turn():
            for channel in list(self.channels.values()):
                channel.serve()
            if self.reading.waits & Wait.CLIENT:
                self._go_on()

    # --- events ---

    def _act(self, event: Event | _GoOn) -> None:
        match event:
            case Publish():
                self._publish(event)
                if self._services.alarms.active and self.protocol.state is State.RUNNING:
                    self._services.alarms.block(self)
            case Ack():
                channel = self.channels[event.channel]
                self._guard(channel, m.BasicAck, settling.basic_ack, channel, event.tags, event.multiple)
            case Received(0, method):
                self._receive(method)
            case Received(number, m.ChannelOpen()):
                self._open_channel(number)
            case Received(number, m.ChannelClose()):
                self.channels.pop(number).close()
                self.send(number, m.ChannelCloseOk())
            case Received(number, method):
                channel = self.channels[number]
                self._guard(channel, type(method), self._receive_for, channel, type(method), channel.receive, method)
            case _GoOn(channel, method_type, waiting):
                if not channel.closed:
                    self._guard(channel, method_type, self._receive_for, channel, method_type, waiting.go_on)
            case TooLarge(number, size):
                error = PreconditionFailed(f"message size {size} is larger than configured max size {MAX_MESSAGE_SIZE}")
                self.close_channel(self.channels[number], error, m.BasicPublish)
            case Failed():
                self.fail(event)
            case Begun():
                self.handshake.send_start()
            case BadHeader():
                self._hang_up()

    def _receive_for(
        self, channel: Channel, method: type[m.Method], act: Callable[..., Waiting | None], *arguments: m.Method
    ) -> None:
        """Act on a method, or go on with it; what it has to wait for then comes before all that was read after it."""
        waiting = act(*arguments)
        if waiting is not None:
            self._current_event = _GoOn(channel, method, waiting)

    def _publish(self, run: Publish) -> None:
        channel = self.channels.get(run.channel)
        if channel is not None:  # it may have been closed for an earlier piece of the run
            if self.charges.held:  # or a body that is now whole would count twice
                self.charges.set("unfinished", self.protocol.unfinished)
            self._guard(channel, m.BasicPublish, channel.publish, run)
            self.rate.count(len(run.messages))

    def _guard(self, channel: Channel, method: type[m.Method], act: Any, *arguments: Any) -> None:
        """Act, and turn a protocol error into the close of the channel or of the connection."""
        try:
            act(*arguments)
        except AMQPError as error:
            self._audit(error)
            if error.hard:
                self.fail(Failed(error, channel.number, method.class_id, method.method_id))
            else:
                self.close_channel(channel, error, method)

    def _audit(self, error: AMQPError) -> None:
        """Write down what the user may not."""
        if isinstance(error, AccessRefused | NotAllowed):
            audit.refusal(error.text, user=self.user.name, connection=self.name)

    def close_channel(self, channel: Channel, error: AMQPError, method: type[m.Method] | None = None) -> None:
        """Close a channel for an error, which a method of the client's has made, if any."""
        log.info("connection %s, channel %d: %s", self.name, channel.number, error.reply_text)
        del self.channels[channel.number]
        channel.close()
        self._end_wait_of_closed()
        self._turns.write_soon(self)
        self.protocol.close_channel(channel.number, error, method)

    def fail(self, failed: Failed) -> None:
        """Close the connection for an error; the client has a moment to answer."""
        if self.protocol.state in (State.CLOSE_OK, State.CLOSED):
            return
        log.warning("connection %s, channel %d: %s", self.name, failed.channel, failed.error.reply_text)
        self.handshake.cancel()
        self._close_channels()
        self.protocol.send_close(failed)
        self._services.alarms.forget(self)
        self.reading.resume(Wait.ALARM)  # or its answer would not be heard
        self._turns.write_soon(self)
        self._set_deadline(CLOSE_TIMEOUT)

    def _close_channels(self) -> None:
        """Close all channels and delete the exclusive queues."""
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.close()
        self._end_wait_of_closed()
        self._gone = True
        self.leave_queues()

    def leave_queues(self) -> None:
        """Delete the exclusive queues, if the connection is at its end; many of them in steps, with others served in
        between."""
        if self.opened and self._gone:
            steps = self._delete_exclusive_queues()
            if len(list(islice(steps, DELETED_AT_ONCE))) == DELETED_AT_ONCE:
                self._services.upkeep.work(f"deleting the exclusive queues of connection {self.name}", steps)

    def _delete_exclusive_queues(self) -> Iterator[None]:
        last = None
        for queue in self.vhost.exclusive_queues(self.identity):
            if self.vhost.declared.get(queue.name) is queue:  # another call may be at it
                last = self._services.topology.propose(DeleteQueue(queue.vhost, queue.name, queue.id), self.asker)
                yield
        if last is None:
            self._answer_close()
        else:
            last.then(self._answer_close)

    def _end_wait_of_closed(self) -> None:
        """Go on with what was left, if it waits for a channel that is closed by now."""
        current = self._current_event
        if self._pending_events is not None and isinstance(current, _GoOn) and current.channel.closed:
            asyncio.get_running_loop().call_soon(self._end_wait, current.waiting)

    # --- class connection ---

    def _receive(self, method: m.Method) -> None:
        match method:
            case m.ConnectionStartOk():
                self.handshake.authenticate(method)
            case m.ConnectionTuneOk():
                pass
            case m.ConnectionOpen():
                self._open(method.virtual_host)
            case m.ConnectionClose():
                self._close()
            case m.ConnectionCloseOk():
                self._hang_up()
            case m.ConnectionUpdateSecret():
                if self.user.granted is not None:
                    self.handshake.renew(method.new_secret)
                else:
                    self.send(0, m.ConnectionUpdateSecretOk())

    def tune(self, user: Principal) -> None:
        """The client is authenticated as ``user``: propose limits to it."""
        self.set_user(user)
        config = self._services.config
        self.protocol.propose(config.heartbeat, config.channel_max, config.frame_max)
        self._turns.write_soon(self)

    def set_user(self, user: Principal) -> None:
        """Act for a user from now on; with a token until it expires."""
        self.user = user
        self.rate.shared = self._services.user_limits.rate(user)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if user.until is not None:
            seconds = min(max(0.0, user.until - time.time()), LONGEST_TIMER)
            self._expiry = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        audit.refusal("the token has expired", user=self.user.name, connection=self.name)
        with self._turns.turn():
            self.close(ConnectionForced(f"credentials of user '{self.user}' have expired"))

    def _open(self, name: str) -> None:
        try:
            vhost = self._services.authorization.require_vhost(self.user, name)
            self._services.user_limits.require_connection(self.user, vhost)
        except NotAllowed as error:
            self._audit(error)
            self.fail(Failed(error, 0, m.ConnectionOpen.class_id, m.ConnectionOpen.method_id))
            return
        self.vhost = vhost
        self.opened = True
        self._services.churn.connection_created += 1
        self._set_deadline(None)
        self.send(0, m.ConnectionOpenOk())
        log.info("connection %s: user %r opened virtual host %r", self.name, self.user.name, name)

    def _open_channel(self, number: int) -> None:
        try:
            self._services.user_limits.require_channel(self.user)
        except NotAllowed as error:
            self.fail(Failed(error, number, m.ChannelOpen.class_id, m.ChannelOpen.method_id))
            return
        self.channels[number] = Channel(self, number, self._services)
        self._services.churn.channel_created += 1
        self.send(number, m.ChannelOpenOk())

    def _close(self) -> None:
        """The client closes the connection. What it still sends is read and dropped until it closes the socket: were
        that done here, octets unread, the kernel would reset the connection and the client might miss close-ok."""
        self.handshake.cancel()
        self._set_deadline(None)
        self._answers_close = True
        self._close_channels()
        if not self.opened:
            self._answer_close()

    def _answer_close(self) -> None:
        """Send close-ok if the client has closed the connection: its exclusive queues are gone."""
        if self._answers_close:
            self._answers_close = False
            self.send(0, m.ConnectionCloseOk())
            self._set_deadline(CLOSE_TIMEOUT)

    @property
    def state(self) -> str:
        """What operators are shown: ``starting``, ``tuning``, ``opening``, ``running`` or ``closed``, which it is until
        the socket is closed; with an alarm in effect ``blocking``, and ``blocked`` once it has published (RabbitMQ's
        words)."""
        if self.protocol.state is State.RUNNING and self._services.alarms.active:
            return "blocked" if self.reading.waits & Wait.ALARM else "blocking"
        return SHOWN_STATES[self.protocol.state]

    def close(self, error: AMQPError) -> None:
        """Close the connection on the broker's or an operator's behalf."""
        if self.protocol.state in (State.HEADER, State.START_OK, State.AUTHENTICATING, State.CLOSED):
            self._transport.close()
        else:
            self.fail(Failed(error))

    def abort(self) -> None:
        """Drop the connection without a word."""
        self._transport.abort()

    def _hang_up(self) -> None:
        """Close the socket as soon as everything is written."""
        self._hanging_up = True
        self._turns.write_soon(self)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def tick(self, now: float) -> None:
        """Look at the clock, and at what the client has read meanwhile.

        Args:
            now: seconds by the monotonic clock.
        """
        self._charge_memory()
        self._check_heartbeat(now)

    def _check_heartbeat(self, now: float) -> None:
        """Send a heartbeat where it is due, and give up a client that has long been silent (section 4.2.7)."""
        interval = self.protocol.heartbeat
        if not interval or self.protocol.state in (State.CLOSE_OK, State.CLOSED):
            return
        if now - self.reading.last > 2.5 * interval and not self.reading.waits:
            log.warning("connection %s: missed heartbeats from client, timeout: %ds", self.name, interval)
            self.abort()
        elif now - self._last_sent >= interval / 2:
            self.protocol.send_heartbeat()
            self.write()

    # --- what channels ask ---

    @property
    def frame_max(self) -> int:
        """Octets of the largest frame that the client takes."""
        return self.protocol.frame_max

    @property
    def provided_name(self) -> str | None:
        """What the client calls the connection; None where it says nothing."""
        name = self.handshake.client_properties.get("connection_name")
        return name if isinstance(name, str) else None

    @property
    def wants_cancel_notice(self) -> bool:
        """Whether the client understands ``basic.cancel`` from the broker."""
        return self.handshake.wants_cancel_notice

    def require_permission(self, operation: Operation, kind: Kind, name: str) -> None:
        """Refuse unless the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user may not.
        """
        self._services.authorization.require(self.user, self.vhost.name, operation, kind, name)

    # --- sending ---

    def send(self, channel: int, method: m.Method) -> None:
        """Send a method when the current work is done."""
        self.protocol.send(channel, method)
        self._turns.write_soon(self)

    def send_content(self, channel: int, method: m.Method, message: Message) -> None:
        """Send a method with a content when the current work is done."""
        self.protocol.send_content(channel, method, message)
        self._count_unwritten(len(message.body))

    def send_deliveries(self, buffers: list[bytes | memoryview]) -> None:
        """Send deliveries when the current work is done, or already now if they have become many."""
        self.protocol.send_encoded(buffers)
        self._count_unwritten(sum(map(len, buffers)))

    def _count_unwritten(self, octets: int) -> None:
        self._unwritten += octets
        if self._unwritten > WRITE_AT:
            self.write()
            if self._unwritten > CONGESTED_AT:
                self.congested = True
        else:
            self._turns.write_soon(self)

    def defer_answers(self) -> None:
        """What is answered to this read leaves when all that it changed is on disk."""
        if self._turns.defer(self):
            self._deferred_until = UNNUMBERED

    def defer_until(self, commit: int) -> None:
        """From what is not yet written on, write nothing before this commit is on disk."""
        self._deferred_until = commit

    def send_deferred(self, committed: int) -> bool:
        """Commit ``committed`` is on disk; returns whether everything may be written now."""
        if committed < self._deferred_until:
            return False
        self._deferred_until = 0
        if self._unwritten > CONGESTED_AT:
            asyncio.get_running_loop().call_soon(self._after_deferral)
        return True

    def _after_deferral(self) -> None:
        """What was deferred is written; if the client takes it at once, nothing else says that there is room again."""
        if self._transport.get_write_buffer_size() <= CONGESTED_AT // 4:
            self.resume_writing()

    def write(self) -> None:
        """Write what there is to send, unless it is deferred."""
        if self._deferred_until or self._transport.is_closing():
            return
        buffers = self.protocol.data_to_send()
        if buffers:
            octets = sum(map(len, buffers)) if len(buffers) > 1 else len(buffers[0])
            answers, self._unwritten = not self._unwritten, 0
            if len(buffers) == 1:
                if not (answers and self._sent_at_once(buffers[0])):
                    self._transport.write(buffers[0])
            elif octets <= JOINED_UP_TO:
                self._transport.write(b"".join(buffers))
            else:
                self._transport.writelines(buffers)
            self._last_sent = time.monotonic()
            self.sent_octets += octets
            self.writes += 1
            unsent = self._transport.get_write_buffer_size()
            if unsent or self.charges.held:
                self.charges.set("unsent", unsent)
            if answers and self._expects_request:
                self._services.busy_polling.begin()
        if self._hanging_up:
            self._transport.close()

    def _sent_at_once(self, octets: bytes | memoryview) -> bool:
        """Give an answer to the socket now, if nothing is before it, as its client may wait for nothing else; the event
        loop would come to it when all that is under way here is done."""
        if self._socket < 0 or self._transport.get_write_buffer_size():
            return False
        try:
            sent = os.write(self._socket, octets)
        except OSError:  # no room, or no client: for the transport to deal with
            return False
        if sent < len(octets):
            self._transport.write(octets[sent:])
        return True

    def _charge_memory(self) -> None:
        unsent, unfinished = self._unwritten + self._transport.get_write_buffer_size(), self.protocol.unfinished
        if not (unsent or unfinished or self.charges.held):
            return
        self.charges.set("unsent", unsent)
        # While an alarm blocks the client its unfinished body stays so: counted, it might keep up the alarm for ever.
        self.charges.set("unfinished", 0 if self.reading.waits & Wait.ALARM else unfinished)

    # --- flow control ---

    def wait_for_disk(self, behind: bool) -> None:
        """Read no more from this client while the disk is behind."""
        if behind:
            self.reading.pause(Wait.DISK)
        else:
            self.reading.resume(Wait.DISK)

    def block(self, reason: str) -> None:
        """Read no more from this client, who publishes while an alarm is in effect, until :meth:`unblock`."""
        if self.handshake.wants_blocked_notice:
            self.send(0, m.ConnectionBlocked(reason))
        self.reading.pause(Wait.ALARM)

    def unblock(self) -> None:
        """No alarm is in effect any more."""
        if self.handshake.wants_blocked_notice:
            self.send(0, m.ConnectionUnblocked())
        self.reading.resume(Wait.ALARM)
