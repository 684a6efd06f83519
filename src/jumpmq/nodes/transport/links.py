"""All links of a process, one per other home. Of two processes, the one with the higher home number connects."""

import asyncio
import json
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from jumpmq.nodes.timing import TIMING, Timing
from jumpmq.nodes.transport.calls import Caller
from jumpmq.nodes.transport.handshake import CALL, LINK, Handshake
from jumpmq.nodes.transport.link import Link, LinkTurns, RecordHandler
from jumpmq.nodes.transport.records import LOG

log = logging.getLogger(__name__)

PAUSES = 0.02, 0.1
"""Initial and maximum pause between two attempts to connect, in seconds."""

LinkListener = Callable[[Link], None]
"""Callback for a link going up or down."""

Factory = Callable[[], asyncio.BaseProtocol]


class Ways(Protocol):
    """The sockets under links.

    Attributes:
        cluster: identity of the cluster, compared in the handshake; empty for the sockets of one machine.
        secret: the secret proved in the handshake; set by :meth:`listen`.
        on_change: callbacks for a change of ``homes`` or their addresses.
    """

    cluster: str
    secret: str
    on_change: list[Callable[[], None]]

    @property
    def homes(self) -> Collection[int]:
        """Numbers of all known homes, including the local home."""

    async def listen(self, factory: Factory) -> None:
        """Start accepting links from peers.

        Raises:
            OSError: the socket cannot be made.
        """

    async def connect(self, home: int, factory: Factory) -> asyncio.BaseProtocol:
        """Connect to another home at the home's current address.

        Raises:
            OSError: the home cannot be reached.
        """

    def certificate(self, transport: asyncio.Transport, connects: bool) -> bytes:
        """Return the certificate of a connection's accepting end, in DER; empty without TLS."""

    def close(self) -> None:
        """Stop accepting links."""


