"""`jumpmq migrate --follow`: a bridge that moves definitions and messages until stopped.

How it works. The bridge works in passes. A pass asks each queue for its message count, moves the messages, and copies
new messages of streams. A limit per queue and pass prevents a long queue from delaying the others. A pause follows a
pass without messages. Every few seconds the bridge fetches the definitions, and imports changed definitions.

Failed steps are retried. While the JumpMQ does not answer, the bridge holds the messages taken from queues. If the
RabbitMQ is lost, it delivers these messages again, and the bridge asks the JumpMQ for the progress of each queue.

A queue that cannot be moved does not delay other queues: its target queue is full, for example, or rights are missing.
The bridge retries the queue after a delay. If the target queue refused messages, a separate connection holds these:
a quorum queue drops messages that are requeued too often.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jumpmq.amqp import methods as m
from jumpmq.cli.migration.definitions import CopiedDefinitions, copy_definitions
from jumpmq.cli.migration.draining import Drain, Full, StreamCopy, Target
from jumpmq.cli.migration.rings import Rings, RingsUnknown
from jumpmq.cli.migration.source import LOCK_PATIENCE, Source, expires, lock, suit
from jumpmq.client import AMQPConnection, ConnectionLost, RequestRefused
from jumpmq.management import ManagementClient, ManagementError, NoAnswer, Refusal
from jumpmq.serving.logs import escaped

IDLE = 4
"""Length of the pause after an empty pass, as a multiple of the pass: many queues are polled less often."""

A_PASS = 20_000
"""Maximum number of messages of a queue moved in a pass, except for the rest of the last chunk."""

QUIET = 0.002
"""Seconds to wait for a stream's next messages; the prefetch sends messages in advance."""

SHOWN = 10.0
"""Seconds between two lines of progress without a terminal, and length of the interval for the rate."""


class _Ending(Exception):
    """The bridge ends during a wait."""


@dataclass(frozen=True)
class BridgePace:
    """Intervals of a bridge, in seconds.

    Attributes:
        pause: minimum pause after a pass without messages.
        definitions: time between two comparisons of the definitions.
        patience: wait for messages counted by a queue: another consumer may have taken the messages.
        backoff: delay before a retry: initial, and maximum.
        lock: wait for the lock held by another bridge.
    """

    pause: float = 0.2
    definitions: float = 5.0
    patience: float = 1.0
    backoff: tuple[float, float] = (0.5, 30.0)
    lock: float = LOCK_PATIENCE


PACE = BridgePace()


@dataclass
class _Backoff:
    """Retry times after a failure; ``bounds`` as in :class:`BridgePace`."""

    bounds: tuple[float, float]
    seconds: float = 0.0
    until: float = 0.0

    def fail(self) -> None:
        self.seconds = min(max(self.bounds[0], 2 * self.seconds), self.bounds[1])
        self.until = time.monotonic() + self.seconds

    def succeed(self) -> None:
        self.seconds = self.until = 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


@dataclass
class _Lane:
    """A queue of the RabbitMQ, with the state of its move.

    Attributes:
        drain: move of the queue; None for a stream.
        rest: last known number of messages in the queue.
        listed: number of messages in the management API; None for a queue that does not expire. A queue that expires
            is asked only if this number is not 0: the question counts as a use of the queue.
        moved: number of moved messages.
        empty: last time at which the queue was empty, or the time of its discovery, of the monotonic clock.
        held: connection that holds messages refused by the target queue.
        stream: copy of a stream.
        connection: connection of the copy of a stream.
    """

    vhost: str
    name: str
    target: Target
    drain: Drain | None
    backoff: _Backoff
    rest: int = 0
    listed: int | None = None
    moved: int = 0
    empty: float = field(default_factory=time.monotonic)
    held: AMQPConnection | None = None
    stream: StreamCopy | None = None
    connection: AMQPConnection | None = None

    def close(self) -> None:
        """Close the lane's own connections; held messages return to the queue."""
        for connection in (self.held, self.connection):
            if connection is not None:
                connection.close()
        self.held = self.connection = self.stream = None


