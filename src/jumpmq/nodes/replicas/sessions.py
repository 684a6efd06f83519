"""Sessions between the replicas of a home, over links.

Both sides count the HELLOs for the home that they have sent and received on the link. A side answers a HELLO with its
own, and either side may start a new session with a further HELLO. The session is up while as many HELLOs were received
as sent; a link keeps their order, so that both sides agree on the session of each frame. Frames of a former session are
dropped. A replica can thus end a session while the link goes on carrying other records.

An answer looks like the start of a session. Without the counts, a HELLO that crosses the first HELLO of a restarted
replica would be taken for the answer, and both sides would answer each other forever.

====================  ========================  ============================================================
session               event                     then
====================  ========================  ============================================================
any                   link up, replica joins    send HELLO, unless one of this replica waits for its answer
sent = received       HELLO                     down if up, send HELLO, up
sent = received + 1   HELLO                     up
sent > received + 1   HELLO                     wait for further HELLOs
up                    drop                      down; HELLO is sent after a pause
dropped               HELLO                     up once HELLO is sent
any                   HELLO of a node that is   counted; up with a further HELLO of both sides, once
                      not the home's node       ``node_at`` returns the node
up                    replica leaves            down; further HELLOs are counted
any                   link down                 down, nothing sent or received
====================  ========================  ============================================================
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import REPLICA
from jumpmq.replication.configuration import ReplicaId, node_of
from jumpmq.replication.frames import VERSION, Frame, Hello, UnknownFrame, decode, encode

log = logging.getLogger(__name__)


class Party(Protocol):
    """Receiver of a home's sessions."""

    @property
    def me(self) -> ReplicaId:
        """Identity of the local replica."""

    def on_connected(self, peer: ReplicaId) -> None: ...
    def on_disconnected(self, peer: ReplicaId) -> None: ...
    def on_frame(self, peer: ReplicaId, frame: Frame) -> None: ...


