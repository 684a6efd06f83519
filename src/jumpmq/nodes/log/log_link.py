"""Shared log over links: :class:`First` at the first home, :class:`LogFollower` at all others.

A follower reports its last applied entry when its link comes up. A follower without definitions gets all definitions; a
follower gets all later entries. After applying them, it may propose changes.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.log.first import First
from jumpmq.nodes.log.follower import LogFollower
from jumpmq.nodes.log.messages import Entry, LogMessage
from jumpmq.nodes.log.shared_log import FIRST, Record
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import LOG
from jumpmq.store.changes import json_text

log = logging.getLogger(__name__)


class OnDisk:
    """Calls back once changes are on disk; simultaneous callbacks are combined.

    Args:
        turns: the broker's turns.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns  # wait for the disk
        self._waiting: list[Callable[[], None]] = []  # functions to call once the disk has caught up
        self._task: asyncio.Task[None] | None = None  # waits for the disk

    def __call__(self, then: Callable[[], None]) -> None:
        self._waiting.append(then)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._call())

    async def _call(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                await self._turns.committed()
                with self._turns.turn():
                    for then in waiting:
                        then()
        finally:
            self._task = None

    async def stop(self) -> None:
        """Make no more calls."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


class _LogPort:
    """Path to another home over a link."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def send_log(self, message: LogMessage) -> None:
        text = message.text if isinstance(message, Entry) else json_text(message)
        self._link.send_part(LOG, text.encode())


def tell(links: Links, home: int, message: LogMessage) -> None:
    """Send a message about the log to another home, if linked."""
    link = links.to(home)
    if link is not None:
        link.send(LOG, json.dumps(message, separators=(",", ":")).encode())


def serve_log(links: Links, first: First) -> None:
    """Connect the first home's log to the logs of its peers."""

    def receive(link: Link, payload: memoryview) -> None:
        for message in json.loads(bytes(payload)):
            if message["do"] == "join":
                port = _LogPort(link)
                why = first.join(link.peer, port, message["applied"], message["has"], message["identity"])
                if why is not None:
                    port.send_log({"do": "unwelcome", "why": why})
            else:
                first.receive(link.peer, message)

    links.handlers[LOG] = receive
    links.on_down.append(lambda link: first.leave(link.peer))


class FollowedLog:
    """The first home's log, as received by a peer.

    links: the links of this process; one leads to the first home.
        turns: the broker's turns.
        turns: those of the broker.
        identity: the broker's identity as recorded here; None if this home was never part of a broker.
        applied: last entry on disk here; None without definitions.
        on_failure: called with the reason when this home cannot be part of the broker any more.

    Attributes:
        identity: of the broker.
    """

    def __init__(
        self,
        links: Links,
        turns: Turns,
        identity: str | None,
        applied: int | None,
        on_failure: Callable[[str], None],
    ) -> None:
        self.identity = identity
        self._links = links  # one leads to the first home
        self._turns = turns  # those of the broker
        self._applied = applied  # last entry on disk, until :meth:`follow`
        self._on_failure = on_failure  # ends the process
        self._records: list[Record] = []  # definitions received so far
        self._early: list[LogMessage] = []  # entries received before :meth:`follow`
        self._follower: LogFollower | None = None  # applies entries
        self._applied_here: Callable[[], int] = lambda: 0  # returns the last applied entry
        self._target: int | None = None  # the first home's last entry when the link came up; None if unknown
        self._welcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()  # result of the first welcome
        self._patience: asyncio.TimerHandle | None = None  # ends the clients' wait for the first home
        links.handlers[LOG] = self._receive
        links.on_up.append(self._up)
        links.on_down.append(self._down)

    async def definitions(self) -> list[Record] | None:
        """Wait for the first home. Return the definitions that it sends, or None if this home already has definitions.

        Raises:
            BrokerError: the first home belongs to another broker.
        """
        await self._welcome
        return self._records if self._applied is None else None

    async def follow(self, follower: LogFollower, applied: Callable[[], int]) -> None:
        """Apply entries received meanwhile and later; return once this home has all entries known to the first home at
        the start.

        Args:
            applied: returns the last entry applied here.
        """
        caught_up = asyncio.Event()
        target = self._welcome.result()

        def look() -> None:
            self._look()
            if applied() >= target:
                caught_up.set()

        self._follower, self._applied_here = follower, applied
        follower.listen(on_applied=look)
        early, self._early = self._early, []
        with follower.together():
            for message in early:
                follower.receive(message)
        look()
        await caught_up.wait()

    def stop(self) -> None:
        """Stop waiting for the first home."""
        if self._patience is not None:
            self._patience.cancel()

    def _port(self) -> _LogPort | None:
        link = self._links.to(FIRST)
        return None if link is None else _LogPort(link)

    def _up(self, link: Link) -> None:
        if link.peer == FIRST:
            applied = self._applied if self._follower is None else self._applied_here()
            has = self._applied or 0
            message: dict[str, Any] = {"do": "join", "applied": applied, "has": has, "identity": self.identity}
            _LogPort(link).send_log(message)

    def _down(self, link: Link) -> None:
        if link.peer == FIRST:
            self._target = None
            if self._follower is not None:
                self._follower.leave()
                if self._patience is None:
                    patience = self._links.timing.log_patience
                    self._patience = asyncio.get_running_loop().call_later(patience, self._stall)
            else:
                self._records.clear()
                self._early.clear()

    def _receive(self, link: Link, payload: memoryview) -> None:
        messages = json.loads(bytes(payload))
        with contextlib.nullcontext() if self._follower is None else self._follower.together():
            for message in messages:
                self._hear(message)

    def _hear(self, message: LogMessage) -> None:
        match message["do"]:
            case "unwelcome":
                self._fail(message["why"])
            case "records":
                self._records += [(kind, key, value) for kind, key, value in message["records"]]
            case "welcome":
                self.identity = message["identity"]
                self._target = message["number"]
                if not self._welcome.done():
                    self._welcome.set_result(message["number"])
            case _ if self._follower is None:
                self._early.append(message)
                return
            case _:
                self._follower.receive(message)
        self._look()

    def _look(self) -> None:
        """Repeat unanswered requests once this home has all entries known to the first home when the link came up."""
        if self._target is not None and self._follower is not None and self._applied_here() >= self._target:
            port = self._port()
            if port is not None:
                self._target = None
                if self._patience is not None:
                    self._patience.cancel()
                    self._patience = None
                self._follower.join(port)

    def _stall(self) -> None:
        assert self._follower is not None
        patience = self._links.timing.log_patience
        log.error("definitions cannot be changed: home %d has been away for %g s", FIRST, patience)
        with self._turns.turn():
            self._follower.stall()

    def _fail(self, why: str) -> None:
        if self._welcome.done():
            self._on_failure(why)
        else:
            self._welcome.set_exception(BrokerError(why))
