"""Link: one connection between two processes of a broker, carrying records both ways in order.

A record is four octets of length, one octet of kind, and the payload. The first record in each direction is the
sender's hello, the second its proof (:mod:`~jumpmq.nodes.transport.handshake`); until then, all other records are
refused. Records leave at the end of the turn. A link does not resend after a break: the sender of a record treats its
request as refused, or repeats the request.
"""

import asyncio
import logging
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, Self, cast

from jumpmq.broker.connection.closed import CLOSED
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.handshake import CALL, Handshake, HandshakeRefused, Peer
from jumpmq.nodes.transport.records import ALIVE, HELLO, KINDS, PROOF
from jumpmq.queues.clock import until_tick
from jumpmq.store.completion import CompleteReceipt

log = logging.getLogger(__name__)

HEADER = struct.Struct("!IB")

UNIX_BUFFER = 2 << 20
"""Buffer size of a Unix socket in octets, if allowed by the machine: enough for the output of one client read and more,
received in one event-loop iteration."""

ROOM = 1 << 18
"""Octets read at once. The buffer grows only for longer records."""

KEPT = 2 << 20
"""Maximum octets of a buffer that is kept after a long record."""

JOINED = 1 << 16
"""Size in octets at which a record of joined JSON values is closed, and the next record begins."""

LONGEST = 1 << 30
"""Maximum octets of a record."""

LONGEST_HELLO = 4096
"""Maximum octets of a record before the proof."""


class Refusals:
    """Logs refusals: a single line a second, with the number of further refusals, to avoid filling a disk."""

    def __init__(self) -> None:
        self._next = 0.0  # time of the next allowed line
        self._others = 0  # refusals since the last line

    def add(self, text: str) -> None:
        """Log a refusal, or count it for the next line."""
        now = time.monotonic()
        if now < self._next:
            self._others += 1
            return
        others = f" ({self._others} others were refused meanwhile)" if self._others else ""
        log.error("%s%s", text, others)
        self._next, self._others = now + 1, 0


refusals = Refusals()
"""Refused connections of all links of this process."""

RecordHandler = Callable[["Link", memoryview], None]
"""Handler of a record's payload, invalid after the return."""


class LinkTurns(Protocol):
    """Turns of a process, as links need them: those of a broker (``broker/commit/turns.py``), or :class:`SentTurns`."""

    def turn(self) -> AbstractContextManager[None]:
        """Return a turn as a context. The records of a turn are written at its end."""

    def write_soon(self, connection: "Link", /) -> None:
        """Call the link's ``write`` at the end of the turn."""


class SentTurns:
    """Turns of links without a store: the end of a turn writes the links' records, and does nothing else."""

    def __init__(self) -> None:
        self._depth = 0  # turns within turns
        self._writing: set[Link] = set()  # links with unwritten records

    def turn(self) -> Self:
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        if not self._depth:
            while self._writing:
                self._writing.pop().write()

    def write_soon(self, connection: "Link") -> None:
        self._writing.add(connection)


