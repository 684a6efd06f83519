"""A link: one connection between two processes of a broker, on which records go both ways in order.

A record is four octets of length, one of kind, and its payload. The first one each way is a hello, with the secret that
all processes of the broker share; before it nothing else is taken. What is sent leaves at the end of the turn. Nothing
is sent again after a break: what a record asked for is then refused, or asked for again, by who sent it.
"""

import asyncio
import hmac
import json
import logging
import struct
import time
from collections.abc import Callable
from typing import Any, cast

from jumpmq.broker.commit.turns import Turns

log = logging.getLogger(__name__)

HELLO = 0
"""Kind of the first record: the secret, and who sends it, as JSON."""

ALIVE = 1
"""Kind of a record that says nothing else."""

HEADER = struct.Struct("!IB")

LONGEST = 1 << 30
"""Octets of a record at most."""

LONGEST_HELLO = 4096
"""The same before the hello."""

HELLO_TIMEOUT = 5.0
"""Seconds that the other end has for its hello."""

INTERVAL = 1.0
"""Seconds after which something is sent, if only :data:`ALIVE`."""

SILENCE = 5.0
"""Seconds without a sign of life after which a link is broken: its process may be stopped."""

Handler = Callable[["Link", memoryview], None]
"""Acts on a record's payload, which is gone when it returns."""


class Link(asyncio.Protocol):
    """One end.

    Args:
        turns: those of the broker: what a read brings is acted on in one.
        home: the number of this process's home.
        secret: what both ends know.
        handlers: act on records, by kind.
        on_up: called when the other end has said who it is; returns whether it is welcome.
        on_down: called when the link is broken, if it was up.

    Attributes:
        peer: the number of the other end's home; 0 before its hello.
        boot: tells the run of the other process from all others.
        up: whether records can be sent.
        ended: set when the socket is closed.
    """

    def __init__(
        self,
        turns: Turns,
        home: int,
        boot: str,
        secret: str,
        handlers: dict[int, Handler],
        on_up: Callable[["Link"], bool],
        on_down: Callable[["Link"], None],
    ) -> None:
        self.peer = 0
        self.boot = ""
        self.up = False
        self.ended = asyncio.Event()
        self._turns = turns  # what a read brings is acted on in one
        self._hello = {"home": home, "boot": boot, "secret": secret}  # what this end says first
        self._handlers = handlers  # by kind
        self._on_up = on_up  # told of the other end's hello
        self._on_down = on_down  # told of the end
        self._transport: asyncio.Transport  # the socket, as the event loop has it
        self._unread = bytearray()  # the beginning of a record
        self._unsent: list[bytes | memoryview] = []  # what leaves at the end of the turn
        self._heard = self._spoke = time.monotonic()  # when something came, and was sent
        self._timer: asyncio.TimerHandle | None = None  # for the next look at the clock

    # --- sending ---

    def send(self, kind: int, *payload: bytes | memoryview) -> None:
        """Send a record at the end of the turn; it is lost where the link is down."""
        if self.up:
            self._unsent.append(HEADER.pack(sum(map(len, payload)), kind))
            self._unsent += payload
            self._turns.write_soon(self)

    @property
    def unsent_octets(self) -> int:
        """What waits for the other end to read it."""
        return sum(map(len, self._unsent)) + self._transport.get_write_buffer_size()

    def write(self) -> None:
        """Write what there is to send."""
        if self._unsent and not self._transport.is_closing():
            self._transport.writelines(self._unsent)
            self._spoke = time.monotonic()
        self._unsent.clear()

    def defer_until(self, commit: int) -> None:
        """Nothing on a link is deferred."""

    def send_deferred(self, completed: int) -> bool:
        """Nothing on a link is deferred."""
        return True

    def wait_for_disk(self, behind: bool) -> None:
        """A link is always read: what it brings includes what ends the wait."""

    def wait_for_home(self, behind: bool) -> None:
        """The same."""

    def close(self) -> None:
        """Break the link."""
        self._transport.abort()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        hello = json.dumps(self._hello).encode()
        self._transport.write(HEADER.pack(len(hello), HELLO) + hello)
        self._timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        self._unread += data
        with self._turns.turn():
            try:
                self._take_records()
            except Exception:
                log.exception("the link to home %d is broken by what it brought", self.peer)
                self._unread.clear()
                self._transport.abort()

    def _take_records(self) -> None:
        begin, end = 0, len(self._unread)
        with memoryview(self._unread) as unread:
            while end - begin >= HEADER.size and not self._transport.is_closing():
                length, kind = HEADER.unpack_from(unread, begin)
                if length > (LONGEST if self.up else LONGEST_HELLO):
                    raise ValueError(f"a record of {length} octets")
                if end - begin < HEADER.size + length:
                    break
                begin += HEADER.size
                with unread[begin : begin + length] as payload:
                    self._act(kind, payload)
                begin += length
        del self._unread[:begin]

    def _act(self, kind: int, payload: memoryview) -> None:
        if self.up:
            if kind != ALIVE:
                self._handlers[kind](self, payload)
        elif kind != HELLO or not self._is_welcome(json.loads(bytes(payload))):
            self._transport.abort()

    def _is_welcome(self, hello: Any) -> bool:
        if not hmac.compare_digest(str(hello["secret"]).encode(), str(self._hello["secret"]).encode()):
            log.error("a link was refused: it does not know the secret")
            return False
        self.peer, self.boot = int(hello["home"]), str(hello["boot"])
        if self._timer is not None:
            self._timer.cancel()
        self.up = True
        if not self._on_up(self):
            self.up = False
            return False
        self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._look_at_clock)
        return True

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._look_at_clock)
        if now - self._heard > SILENCE:
            log.warning("home %d is silent: its link is broken", self.peer)
            self._transport.abort()
        elif now - self._spoke >= INTERVAL / 2:
            self._transport.write(HEADER.pack(0, ALIVE))
            self._spoke = now

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.ended.set()
        if self.up:
            self.up = False
            with self._turns.turn():
                self._on_down(self)