class Bridge:
    """Moves existing and new messages until stopped.

    Args:
        new: the JumpMQ.
        rings: asks for the RabbitMQ's rings.
        say: called with a line for each difference in the definitions, and for each failure.
        pace: the bridge's intervals.

    Attributes:
        moved: number of moved messages.
        on_pass: called after each pass, after each moved chunk, and after a failed request to the JumpMQ.
    """

    def __init__(
        self,
        source: Source,
        new: ManagementClient,
        rings: Callable[[], Rings],
        say: Callable[[str], None],
        pace: BridgePace = PACE,
    ) -> None:
        self._pace = pace
        self.moved = 0
        self._source = source
        self._new = new
        self._rings = rings
        self._say = say
        self._ending = threading.Event()
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._connections: dict[str, AMQPConnection] = {}  # by virtual host
        self._locks: dict[str, AMQPConnection] = {}  # connections that lock out a second move, by virtual host
        self._copied = CopiedDefinitions()  # result of the last import of definitions
        self._seen: Any = None  # the last imported definitions
        self._next_look = 0.0
        self._origin = ""
        self._lost = _Backoff(pace.backoff)  # retries after the loss of the RabbitMQ
        self._troubles: dict[str, str] = {}  # last reported failure by subject
        self._counts: deque[tuple[float, int]] = deque()  # times, and the numbers of messages moved by then
        self.on_pass: Callable[[], None] = lambda: None

    def end(self) -> None:
        """End after the current chunk."""
        self._ending.set()

    def begin(self) -> None:
        """Copy the definitions, and lock out a second move. Waits for brokers that do not answer.

        Raises:
            MigrationError, ManagementError, ConnectionLost, RequestRefused: the definitions cannot be copied, or the
                lock is not available.
        """
        while not self._ending.is_set():
            try:
                self._origin = str(self._source.management.get("overview")["cluster_name"])
                self._look_at_definitions()
                for vhost in {lane.vhost for lane in self._lanes.values()}:
                    self._lock(vhost)
            except (NoAnswer, ConnectionLost) as error:
                self._trouble("begin", str(error))
                self._lost.fail()
                self._ending.wait(self._lost.seconds)
            else:
                self._well("begin")
                return

    def run(self) -> None:
        """Move until the bridge is ended."""
        while not self._ending.is_set():
            moved, began = 0, time.monotonic()
            try:
                if time.monotonic() >= self._next_look:
                    self._look_again()
                moved = self._pass()
                self._well("source")
                self._lost.succeed()
            except _Ending:
                break
            except (ConnectionLost, RequestRefused) as error:
                self._source_lost(error)
            self.on_pass()
            if not moved:
                now = time.monotonic()
                self._ending.wait(max(self._pace.pause, IDLE * (now - began), self._lost.until - now))

    def close(self) -> None:
        """Close all connections; messages taken and not moved return to their queues."""
        for lane in self._lanes.values():
            lane.close()
        for connection in [*self._connections.values(), *self._locks.values()]:
            connection.close()
        self._connections.clear()
        self._locks.clear()

    @property
    def queues(self) -> int:
        """Number of queues with moved messages."""
        return sum(lane.moved > 0 for lane in self._lanes.values())

    @property
    def rest(self) -> int:
        """Last known number of messages in all queues."""
        return sum(lane.rest for lane in self._lanes.values())

    def progress(self) -> str:
        """Return a line on the progress: moved messages, rate, remaining messages and lag."""
        now = time.monotonic()
        self._counts.append((now, self.moved))
        while len(self._counts) > 1 and self._counts[1][0] <= now - SHOWN:
            self._counts.popleft()  # keeps one entry older than the interval, as its start
        began, before = self._counts[0]
        rate = (self.moved - before) / (now - began) if now > began else 0.0
        behind = [lane for lane in self._lanes.values() if lane.rest]
        lag = max((now - lane.empty for lane in behind), default=0.0)
        waiting = f"; waiting: {escaped(next(iter(self._troubles.values())))}" if self._troubles else ""
        return (
            f"{self.moved:,} messages moved, {rate:,.0f}/s; rest {self.rest:,} in {len(behind):,} queues, "
            f"lag {lag:.1f} s{waiting}"
        )

    # --- definitions ---

    def _look_again(self) -> None:
        try:
            self._look_at_definitions()
        except (ManagementError, RingsUnknown) as error:
            self._trouble("definitions", f"definitions: {error}")
            self._next_look = time.monotonic() + self._pace.definitions
        else:
            self._well("definitions")

    def _look_at_definitions(self) -> None:
        """Import the definitions if they have changed, and find new queues."""
        source, vhost = self._source, self._source.vhost
        found = source.management.get("definitions", *(() if vhost is None else (vhost,)))
        if found != self._seen:
            self._seen = dict(found, bindings=list(found.get("bindings", ())))
            try:
                copied = copy_definitions(found, self._new, vhost, self._rings(), checks_rings=True)
            except BaseException:
                self._seen = None
                raise
            before = self._copied.lines()
            for line in copied.lines():
                if line not in before:
                    self._say(line)
            self._copied = copied
        self._find_queues(source.queues())
        self._next_look = time.monotonic() + self._pace.definitions

    def _find_queues(self, queues: list[dict[str, Any]]) -> None:
        there = set()
        for one in queues:
            key = vhost, name = one["vhost"], one["name"]
            there.add(key)
            lane = self._lanes.get(key)
            if lane is None:
                target = Target(
                    self._new, vhost, self._copied.names.get(key, name), self._origin, self._insist, source=name
                )
                drain = None
                if one.get("type") != "stream":
                    progress = self._counter(key)
                    drain = Drain(name, target, progress, patience=self._pace.patience, is_ending=self._ending.is_set)
                lane = self._lanes[key] = _Lane(
                    vhost, name, target, drain, _Backoff(self._pace.backoff), one.get("messages", 0)
                )
            if lane.drain is not None:
                suit(lane.drain, one)
                lane.listed = one.get("messages", 0) if expires(one) else None
        for key in [key for key in self._lanes if key not in there]:
            self._lanes.pop(key).close()
            self._well(_subject(*key))

    def _counter(self, key: tuple[str, str]) -> Callable[[int], None]:
        def count(messages: int) -> None:
            self.moved += messages
            self._well("target")
            if (lane := self._lanes.get(key)) is not None:
                lane.moved += messages
                lane.rest = max(0, lane.rest - messages)
            self.on_pass()

        return count

    # --- messages ---

    def _pass(self) -> int:
        moved = 0
        drained: dict[str, list[_Lane]] = {}
        for lane in list(self._lanes.values()):
            if not lane.backoff.is_over:
                continue
            if lane.drain is None:
                moved += self._tried(lane, self._copy)
            elif lane.held is not None:
                moved += self._tried(lane, self._retry)
            elif lane.listed != 0:  # a passive declaration counts as a use: the queue would never expire
                drained.setdefault(lane.vhost, []).append(lane)
        for vhost, lanes in drained.items():
            moved += self._drain(vhost, lanes)
        return moved

    def _drain(self, vhost: str, lanes: list[_Lane]) -> int:
        moved = 0
        self._lock(vhost)
        asked = [m.QueueDeclare(queue=lane.name, passive=True) for lane in lanes]
        for lane, answer in zip(lanes, self._connection(vhost).declare_all(asked), strict=True):
            if isinstance(answer, RequestRefused):
                self._failed(lane, answer)
                continue
            lane.rest = answer.message_count
            if not lane.rest:
                lane.empty = time.monotonic()
        for lane in lanes:
            if lane.rest and lane.backoff.is_over and not self._ending.is_set():
                moved += self._tried(lane, self._move)
        return moved

    def _tried(self, lane: _Lane, move: Callable[[_Lane], int]) -> int:
        """Return the number of moved messages. Failures of a single queue are reported, and retried later.

        Raises:
            ConnectionLost: the RabbitMQ is lost.
            RequestRefused: the RabbitMQ closed the connection.
        """
        try:
            moved = move(lane)
        except RequestRefused as refused:
            if not refused.is_open:
                raise
            self._drop(lane)
            self._failed(lane, refused)
            return 0
        except (Full, ManagementError) as error:
            if lane.drain is not None and lane.drain.is_holding and lane.held is None:
                lane.held = self._connections.pop(lane.vhost)
            elif lane.held is None:
                self._drop(lane)
            self._failed(lane, error)
            return 0
        if moved or not lane.rest:
            lane.backoff.succeed()
        else:
            lane.backoff.fail()  # other consumers hold the messages
        self._well(_subject(lane.vhost, lane.name))
        return moved

    def _move(self, lane: _Lane) -> int:
        assert lane.drain is not None
        moved = lane.drain.run(self._connection(lane.vhost), A_PASS)
        if not lane.rest:
            lane.empty = time.monotonic()
        return moved

    def _retry(self, lane: _Lane) -> int:
        assert lane.drain is not None and lane.held is not None
        moved = lane.drain.run(lane.held, 1)
        lane.held.close()
        lane.held = None
        lane.drain.forget()
        return moved

    def _copy(self, lane: _Lane) -> int:
        if lane.stream is None:
            lane.connection = self._source.connect(lane.vhost)
            progress = self._counter((lane.vhost, lane.name))
            lane.stream = StreamCopy(lane.connection, lane.name, lane.target, progress)
        moved = lane.stream.run(QUIET, A_PASS)
        lane.rest = 0
        lane.empty = time.monotonic()
        return moved

    def _drop(self, lane: _Lane) -> None:
        """Close the connections used to move a queue; unacknowledged messages return to the queue."""
        if lane.drain is not None:
            lane.drain.forget()
            connection = self._connections.pop(lane.vhost, None)
            if connection is not None:
                connection.close()
        lane.close()

    def _connection(self, vhost: str) -> AMQPConnection:
        if vhost not in self._connections:
            self._connections[vhost] = self._source.connect(vhost)
        return self._connections[vhost]

    def _lock(self, vhost: str) -> None:
        if vhost not in self._locks:
            self._locks[vhost] = lock(self._source, vhost, self._pace.lock)

    # --- failures ---

    def _insist(self, error: ManagementError) -> None:
        """Wait until a request to the JumpMQ may be sent again.

        Raises:
            Full: the JumpMQ refuses the request, and would refuse a repetition.
            _Ending: the bridge ends during the wait.
        """
        if isinstance(error, Refusal) and error.code < 500 and error.code not in (408, 429):
            self._seen = None  # the target queue may be gone: the next import declares the queue again
            raise Full(str(error)) from None
        self._trouble("target", str(error))
        self.on_pass()
        if self._ending.wait(1.0 if isinstance(error, NoAnswer) else self._pace.backoff[0]):
            raise _Ending from None

    def _failed(self, lane: _Lane, error: Exception) -> None:
        lane.backoff.fail()
        self._trouble(_subject(lane.vhost, lane.name), f"{_subject(lane.vhost, lane.name)}: {error}")

    def _source_lost(self, error: Exception) -> None:
        self._trouble("source", str(error))
        self._lost.fail()
        for lane in self._lanes.values():
            if lane.drain is not None:
                lane.drain.source_lost()
        self.close()

    def _trouble(self, subject: str, text: str) -> None:
        if self._troubles.get(subject) != text:
            self._troubles[subject] = text
            self._say(f"{text}; the bridge tries again")

    def _well(self, subject: str) -> None:
        self._troubles.pop(subject, None)