@dataclass
class _ReplicaSession:
    """A session of a home on a link.

    Attributes:
        sent, received: number of HELLOs on the link.
        me, peer: identity in the last sent and in the last received HELLO; empty before.
        up: True if as many HELLOs were received as sent, and the party was notified.
        timer: timer for the next HELLO, after a drop or a HELLO of another node than the home's.
    """

    sent: int = 0
    received: int = 0
    me: ReplicaId = ""
    peer: ReplicaId = ""
    up: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def stop_timer(self) -> None:
        """Cancel the timer: no HELLO is sent."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ReplicaSessions:
    """Sessions of the local replicas.

    Args:
        links: links between homes.
        node_at: returns the node of a home; empty if unknown. A link may be up earlier than etcd's news of the home.
    """

    def __init__(self, links: Links, node_at: Callable[[int], str] = lambda home: "") -> None:
        self._node_at = node_at
        self._links = links
        self._parties: dict[int, Party] = {}  # by the copied home
        self._sessions: dict[tuple[int, int], _ReplicaSession] = {}  # by the copied home, and the home of the link
        self._unknown: set[str] = set()  # reported unknown kinds of frames
        links.handlers[REPLICA] = self._receive
        links.on_up.append(self._up)
        links.on_down.append(self._down)

    # --- parties ---

    def join(self, home: int, party: Party) -> None:
        """Start the sessions of a home, on all links."""
        self._parties[home] = party
        for at in self._links.homes:
            self._start(home, at)

    def leave(self, home: int) -> None:
        """End the sessions of a home without notifying the party. The peers detect the end by missing frames, or by the
        next HELLO.
        """
        self._parties.pop(home, None)
        for (copied, _), session in self._sessions.items():
            if copied == home:
                session.up = False
                session.stop_timer()

    def send(self, home: int, peer: ReplicaId, frame: Frame) -> int:
        """Send a frame to a replica with a session; return its size in octets, 0 without a session."""
        if (link := self._link(home, peer)) is None:
            return 0
        octets = encode(home, frame)
        link.send_at_once(REPLICA, octets)
        return len(octets)

    def send_all(self, home: int, peers: Iterable[ReplicaId], frame: Frame) -> None:
        """Send a frame to the replicas with a session."""
        octets = encode(home, frame)
        for peer in peers:
            if (link := self._link(home, peer)) is not None:
                link.send_at_once(REPLICA, octets)

    def _link(self, home: int, peer: ReplicaId) -> Link | None:
        """Return the link of the session with a replica; None without a session."""
        for (copied, at), session in self._sessions.items():
            if copied == home and session.up and session.peer == peer:
                return self._links.to(at)
        return None

    def drop(self, home: int, peer: ReplicaId) -> None:
        """End the session with a replica; a new session begins after a pause."""
        for (copied, at), session in list(self._sessions.items()):
            if copied == home and session.up and session.peer == peer:
                later = asyncio.get_running_loop().call_later
                session.timer = later(self._links.timing.session_pause, self._start, home, at)
                self._end(home, session)

    # --- links ---

    def _up(self, link: Link) -> None:
        for home in list(self._parties):
            self._start(home, link.peer)

    def _down(self, link: Link) -> None:
        for key in [key for key in self._sessions if key[1] == link.peer]:
            session = self._sessions.pop(key)
            session.stop_timer()
            self._end(key[0], session)

    def _receive(self, link: Link, payload: memoryview) -> None:
        try:
            home, frame = decode(bytes(payload))
        except UnknownFrame as error:
            if (text := str(error)) not in self._unknown:
                self._unknown.add(text)
                log.error("home %d sends a frame of a later release, which is passed over: %s", link.peer, text)
            return
        party, session = self._parties.get(home), self._sessions.get((home, link.peer))
        if not isinstance(frame, Hello):
            if party is not None and session is not None and session.up:
                party.on_frame(session.peer, frame)
            return
        if not frame.lowest <= VERSION <= frame.highest:
            log.warning("home %d: %s speaks other versions of copying", home, frame.replica)
            return
        if node_of(frame.replica) != self._node_at(link.peer):
            log.warning("home %d: the link of home %d names %s, of another node", home, link.peer, frame.replica)
        if session is None:  # counted without a local party, too
            session = self._sessions[home, link.peer] = _ReplicaSession()
        self._end(home, session)
        session.received, session.peer = session.received + 1, frame.replica
        if session.timer is None:
            self._answer(home, link.peer, session)

    def _start(self, home: int, at: int) -> None:
        """Start a session, unless a HELLO of the local replica waits for its answer."""
        party = self._parties.get(home)
        if party is None or self._links.to(at) is None:
            return
        session = self._sessions.setdefault((home, at), _ReplicaSession())
        session.timer = None
        # A HELLO without an answer starts the session already; a further one would need a further answer.
        if session.sent == session.received or session.me != party.me:
            self._say(home, at, session)
        self._answer(home, at, session)

    def _start_known(self, home: int, at: int, session: _ReplicaSession) -> None:
        """Start a session once the replica's node is known to be the home's node. The peer's session may be up already;
        a new session is needed because frames of that session were dropped here.
        """
        if node_of(session.peer) == self._node_at(at):
            self._start(home, at)
        else:
            session.timer = None
            self._answer(home, at, session)

    def _answer(self, home: int, at: int, session: _ReplicaSession) -> None:
        """Answer each received HELLO. The session is up if no HELLO of this side waits for its answer."""
        if home not in self._parties or not session.received:
            return
        if node_of(session.peer) != self._node_at(at):
            later = asyncio.get_running_loop().call_later
            session.timer = later(self._links.timing.session_pause, self._start_known, home, at, session)
            return
        while session.sent < session.received:
            self._say(home, at, session)
        if session.sent == session.received:
            session.up = True
            self._parties[home].on_connected(session.peer)

    def _say(self, home: int, at: int, session: _ReplicaSession) -> None:
        session.sent, session.me = session.sent + 1, self._parties[home].me
        if (link := self._links.to(at)) is not None:
            link.send_at_once(REPLICA, encode(home, Hello(0, VERSION, VERSION, session.me)))

    def _end(self, home: int, session: _ReplicaSession) -> None:
        if session.up:
            session.up = False
            if (party := self._parties.get(home)) is not None:
                party.on_disconnected(session.peer)
