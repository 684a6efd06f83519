"""Dispatching of events to channels, in order, with slow work split into time slices."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, InternalError, PreconditionFailed
from jumpmq.amqp.events import Ack, Publish
from jumpmq.amqp.protocol import (
    MAX_MESSAGE_SIZE,
    BadHeader,
    Begun,
    ConnectionState,
    Failed,
    Received,
    ServerEvent,
    ServerProtocol,
    TooLargeContent,
)
from jumpmq.broker.channel import settling
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.commit.turns import CommitClient
from jumpmq.broker.connection.handshake import ClientHandshake
from jumpmq.broker.connection.reading import Reading, Wait
from jumpmq.broker.connection.services import Services
from jumpmq.broker.memory.alarms import BlockedPublisher
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.security.rate import PublishRate
from jumpmq.topology import VirtualHost

log = logging.getLogger(__name__)

STEP = 0.005
"""Seconds of work for a connection before other clients are served."""

LEFT = Wait.WORK | Wait.CLIENT | Wait.RATE | Wait.METHOD | Wait.PAUSE
"""Reasons to leave the rest of a read for later."""


class DispatchedClient(CommitClient, BlockedPublisher, Protocol):
    """The connection whose events are dispatched; see :class:`~jumpmq.broker.connection.connection.Connection`."""

    name: str
    vhost: VirtualHost
    protocol: ServerProtocol
    handshake: ClientHandshake
    channels: dict[int, Channel]
    reading: Reading
    rate: PublishRate
    charges: Charges
    congested: bool

    def receive(self, method: m.Method) -> None: ...
    def open_channel(self, number: int) -> None: ...
    def send(self, channel: int, method: m.Method) -> None: ...
    def close_channel(self, channel: Channel, error: AMQPError, method: type[m.Method] | None = None) -> None: ...
    def fail(self, failed: Failed) -> None: ...
    def hang_up(self) -> None: ...
    def note_refusal(self, error: AMQPError) -> None: ...
    def charge_memory(self) -> None: ...
    def is_flooded(self) -> bool: ...


class _GoOn(NamedTuple):
    """Completion of a waiting method, as the next event."""

    channel: Channel
    method: type[m.Method]
    waiting: Waiting


class Dispatcher:
    """Processes the events of a client.

    While events remain for later, the broker does not read from the client: see
    :class:`~jumpmq.broker.connection.reading.Reading`.

    Attributes:
        partial_frame: the incomplete frame at the end of the last read; empty while events remain.
    """

    def __init__(self, connection: DispatchedClient, services: Services) -> None:
        self.partial_frame = b""
        self._connection = connection  # source of the events
        self._services = services  # shared by all connections
        self._pending: Iterator[ServerEvent] | None = None  # remaining events of a read
        self._current: ServerEvent | _GoOn | None = None  # next event: the rest of a run, or a waiting method

    def close(self) -> None:
        """Drop remaining events, and the reference to the connection, when the client is gone."""
        self._pending = None
        del self._connection  # breaks a reference cycle: garbage collections are rare in a serving broker

    def work(self, events: Iterator[ServerEvent]) -> None:
        """Process new or remaining events. Events remain for later if the work is slow, so that other clients are
        served, or if the client does not read its answers."""
        connection, wait = self._connection, Wait.NOTHING
        if self._services.pause.active:
            self._leave_rest(events, Wait.PAUSE)
            return
        with self._services.turns.turn(connection):
            until = 0.0
            try:
                while (event := self._next(events)) is not None:
                    began = time.perf_counter()
                    until = until or began + STEP
                    self._act(event)
                    now = time.perf_counter()
                    if isinstance(event, Publish):
                        self._services.run_sizes.learn(connection.vhost.name, event, now - began)
                    if self._current is not None and isinstance(self._current, _GoOn):
                        wait = Wait.METHOD
                    elif self._services.pause.active:
                        wait = Wait.PAUSE
                    elif connection.congested and connection.is_flooded():
                        wait = Wait.CLIENT
                    elif connection.rate.wait():
                        wait = Wait.RATE
                    elif now > until:
                        wait = Wait.WORK
                    if wait:
                        break
            # A defect ends the connection of this client only.
            except Exception:
                log.exception("connection %s: unexpected error", connection.name)
                self._current = None
                connection.protocol.skip()
                connection.fail(Failed(InternalError("unexpected error; see the broker's log")))
        connection.charge_memory()
        if wait:
            self._leave_rest(events, wait)
            return
        # The receive buffer is shared: the next read of any client overwrites the rest of this read.
        self.partial_frame = connection.protocol.take_kept()
        if connection.reading.waits:
            connection.reading.resume(LEFT)

    def _next(self, events: Iterator[ServerEvent]) -> ServerEvent | _GoOn | None:
        """Return the next event, or a part of a long run of publishes."""
        event, self._current = self._current or next(events, None), None
        if isinstance(event, Publish) and len(event.messages) > 1:
            connection = self._connection
            event, self._current = self._services.run_sizes.cut(connection.vhost.name, event, connection.rate.piece)
        return event

    # --- remaining events ---

    def _leave_rest(self, events: Iterator[ServerEvent], wait: Wait) -> None:
        connection = self._connection
        self._pending = events
        self.partial_frame = b""
        # The rest moves out of the shared buffer, which is used for other clients meanwhile.
        connection.protocol.retain()
        connection.reading.pause(wait)
        # After the new reason: reading must not resume in between.
        connection.reading.resume(LEFT & ~wait)
        if wait is Wait.WORK:
            asyncio.get_running_loop().call_soon(self.go_on)
        elif wait is Wait.PAUSE:
            self._services.pause.hold(self.go_on)
        elif wait is Wait.RATE:
            asyncio.get_running_loop().call_later(connection.rate.wait(), self.go_on)
        elif isinstance(self._current, _GoOn):
            waiting = self._current.waiting
            # In another iteration of the event loop, because the wait may end in the middle of a turn.
            waiting.on_end(lambda: asyncio.get_running_loop().call_soon(self._end_wait, waiting))

    def go_on(self) -> None:
        """Process remaining events, if any."""
        rest, self._pending = self._pending, None
        if rest is not None:
            self.work(rest)

    def _end_wait(self, waiting: Waiting) -> None:
        """Continue with a waiting method, then with remaining events."""
        if isinstance(self._current, _GoOn) and self._current.waiting is waiting:
            self.go_on()

    def end_wait_of_closed(self) -> None:
        """Continue with remaining events if waiting for a closed channel."""
        current = self._current
        if self._pending is not None and isinstance(current, _GoOn) and current.channel.closed:
            asyncio.get_running_loop().call_soon(self._end_wait, current.waiting)

    # --- events ---

    def _act(self, event: ServerEvent | _GoOn) -> None:
        connection = self._connection
        match event:
            case Publish():
                self._publish(event)
                # As in RabbitMQ, a client is blocked at its first publish: consumers are still read, and free memory by
                # their acks.
                if self._services.alarms.active and connection.protocol.state is ConnectionState.RUNNING:
                    self._services.alarms.block(connection)
            case Ack():
                channel = connection.channels[event.channel]
                self._guard(channel, m.BasicAck, settling.basic_ack, channel, event.tags, event.multiple)
            case Received(0, method):
                connection.receive(method)
            case Received(number, m.ChannelOpen()):
                connection.open_channel(number)
            case Received(number, m.ChannelClose()):
                # Before close-ok: after the answer, the client may use the number for another channel.
                connection.channels.pop(number).close()
                connection.send(number, m.ChannelCloseOk())
            case Received(number, method):
                channel = connection.channels[number]
                self._guard(channel, type(method), self._receive_for, channel, type(method), channel.receive, method)
            case _GoOn(channel, method_type, waiting):
                if not channel.closed:
                    self._guard(channel, method_type, self._receive_for, channel, method_type, waiting.go_on)
            case TooLargeContent(number, size):
                error = PreconditionFailed(f"message size {size} is larger than configured max size {MAX_MESSAGE_SIZE}")
                connection.close_channel(connection.channels[number], error, m.BasicPublish)
            case Failed():
                connection.fail(event)
            case Begun():
                connection.handshake.send_start()
            case BadHeader():
                connection.hang_up()

    def _receive_for(
        self, channel: Channel, method: type[m.Method], act: Callable[..., Waiting | None], *arguments: m.Method
    ) -> None:
        """Run a method, or complete a waiting method. If the method waits, later events wait, too."""
        waiting = act(*arguments)
        if waiting is not None:
            self._current = _GoOn(channel, method, waiting)

    def _publish(self, run: Publish) -> None:
        connection = self._connection
        channel = connection.channels.get(run.channel)
        if channel is not None:  # an earlier piece of the run may have closed the channel
            if connection.charges.passing:  # otherwise a completed body would count twice
                connection.charges.set("unfinished", connection.protocol.unfinished)
            self._guard(channel, m.BasicPublish, channel.publish, run)
            connection.rate.count(len(run.messages))

    def _guard(self, channel: Channel, method: type[m.Method], act: Any, *arguments: Any) -> None:
        """Call ``act``; a protocol error closes the channel or the connection."""
        try:
            act(*arguments)
        except AMQPError as error:
            connection = self._connection
            connection.note_refusal(error)
            # AMQP 0-9-1: a hard error closes the connection, a soft error the channel.
            if error.hard:
                connection.fail(Failed(error, channel.number, method.class_id, method.method_id))
            else:
                connection.close_channel(channel, error, method)