def _subject(vhost: str, name: str) -> str:
    return f"queue '{name}' in vhost '{vhost}'"


def follow(bridge: Bridge, console: Console) -> None:
    """Run a bridge until SIGTERM or Ctrl-C, and show its progress.

    Raises:
        MigrationError, ManagementError, ConnectionLost, RequestRefused: as :meth:`Bridge.begin`.
    """
    with _ended_by_signals(bridge), _shown(bridge, console):
        try:
            bridge.begin()
            bridge.run()
        finally:
            with suppress(ConnectionLost, RequestRefused):
                bridge.close()


@contextmanager
def _ended_by_signals(bridge: Bridge) -> Iterator[None]:
    """End the bridge cleanly on the first SIGTERM or SIGINT, and at once on the second."""

    def end(number: int, frame: object) -> None:
        bridge.end()
        for one in before:
            signal.signal(one, signal.default_int_handler)

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        for one in before:
            signal.signal(one, end)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _shown(bridge: Bridge, console: Console) -> Iterator[None]:
    """Show the progress: a changing line on a terminal, or a new line every few seconds."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4, get_renderable=lambda: Text(bridge.progress())) as live:
            bridge.on_pass = lambda: None
            yield
            live.update(Text(bridge.progress()))
        return
    next_line = 0.0

    def show() -> None:
        nonlocal next_line
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + SHOWN
            console.print(Text(bridge.progress()), soft_wrap=True)

    bridge.on_pass = show
    yield
