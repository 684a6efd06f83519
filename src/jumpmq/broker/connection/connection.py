"""A client's connection: octets from the socket become events for channels (:mod:`dispatching`), and the answers are
written (:mod:`writing`).

The requests of one read are executed before any write; then every connection with output writes all its output
(:mod:`turns`). If a read changes definitions, its answers are *deferred* until the change is on disk: a ``declare-ok``
is a promise that survives kill -9.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Iterator
from itertools import islice
from typing import cast

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import (
    AccessRefused,
    AMQPError,
    ConnectionForced,
    NotAllowed,
)
from jumpmq.amqp.messages import Message
from jumpmq.amqp.protocol import (
    ConnectionState,
    Failed,
    ServerProtocol,
)
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.connection.closed import CLOSED
from jumpmq.broker.connection.dispatching import Dispatcher
from jumpmq.broker.connection.handed import Handed
from jumpmq.broker.connection.handshake import ClientHandshake
from jumpmq.broker.connection.origin import ConnectionOrigin, Encryption
from jumpmq.broker.connection.reading import Reading, Wait
from jumpmq.broker.connection.receiving import READ_SIZE
from jumpmq.broker.connection.services import Services
from jumpmq.broker.connection.writing import CONGESTED_AT, UNNUMBERED, WRITE_AT, Writing
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.security.accounts import NO_ONE, Principal
from jumpmq.broker.security.rate import PublishRate
from jumpmq.broker.security.tokens import to_values
from jumpmq.broker.telemetry import audit
from jumpmq.broker.upkeep.slices import SLICE
from jumpmq.store.completion import CompleteReceipt
from jumpmq.topology import ChangePrincipal, DeleteQueue, VirtualHost
from jumpmq.topology.bindings import DestinationKind
from jumpmq.topology.users import Operation

log = logging.getLogger(__name__)

FLOODED_AT = 16 << 20
"""Octets waiting for a client that sends requests without reading answers, before reading from the client stops."""

DELETED_AT_ONCE = 50
"""Exclusive queues deleted per slice."""

LONGEST_TIMER = 86400.0 * 365
"""Maximum duration of a timer, in seconds."""

SHOWN_STATES = {
    ConnectionState.HEADER: "starting",
    ConnectionState.START_OK: "starting",
    ConnectionState.AUTHENTICATING: "starting",
    ConnectionState.TUNE_OK: "tuning",
    ConnectionState.OPEN: "opening",
    ConnectionState.RUNNING: "running",
    ConnectionState.CLOSE_OK: "closed",
    ConnectionState.CLOSED: "closed",
}


class Connection(asyncio.BufferedProtocol):
    """A client's connection.

    Args:
        connections: the open connections of the process.
        origin: addresses and encryption; by default those of the socket.
        handed: data of a client handed over by another process of the broker; None for a new client.

    Attributes:
        name: ``CLIENT:PORT -> SERVER:PORT``; connections of two nodes may have the same name.
        identity: unique identifier of the connection, also among other nodes and earlier starts; owner of exclusive
            queues.
        node: name of the client's node.
        user: the logged-in user; ``NO_ONE`` before the login.
        tls: the encryption; None without TLS.
        vhost: the virtual host, from ``connection.open`` on.
        handshake: the handshake, with the client's properties.
        opened: True if ``connection.open`` has succeeded.
        closed: set when the socket is closed.
        reading: flow control of reading.
        rate: publish rate, with its limits.
        charges: broker memory held by the connection.
        congested: True if the client reads too slowly for more deliveries.
        connected_at: seconds since the epoch.
        writing: writing of output.
        received_octets: number of received octets, since the start.
        reads: number of reads of the socket.
    """

    vhost: VirtualHost

    __slots__ = (  # faster than a dict with so many attributes
        "_answers_close", "_buffer", "_connections", "_deadline", "_dispatcher", "_expiry", "_gone", "_handed",
        "_origin", "_pause", "_services", "_socket", "_transport", "_turns", "channels", "charges", "closed",
        "congested", "connected_at", "handshake", "identity", "name", "node", "opened", "peer_host", "peer_port",
        "protocol", "rate", "reading", "reads", "received_octets", "tls", "user", "vhost", "write", "writing",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        connections: "set[Connection]",
        origin: ConnectionOrigin | None = None,
        handed: Handed | None = None,
    ) -> None:
        self._services = services  # shared by all connections
        self._connections = connections  # open connections; each adds and removes itself
        self._turns = services.turns  # event-loop iterations of the broker
        self._pause = services.pause  # pauses all clients
        self.node = services.topology.node
        self.protocol = ServerProtocol()
        self.channels: dict[int, Channel] = {}
        self.name = ""
        self.identity = next(services.identities)
        self.user = NO_ONE
        self.peer_host, self.peer_port = "", 0
        self._origin = origin
        self._handed = handed  # data of a client handed over by another process
        self.tls: Encryption | None = None
        self.handshake: ClientHandshake
        self.opened = False
        self._gone = False  # True when the connection ends and its exclusive queues are being deleted
        self._answers_close = False  # True if close-ok must be sent when the exclusive queues are deleted
        self.congested = False
        self.closed = asyncio.Event()
        self.connected_at = time.time()
        self.received_octets = self.reads = 0
        self._transport: asyncio.Transport  # the event loop's transport
        self._socket = -1  # descriptor for direct reads and writes; -1 with TLS
        self.reading = Reading()
        self._dispatcher: Dispatcher
        self.charges = Charges(services.memory)
        self.writing = Writing(self.protocol, self.charges, services.busy_polling)
        self.write = self.writing.write  # called for each answer
        self.rate = PublishRate(services.config.publish_rate)
        self._buffer = services.receive_buffer  # shared by all connections
        self._deadline: asyncio.TimerHandle | None = None  # timeout of the handshake or the close
        self._expiry: asyncio.TimerHandle | None = None  # ends the connection when its user's token expires

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Both objects refer to the connection. They are made only here, after the TLS handshake: connection_lost, which
        # breaks these reference cycles, is called only after connection_made.
        self.handshake, self._dispatcher = ClientHandshake(self, self._services), Dispatcher(self, self._services)
        self.reading.start(self._transport)
        if self._transport.get_extra_info("ssl_object") is None:
            self._socket = self._transport.get_extra_info("socket").fileno()
        self.writing.start(self._transport, self._socket)
        origin = ConnectionOrigin.of(transport) if self._origin is None else self._origin.with_tls(transport)
        self.peer_host, self.peer_port = origin.peer
        server_host, server_port = origin.server
        self.tls = origin.tls
        self.name = f"{self.peer_host}:{self.peer_port} -> {server_host}:{server_port}"
        self._set_deadline(self._services.config.timing.handshake)
        self._connections.add(self)
        if self._handed is not None:
            self._go_on(self._handed)

    def _go_on(self, handed: Handed) -> None:
        """Open the virtual host of a client handed over by a second process."""
        self.handshake.go_on(handed.handshake)
        self.protocol.go_on(*handed.negotiated)
        self.connected_at = handed.since
        self.set_user(handed.principal)
        with self._turns.turn(self):
            self._open(handed.vhost)
        if handed.rest:
            self._dispatcher.work(self.protocol.receive(handed.rest, time.time()))

    def _hand_over(self, vhost: VirtualHost) -> bool:
        """Hand the client over to the home of its virtual host; return True if done. This process then no longer reads
        the socket: further data is for the new process."""
        hands = self._services.hand_over
        home = hands.home_of(vhost)
        # The state of TLS cannot be handed over, and each client is handed over once at most.
        stays = self._socket < 0 or self._origin is not None or self._handed is not None
        # Unsent output would be lost with this process's transport.
        if home is None or stays or self.writing.waiting:
            return False
        protocol = self.protocol
        # No octet may arrive between the copy of the unread octets and the handover.
        self._transport.pause_reading()
        handed = Handed(
            vhost.name,
            to_values(self.user),
            self.handshake.known(),
            (protocol.frame_max, protocol.channel_max, protocol.heartbeat),
            self.connected_at,
            protocol.unread,
        )
        if not hands.give(home, self._socket, handed.packed()):
            self._transport.resume_reading()
            return False
        protocol.give_up()
        log.info("connection %s: given to home %d, that of virtual host %r", self.name, home, vhost.name)
        self.abort()
        return True

    @property
    def change_principal(self) -> ChangePrincipal:
        """Principal of changes made at the client's request."""
        return ChangePrincipal(self.user.name, self.name, self.peer_host)

    def get_buffer(self, sizehint: int) -> memoryview:
        is_large = False
        if self.protocol.unfinished:
            if self._socket >= 0 and self.protocol.scatters:
                return self._buffer.small
            is_large = self.protocol.holds_large_part
        # Not every call is followed by buffer_updated: the partial frame must survive this call.
        return self._buffer.after(self._dispatcher.partial_frame, is_large)

    def buffer_updated(self, nbytes: int) -> None:
        self.reading.last = now = time.monotonic()
        if self._pause.late_at != math.inf:
            self._pause.look()
        self.writing.received(now)
        self.received_octets += nbytes
        self.reads += 1
        octets = self._buffer.received(len(self._dispatcher.partial_frame) + nbytes)
        self._dispatcher.work(self.protocol.receive(octets, time.time()))
        if self.protocol.unfinished and self._socket >= 0 and self.protocol.scatters:
            nbytes += self._read_bodies(now + SLICE)
        if nbytes >= READ_SIZE:
            self.reading.yield_to_others()

    def _read_bodies(self, until: float) -> int:
        """Read large bodies directly into their memory, unlike the event loop; return the octets read.

        Args:
            until: end of the reads, so that other clients are served, in seconds by the monotonic clock.
        """
        total = 0
        while not (self.reading.waits or self._transport.is_closing()):
            scatter = self.protocol.scatter(self._buffer.small)
            if scatter is None:
                break
            try:
                octets = os.readv(self._socket, scatter.buffers)
            except OSError:  # no data, or the client is gone: the transport handles both
                break
            total += octets
            self.received_octets += octets
            self.reads += 1
            self._dispatcher.work(self.protocol.receive_scattered(scatter, octets, time.time()))
            if octets < scatter.size or time.monotonic() > until:
                break
        return total

    def is_flooded(self) -> bool:
        """True if the client must read waiting data first. The limit is lower with little memory, because a client that
        does not read would otherwise keep an alarm in effect for all clients."""
        most = max(CONGESTED_AT, min(FLOODED_AT, self._services.memory.limit // 16))
        return self.writing.waiting > most

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        if self._expiry is not None:
            self._expiry.cancel()
        self.handshake.close()
        self._services.alarms.forget(self)
        # First: remaining events must not act on the closed channels.
        self._dispatcher.close()
        self.protocol.state = ConnectionState.CLOSED
        self._answers_close = False
        with self._turns.turn():
            self._close_channels()
        self._services.churn.connection_closed += self.opened
        self.charges.release()
        self.closed.set()
        self._connections.discard(self)
        self._transport = CLOSED
        self.reading.end()
        self.writing.end()

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        with self._turns.turn():
            for channel in list(self.channels.values()):
                channel.serve()
            if self.reading.waits & Wait.CLIENT:
                self._dispatcher.go_on()

    # --- closing ---

    def note_refusal(self, error: AMQPError) -> None:
        """Log a refusal."""
        if isinstance(error, AccessRefused | NotAllowed):
            audit.refusal(error.text, user=self.user.name, connection=self.name)

    def close_channel(self, channel: Channel, error: AMQPError, method: type[m.Method] | None = None) -> None:
        """Close a channel with an error, caused by a method of the client, if given."""
        log.info("connection %s, channel %d: %s", self.name, channel.number, error.reply_text)
        del self.channels[channel.number]
        channel.close()
        self._dispatcher.end_wait_of_closed()
        self._turns.write_soon(self)
        self.protocol.close_channel(channel.number, error, method)

    def fail(self, failed: Failed) -> None:
        """Close the connection with an error; the client has ``timing.close`` to answer."""
        if self.protocol.state in (ConnectionState.CLOSE_OK, ConnectionState.CLOSED):
            return
        log.warning("connection %s, channel %d: %s", self.name, failed.channel, failed.error.reply_text)
        self.handshake.cancel()
        self._close_channels()
        self.protocol.send_close(failed)
        self._services.alarms.forget(self)
        self.reading.resume(Wait.ALARM)  # to read the client's close-ok
        self._turns.write_soon(self)
        self._set_deadline(self._services.config.timing.close)

    def _close_channels(self) -> None:
        """Close all channels and delete the exclusive queues."""
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.close()
        self._dispatcher.end_wait_of_closed()
        self._gone = True
        self.leave_queues()

    def leave_queues(self) -> None:
        """Delete the exclusive queues of a closing connection, in steps if many."""
        if self.opened and self._gone:
            steps = self._delete_exclusive_queues()
            if len(list(islice(steps, DELETED_AT_ONCE))) == DELETED_AT_ONCE:
                self._services.upkeep.work(f"deleting the exclusive queues of connection {self.name}", steps)

    def _delete_exclusive_queues(self) -> Iterator[None]:
        last = None
        for queue in self.vhost.exclusive_queues(self.identity):
            if self.vhost.declared.get(queue.name) is queue:  # another call may have deleted it
                last = self._services.topology.propose(
                    DeleteQueue(queue.vhost, queue.name, queue.id), self.change_principal
                )
                yield
        if last is None:
            self._answer_close()
        else:
            last.then(self._answer_close)

    # --- class connection ---

    def receive(self, method: m.Method) -> None:
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
                self.hang_up()
            case m.ConnectionUpdateSecret():
                if self.user.granted is not None:
                    self.handshake.renew(method.new_secret)
                else:
                    self.send(0, m.ConnectionUpdateSecretOk())

    def tune(self, user: Principal) -> None:
        """Propose limits to a client authenticated as ``user``."""
        self.set_user(user)
        config = self._services.config
        self.protocol.propose(config.heartbeat, config.channel_max, config.frame_max)
        self._turns.write_soon(self)

    def set_user(self, user: Principal) -> None:
        """Set the user of the connection; a user with a token is disconnected when the token expires."""
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
            # A client that is handed over counts for the limits of its new home only.
            if self._hand_over(vhost):
                return
            self._services.user_limits.require_connection(self.user, vhost)
        except NotAllowed as error:
            self.note_refusal(error)
            self.fail(Failed(error, 0, m.ConnectionOpen.class_id, m.ConnectionOpen.method_id))
            return
        self.vhost = vhost
        self.opened = True
        self._services.churn.connection_created += 1
        self._set_deadline(None)
        self.send(0, m.ConnectionOpenOk())
        log.info("connection %s: user %r opened virtual host %r", self.name, self.user.name, name)

    def open_channel(self, number: int) -> None:
        try:
            self._services.user_limits.require_channel(self.user)
        except NotAllowed as error:
            self.fail(Failed(error, number, m.ChannelOpen.class_id, m.ChannelOpen.method_id))
            return
        self.channels[number] = Channel(self, number, self._services)
        self._services.churn.channel_created += 1
        self.send(number, m.ChannelOpenOk())

    def _close(self) -> None:
        """Close at the client's request. Further data is read and dropped until the client closes the socket: closing
        the socket with unread octets would reset the connection, and the client might miss close-ok."""
        self.handshake.cancel()
        self._set_deadline(None)
        self._answers_close = True
        self._close_channels()
        if not self.opened:
            self._answer_close()

    def _answer_close(self) -> None:
        """Send close-ok if the client has closed the connection; called when the exclusive queues are deleted."""
        if self._answers_close:
            self._answers_close = False
            self.send(0, m.ConnectionCloseOk())
            self._set_deadline(self._services.config.timing.close)

    @property
    def state(self) -> str:
        """State shown to operators: ``starting``, ``tuning``, ``opening``, ``running``, or ``closed`` until the socket
        is closed; during an alarm ``blocking``, and ``blocked`` after a publish (RabbitMQ's words)."""
        if self.protocol.state is ConnectionState.RUNNING and self._services.alarms.active:
            return "blocked" if self.reading.waits & Wait.ALARM else "blocking"
        return SHOWN_STATES[self.protocol.state]

    def close(self, error: AMQPError) -> None:
        """Close the connection on the broker's or an operator's behalf."""
        if self.protocol.state in (
            ConnectionState.HEADER,
            ConnectionState.START_OK,
            ConnectionState.AUTHENTICATING,
            ConnectionState.CLOSED,
        ):
            self._transport.close()
        else:
            self.fail(Failed(error))

    def abort(self) -> None:
        """Close the socket at once, without ``connection.close``."""
        self._transport.abort()

    def hang_up(self) -> None:
        """Close the socket as soon as everything is written."""
        self.writing.hanging_up = True
        self._turns.write_soon(self)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def tick(self, now: float) -> None:
        """Do periodic work: count the unsent data, and check heartbeats.

        Args:
            now: seconds by the monotonic clock.
        """
        self.charge_memory()
        self._check_heartbeat(now)

    def _check_heartbeat(self, now: float) -> None:
        """Send a heartbeat when due, and close the connection of a long silent client (section 4.2.7)."""
        interval = self.protocol.heartbeat
        if not interval or self.protocol.state in (ConnectionState.CLOSE_OK, ConnectionState.CLOSED):
            return
        # AMQP 0-9-1, section 4.2.7, asks for two intervals at least. While the broker does not read, silence proves
        # nothing.
        if now - self.reading.last > 2.5 * interval and not self.reading.waits:
            log.warning("connection %s: missed heartbeats from client, timeout: %ds", self.name, interval)
            self.abort()
        elif now - self.writing.last >= interval / 2:
            self.protocol.send_heartbeat()
            self.write()

    # --- used by channels ---

    @property
    def frame_max(self) -> int:
        """Size of the largest frame that the client accepts, in octets."""
        return self.protocol.frame_max

    @property
    def provided_name(self) -> str | None:
        """Connection name given by the client; None without one."""
        name = self.handshake.client_properties.get("connection_name")
        return name if isinstance(name, str) else None

    @property
    def wants_cancel_notice(self) -> bool:
        """True if the client understands ``basic.cancel`` from the broker."""
        return self.handshake.wants_cancel_notice

    def require_permission(self, operation: Operation, kind: DestinationKind, name: str) -> None:
        """Refuse unless the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user lacks the permission.
        """
        self._services.authorization.require(self.user, self.vhost.name, operation, kind, name)

    # --- sending ---

    def send(self, channel: int, method: m.Method) -> None:
        """Send a method at the end of the current work."""
        self.protocol.send(channel, method)
        self._turns.write_soon(self)

    def send_content(self, channel: int, method: m.Method, message: Message) -> None:
        """Send a method with a content at the end of the current work."""
        self.protocol.send_content(channel, method, message)
        self._gathered(len(message.body))

    def send_deliveries(self, buffers: list[bytes | memoryview]) -> None:
        """Send deliveries at the end of the current work, or at once if much output is waiting."""
        self.protocol.send_encoded(buffers)
        self._gathered(sum(map(len, buffers)))

    def relay_deliveries(self, frames: memoryview) -> None:
        """Relay deliveries from another home; large ones are written without a copy."""
        sent = self.writing.write_past(frames) if len(frames) > WRITE_AT else 0
        if sent < len(frames):
            self.send_deliveries([bytes(frames[sent:])])

    def _gathered(self, octets: int) -> None:
        if self.writing.gather(octets):
            self.writing.write()
            # Deferred output stays gathered, and counts like output that the client does not read.
            if self.writing.is_congested:
                self.congested = True
        else:
            self._turns.write_soon(self)

    def defer_answers(self) -> None:
        """Hold the answers to the current read until all its changes are on disk."""
        if self._turns.defer(self):
            self.writing.deferred_until = UNNUMBERED

    def defer_until(self, commit: int) -> None:
        """Hold unwritten data until the given commit is on disk."""
        self.writing.deferred_until = commit

    def send_deferred(self, committed: CompleteReceipt) -> bool:
        """Handle a completed commit; return True if all data may be written now."""
        if committed < self.writing.deferred_until:
            return False
        self.writing.deferred_until = 0
        if self.writing.is_congested:
            asyncio.get_running_loop().call_soon(self._after_deferral)
        return True

    def _after_deferral(self) -> None:
        """Resume consumers after a deferral: if the client reads the data at once, the transport reports no change."""
        if self.writing.unsent <= CONGESTED_AT // 4:
            self.resume_writing()

    def charge_memory(self) -> None:
        unsent, unfinished = self.writing.gathered + self._transport.get_write_buffer_size(), self.protocol.unfinished
        if not (unsent or unfinished or self.charges.passing):
            return
        self.charges.set("unsent", unsent)
        # A client blocked by an alarm cannot finish its body: if counted, the body could keep the alarm in effect.
        self.charges.set("unfinished", 0 if self.reading.waits & Wait.ALARM else unfinished)

    # --- flow control ---

    def wait_for_disk(self, behind: bool) -> None:
        """Stop or resume reading from this client, while the disk is behind."""
        if behind:
            self.reading.pause(Wait.DISK)
        else:
            self.reading.resume(Wait.DISK)

    def wait_for_home(self, behind: bool) -> None:
        """Stop or resume reading from this client, depending on the lag of another home with the client's messages."""
        if behind:
            self.reading.pause(Wait.HOME)
        else:
            self.reading.resume(Wait.HOME)

    def block(self, reason: str) -> None:
        """Stop reading from this publishing client during an alarm, until :meth:`unblock`."""
        if self.handshake.wants_blocked_notice:
            self.send(0, m.ConnectionBlocked(reason))
        self.reading.pause(Wait.ALARM)

    def unblock(self) -> None:
        """Resume reading at the end of the alarm."""
        if self.handshake.wants_blocked_notice:
            self.send(0, m.ConnectionUnblocked())
        self.reading.resume(Wait.ALARM)