class Link(asyncio.BufferedProtocol):
    """An end of a link.

    Args:
        turns: all records of one read are processed in one turn.
        handshake: makes this end's handshake, once the connection is open.
        connects: True at the end that opened the connection.
        handlers: functions for records, by kind.
        on_up: called when the peer has proved its identity; returns True to accept the peer.
        on_down: called when the link is broken, if it was up.
        on_call: makes the protocol that continues the connection of a call; None refuses calls.

    Attributes:
        peer: number of the peer's home; 0 before the peer's proof.
        boot: identity of the current run of the peer's process.
        epoch: epoch of the peer's process at its home; 0 for a home without epochs.
        passed_over: number of received records of each unknown kind; a peer of a later release may send them.
        up: True while records can be sent.
        sent_octets: octets passed to the socket so far.
        wanted: number of the home that has to answer; None accepts every home.
        decided: set once the peer is accepted or refused.
        ended: set when the socket is closed.
    """

    def __init__(
        self,
        turns: LinkTurns,
        handshake: Callable[[asyncio.Transport], Handshake],
        connects: bool,
        handlers: dict[int, RecordHandler],
        on_up: Callable[["Link"], bool],
        on_down: Callable[["Link"], None],
        timing: Timing,
        on_call: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self.peer = 0
        self.boot = ""
        self.epoch = 0
        self.passed_over: Counter[int] = Counter()
        self._kinds = frozenset[int]()  # kinds of records known to the peer
        self.up = False
        self.wanted: int | None = None
        self.decided = asyncio.Event()
        self.ended = asyncio.Event()
        self._turns = turns  # all records of a read are processed in one turn
        self._make_handshake = handshake  # makes the handshake once connected
        self._connects = connects  # True at the end that opened the connection
        self._timing = timing  # of this process
        self._handshake: Handshake
        self._said: Peer | None = None  # the peer's introduction
        self._handlers = handlers  # functions for records, by kind
        self._on_up = on_up  # called after the peer's proof
        self._on_down = on_down  # called after the end of the link
        self._on_call = on_call  # makes the protocol of a call
        self._call: asyncio.Protocol | None = None  # the protocol that continues a call
        self._transport: asyncio.Transport = CLOSED  # of the socket
        # Incoming records; the last record may be incomplete. Before its proof, a peer gets room for a hello only.
        self._buffer = bytearray(HEADER.size + LONGEST_HELLO)
        self._begin = self._end = 0  # range of the unprocessed octets in the buffer
        self._unsent: list[bytes | memoryview] = []  # sent at the end of the turn
        self._parts: list[bytes] = []  # JSON values of the record that is still open
        self._parts_kind = self._parts_octets = 0  # kind and octets of the open record
        self.sent_octets = 0
        self._heard = self._spoke = time.monotonic()  # monotonic times of the last input and output
        self._timer: asyncio.TimerHandle | None = None  # next check of the peer's silence

    def knows(self, kind: int) -> bool:
        """Return True if the peer has announced a kind of record. To be asked for kinds that were added after the
        announcement itself; the peer ignores other kinds, or ends the link.
        """
        return kind in self._kinds

    # --- sending ---

    def send(self, kind: int, *payload: bytes | memoryview) -> None:
        """Send a record at the end of the turn. A record sent while the link is down is lost."""
        if self.up:
            self._end_parts()
            self._unsent.append(HEADER.pack(sum(map(len, payload)), kind))
            self._unsent += payload
            self._turns.write_soon(self)

    def send_at_once(self, kind: int, payload: bytes) -> None:
        """Send a record immediately, ahead of the records queued for the end of the turn."""
        if self.up and not self._transport.is_closing():
            self._write_at_once(kind, payload)
            self.sent_octets += HEADER.size + len(payload)
            self._spoke = time.monotonic()

    def send_part(self, kind: int, text: bytes) -> None:
        """Send a JSON value at the end of the event-loop iteration. Consecutive values of a kind are sent as one
        record, an array, which takes less to read than a record per value."""
        if self.up:
            if self._parts_kind != kind or self._parts_octets >= JOINED:
                self._end_parts()
            self._parts.append(text)
            self._parts_kind, self._parts_octets = kind, self._parts_octets + len(text) + 1
            self._turns.write_soon(self)

    def _end_parts(self) -> None:
        if self._parts:
            payload = b"[%b]" % b",".join(self._parts)
            self._unsent += (HEADER.pack(len(payload), self._parts_kind), payload)
            self._parts, self._parts_octets = [], 0

    @property
    def unsent_octets(self) -> int:
        """Octets not yet read by the peer."""
        return sum(map(len, self._unsent)) + self._parts_octets + self._transport.get_write_buffer_size()

    @property
    def silence(self) -> float:
        """Seconds since the last input from the peer."""
        return time.monotonic() - self._heard

    def write(self) -> None:
        """Write pending output."""
        self._end_parts()
        if self._unsent and not self._transport.is_closing():
            octets = sum(map(len, self._unsent))
            self.sent_octets += octets
            if octets <= JOINED:  # one record of TLS, instead of one for each
                self._transport.write(b"".join(self._unsent))
            else:
                self._transport.writelines(self._unsent)
            self._spoke = time.monotonic()
        self._unsent.clear()

    def defer_until(self, commit: int) -> None:
        """Nothing on a link is deferred."""

    def send_deferred(self, completed: CompleteReceipt) -> bool:
        """Nothing on a link is deferred."""
        return True

    def wait_for_disk(self, behind: bool) -> None:
        """Do nothing: a link is always read, as its input includes the end of the wait."""

    def wait_for_home(self, behind: bool) -> None:
        """Do nothing: a link is always read."""

    def close(self) -> None:
        """Break the link."""
        self._transport.abort()

    def dismiss(self, kind: int, payload: bytes) -> None:
        """Send a last record, and close the connection."""
        self._write_at_once(kind, payload)
        self._transport.close()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        found = transport.get_extra_info("socket")
        if found.family == socket.AF_UNIX:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_BUFFER)
        self._handshake = self._make_handshake(self._transport)
        self._write_at_once(HELLO, self._handshake.hello)
        self._timer = asyncio.get_running_loop().call_later(self._timing.hello_timeout, self._give_up)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = time.monotonic()
        self._end += nbytes
        with self._turns.turn():
            try:
                self._take_records()
            except HandshakeRefused as error:
                refusals.add(f"a link of {self._origin()} was refused: {error}")
                self._break()
            except Exception as error:
                if self.up:
                    log.exception("the link to home %d ends after invalid data", self.peer)
                else:
                    refusals.add(f"a link of {self._origin()} was refused after invalid data: {error!r:.200}")
                self._break()

    def _break(self) -> None:
        self._begin = self._end = 0
        self._transport.abort()

    def _take_records(self) -> None:
        needed = HEADER.size
        with memoryview(self._buffer) as octets:
            while self._end - self._begin >= HEADER.size and not self._transport.is_closing() and self._call is None:
                length, kind = HEADER.unpack_from(octets, self._begin)
                if length > (LONGEST if self.up else LONGEST_HELLO):
                    raise ValueError(f"a record of {length} octets")
                needed = HEADER.size + length
                if self._end - self._begin < needed:
                    break
                with octets[self._begin + HEADER.size : self._begin + needed] as payload:
                    self._act(kind, payload)
                self._begin += needed
                needed = HEADER.size
            if self._call is not None and self._begin < self._end:
                self._call.data_received(bytes(octets[self._begin : self._end]))
                self._begin = self._end
        self._make_room(needed)

    def _make_room(self, needed: int) -> None:
        """Ensure space for a whole record and as much behind, unless very long, to receive several in one event-loop
        iteration.

        Args:
            needed: octets of the current record, with its header.
        """
        begin, end, size = self._begin, self._end, len(self._buffer)
        begun = end - begin
        if needed > size or (size > KEPT and needed <= ROOM) or (self.up and size < ROOM):
            buffer = bytearray(max(needed, min(2 * needed, KEPT), ROOM))
            buffer[:begun] = memoryview(self._buffer)[begin:end]
            self._buffer = buffer
        elif begun and (not begin or begin + max(needed, begun + ROOM // 4) <= size):
            return  # enough room behind the octets of the incomplete record
        else:
            self._buffer[:begun] = self._buffer[begin:end]
        self._begin, self._end = 0, begun

    def _act(self, kind: int, payload: memoryview) -> None:
        if self.up:
            if kind in self._handlers:
                self._handlers[kind](self, payload)
            elif kind != ALIVE:
                self._pass_over(kind)
        elif kind == HELLO and self._said is None:
            self._said = self._handshake.hear(bytes(payload))
            if self.wanted not in (None, self._said.home):
                raise HandshakeRefused(f"home {self.wanted} was expected there")
            if self._connects:
                self._write_at_once(PROOF, self._handshake.proof())
        elif kind == PROOF and self._said is not None:
            self._handshake.require(bytes(payload))
            self._welcome(self._said)
        else:
            raise HandshakeRefused(f"it sends a record of kind {kind} before it has proved who it is")

    def _pass_over(self, kind: int) -> None:
        """Ignore a record of an unknown kind. An end of the link would come again with each new link, and would stop
        everything else between the two homes.

        Raises:
            ValueError: the kind is known, and this process has no handler; the sender repeats its request on a new
                link.
        """
        if kind in KINDS:
            raise ValueError(f"a record of kind {kind} came too early")
        if kind not in self.passed_over:
            log.error(
                "home %d sends records of kind %d, unknown to this release: they are passed over", self.peer, kind
            )
        self.passed_over[kind] += 1

    def _welcome(self, peer: Peer) -> None:
        self.peer, self.boot, self.epoch, self._kinds = peer.home, peer.boot, peer.epoch, peer.kinds
        if self._timer is not None:
            self._timer.cancel()
        if not self._connects:
            self._write_at_once(PROOF, self._handshake.proof())
            if peer.purpose == CALL:
                self._hand_over()
                return
        self.up = True
        self.decided.set()
        if self._on_up(self):
            self._timer = asyncio.get_running_loop().call_later(self._timing.link_interval, self._look_at_clock)
        else:
            self.up = False
            if not self._transport.is_closing():
                self._transport.abort()

    def _hand_over(self) -> None:
        """Pass the connection of a call, with its further input, to the receiver of calls."""
        if self._on_call is None:
            log.info("home %d calls, and this process accepts no calls now", self.peer)
            self._transport.abort()
            return
        self._call = self._on_call()
        transport, self._transport = self._transport, CLOSED
        transport.set_protocol(self._call)
        self._call.connection_made(transport)
        self.decided.set()

    def _write_at_once(self, kind: int, payload: bytes) -> None:
        self._transport.write(HEADER.pack(len(payload), kind) + payload)

    def _origin(self) -> str:
        """Return the address and claimed identity of the peer, for the log."""
        peername = self._transport.get_extra_info("peername")
        where = f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "this machine"
        return where if self._said is None else f"{where} as home {self._said.home}"

    def _give_up(self) -> None:
        refusals.add(f"a link of {self._origin()} was refused: no proof in {self._timing.hello_timeout:g} seconds")
        self._transport.abort()

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(until_tick(self._timing.link_interval, loop.time()), self._look_at_clock)
        if now - self._heard > self._timing.link_silence:
            log.warning("home %d is silent: its link is broken", self.peer)
            self._transport.abort()
        elif now - self._spoke >= self._timing.link_interval / 2:
            self._transport.write(HEADER.pack(0, ALIVE))
            self._spoke = now

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.decided.set()
        self.ended.set()
        if self.up:
            self.up = False
            with self._turns.turn():
                self._on_down(self)
        self._transport = CLOSED