class Links:
    """Links of the local process.

    Args:
        ways: the sockets under the links.
        home: number of the local home.
        boot: identity of the current run of this process.

    Attributes:
        timing: intervals and bounds of this process.
        home: number of the local home.
        handlers: functions for records, by kind (:data:`~jumpmq.nodes.transport.records.TABLE`). Each part of
            ``nodes/`` registers the functions for its own kinds.
        on_up, on_down: callbacks for each link that goes up or down, called in this order.
        epoch: epoch of this process at its home, sent in each hello; 0 for a home without epochs.
    """

    def __init__(self, ways: Ways, home: int, boot: str, turns: LinkTurns, timing: Timing = TIMING) -> None:
        self.timing = timing
        self.handlers: dict[int, RecordHandler] = {}
        self.on_up: list[LinkListener] = []
        self.on_down: list[LinkListener] = []
        self._on_call: Callable[[], asyncio.Protocol] | None = None  # makes the protocol of a call; None refuses calls
        self.epoch = 0
        self._epochs: dict[int, int] = {}  # latest known epoch of each home
        self._ways = ways  # the sockets under them
        self.home = home  # number of the local home
        self._boot = boot  # boot id of this run
        self._turns = turns  # in which links act
        self._links: dict[int, Link] = {}  # established links, by home
        self._connecting: dict[int, asyncio.Task[None]] = {}  # tasks that keep the links to lower numbers connected
        self._is_stopped = False

    @property
    def homes(self) -> list[int]:
        """Numbers of the homes with established links."""
        return sorted(self._links)

    @property
    def waiting(self) -> list[tuple[int, int, int]]:
        """Linked homes, with the octets waiting to be sent and the octets sent, per home."""
        links = self._links
        return [(home, links[home].unsent_octets, links[home].sent_octets) for home in self.homes]

    def accept_calls(self, on_call: Callable[[], asyncio.Protocol] | None) -> None:
        """Accept calls of other homes on connections made from now on.

        Args:
            on_call: makes the protocol of an incoming call; None to refuse calls.
        """
        self._on_call = on_call

    def to(self, home: int) -> Link | None:
        """Return the link to a home; None if the link is down."""
        return self._links.get(home)

    async def start(self) -> None:
        """Listen for links, and connect to all homes with lower numbers until stopped.

        Raises:
            OSError: the socket for listening cannot be made.
        """
        await self._ways.listen(lambda: self._link(connects=False))
        self._ways.on_change.append(self._follow_homes)
        self._follow_homes()

    async def stop(self) -> None:
        """Break all links, and accept no new links."""
        self._is_stopped = True
        if self._follow_homes in self._ways.on_change:
            self._ways.on_change.remove(self._follow_homes)
        for task in self._connecting.values():
            task.cancel()
        self._ways.close()
        for link in list(self._links.values()):
            link.close()
        await asyncio.sleep(0)

    def _follow_homes(self) -> None:
        """Connect to the current homes, and stop connecting to removed homes."""
        homes = self._ways.homes
        for home in homes:
            if home < self.home and home not in self._connecting:
                self._connecting[home] = asyncio.get_running_loop().create_task(self._connect(home))
        for home in self._connecting.keys() - homes:
            self._connecting.pop(home).cancel()
        for home in self._links.keys() - homes:
            self._links[home].close()

    def _link(self, connects: bool) -> Link:
        def handshake(transport: asyncio.Transport) -> Handshake:
            return self._handshake(transport, connects)

        return Link(self._turns, handshake, connects, self.handlers, self._up, self._down, self.timing, self._on_call)

    def _handshake(self, transport: asyncio.Transport, connects: bool, purpose: str = LINK) -> Handshake:
        ways = self._ways
        certificate = ways.certificate(transport, connects)
        return Handshake(connects, self.home, self._boot, ways.cluster, ways.secret, certificate, purpose, self.epoch)

    async def call(self, home: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection for a request to another home, separate from the link; see :meth:`accept_calls`.

        Raises:
            OSError: the link is down, or the connection fails.
        """
        if home not in self._links:
            raise ConnectionRefusedError(f"the link to home {home} is down")

        def handshake(transport: asyncio.Transport) -> Handshake:
            return self._handshake(transport, True, CALL)

        caller = Caller(handshake, home, self.timing.hello_timeout)
        await self._ways.connect(home, lambda: caller)
        return await caller.streams()

    async def _connect(self, home: int) -> None:
        """Keep the link to a home with a lower number connected."""
        pause, logged = PAUSES[0], ""
        while True:
            link = self._link(connects=True)
            link.wanted = home
            try:
                await self._ways.connect(home, lambda link=link: link)  # type: ignore[misc]
            except OSError as error:
                if str(error) != logged:
                    logged = str(error)
                    log.info("no link to home %d yet: %s", home, error)
                pause = min(2 * pause, PAUSES[1])
            else:
                try:
                    await link.ended.wait()
                finally:
                    link.close()
                pause = PAUSES[0] if link.peer else min(2 * pause, PAUSES[1])
            await asyncio.sleep(pause)

    def _up(self, link: Link) -> bool:
        if self._is_stopped:
            return False
        if link.peer not in self._ways.homes or link.peer == self.home:
            log.info("a link of home %d was refused: it is not known here yet", link.peer)
            return False
        if self._is_deposed(link):
            return False
        before = self._links.get(link.peer)
        if before is not None:  # the peer restarted, and the end of the old link is not known yet
            before.close()
            self._down(before)
        self._links[link.peer] = link
        for listener in self.on_up:
            listener(link)
        return True

    def require_epoch(self, home: int, epoch: int) -> None:
        """Restrict links to the last process of a home, and tell an earlier process of its deposition.

        Args:
            epoch: epoch of the home's latest process; 0 for a process of a release without epochs.
        """
        self._epochs[home] = epoch
        if (link := self._links.get(home)) is not None:
            self._is_deposed(link)

    def _is_deposed(self, link: Link) -> bool:
        epoch = self._epochs.get(link.peer, 0)
        if not 0 < link.epoch < epoch:
            return False
        log.warning("home %d has a new process: a link of the former process is closed", link.peer)
        link.dismiss(LOG, json.dumps({"deposed": epoch}).encode())
        return True

    def _down(self, link: Link) -> None:
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            for listener in self.on_down:
                listener(link)
