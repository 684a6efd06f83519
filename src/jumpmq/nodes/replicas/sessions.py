"""Sessions between the replicas of a home, over links.

A session begins when both sides have sent HELLO for the home, with their identities. Either side may start a new
session with a further HELLO, which the other side answers with its own; frames sent before belong to the former
session, and are dropped. A replica can thus end a session while the link goes on carrying other records.

=========  =================  =====================================
session    event              then
=========  =================  =====================================
down       link up            send HELLO
down       HELLO, one sent    up
down       HELLO, none sent   heard; up once HELLO is sent
up         HELLO              down, send HELLO, up
up         drop               down; HELLO is sent after a pause
any        link down          down, nothing sent or heard
=========  =================  =====================================
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import REPLICA
from jumpmq.replication.configuration import Replica, node_of
from jumpmq.replication.frames import VERSION, Frame, Hello, decode, encode

log = logging.getLogger(__name__)


class Party(Protocol):
    """Receiver of a home's sessions."""

    @property
    def me(self) -> Replica:
        """Identity of the local replica."""

    def on_connected(self, peer: Replica) -> None: ...
    def on_disconnected(self, peer: Replica) -> None: ...
    def on_frame(self, peer: Replica, frame: Frame) -> None: ...


@dataclass
class _ReplicaSession:
    """A session of a home on a link.

    Attributes:
        said: True once HELLO was sent.
        heard: identity in the received HELLO; empty before.
        up: True if both sides have sent HELLO, and the party was notified.
        timer: timer for the HELLO after a drop.
    """

    said: bool = False
    heard: Replica = ""
    up: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class ReplicaSessions:
    """Sessions of the local replicas.

    Args:
        links: links between homes.

    Attributes:
        node_at: returns the node of a home; empty if unknown.
    """

    def __init__(self, links: Links) -> None:
        self.node_at: Callable[[int], str] = lambda home: ""
        self._links = links
        self._parties: dict[int, Party] = {}  # by the copied home
        self._sessions: dict[tuple[int, int], _ReplicaSession] = {}  # by the copied home, and the home of the link
        links.handlers[REPLICA] = self._receive
        links.on_up.append(self._up)
        links.on_down.append(self._down)

    # --- parties ---

    def join(self, home: int, party: Party) -> None:
        """Start the sessions of a home, on all links."""
        self._parties[home] = party
        for peer in self._links.homes:
            self._say(home, peer)

    def leave(self, home: int) -> None:
        """End the sessions of a home without a notice to the party. The other sides notice by the silence, or at the
        next HELLO.
        """
        self._parties.pop(home, None)
        for key in [key for key in self._sessions if key[0] == home]:
            self._forget(key)

    def send(self, home: int, peer: Replica, frame: Frame) -> int:
        """Send a frame to a replica with a session; return its size in octets, 0 without a session."""
        if (link := self._link(home, peer)) is None:
            return 0
        octets = encode(home, frame)
        link.send_at_once(REPLICA, octets)
        return len(octets)

    def send_all(self, home: int, peers: Iterable[Replica], frame: Frame) -> None:
        """Send a frame to the replicas with a session."""
        octets = encode(home, frame)
        for peer in peers:
            if (link := self._link(home, peer)) is not None:
                link.send_at_once(REPLICA, octets)

    def _link(self, home: int, peer: Replica) -> Link | None:
        """Return the link of the session with a replica; None without a session."""
        for (copied, at), session in self._sessions.items():
            if copied == home and session.up and session.heard == peer:
                return self._links.to(at)
        return None

    def drop(self, home: int, peer: Replica) -> None:
        """End the session with a replica; a new session begins after a pause."""
        for (copied, at), session in list(self._sessions.items()):
            if copied == home and session.up and session.heard == peer:
                session.said, session.heard = False, ""
                later = asyncio.get_running_loop().call_later
                session.timer = later(self._links.timing.session_pause, self._say, home, at)
                self._end(home, session, peer)

    # --- links ---

    def _up(self, link: Link) -> None:
        for home in list(self._parties):
            self._say(home, link.peer)

    def _down(self, link: Link) -> None:
        for key in [key for key in self._sessions if key[1] == link.peer]:
            session = self._forget(key)
            self._end(key[0], session, session.heard)

    def _forget(self, key: tuple[int, int]) -> _ReplicaSession:
        session = self._sessions.pop(key)
        if session.timer is not None:
            session.timer.cancel()
        return session

    def _receive(self, link: Link, payload: memoryview) -> None:
        home, frame = decode(bytes(payload))
        party, session = self._parties.get(home), self._sessions.get((home, link.peer))
        if not isinstance(frame, Hello):
            if party is not None and session is not None and session.up:
                party.on_frame(session.heard, frame)
            return
        if not frame.lowest <= VERSION <= frame.highest:
            log.warning("home %d: %s speaks other versions of copying", home, frame.replica)
            return
        if node_of(frame.replica) != self.node_at(link.peer):
            log.warning("home %d: the link of home %d names %s, of another node", home, link.peer, frame.replica)
            return
        if session is None:  # kept without a local party, too, so that HELLO is not sent twice
            session = self._sessions[home, link.peer] = _ReplicaSession()
        if session.up:
            session.said = False
            self._end(home, session, session.heard)
        session.heard = frame.replica
        if session.said and party is not None:
            self._begin(home, session)
        elif session.timer is None:
            self._say(home, link.peer)

    def _say(self, home: int, at: int) -> None:
        party, link = self._parties.get(home), self._links.to(at)
        if party is None or link is None:
            return
        session = self._sessions.setdefault((home, at), _ReplicaSession())
        session.timer = None
        if session.said:
            return
        session.said = True
        link.send_at_once(REPLICA, encode(home, Hello(0, VERSION, VERSION, party.me)))
        if session.heard:
            self._begin(home, session)

    def _begin(self, home: int, session: _ReplicaSession) -> None:
        session.up = True
        self._parties[home].on_connected(session.heard)

    def _end(self, home: int, session: _ReplicaSession, peer: Replica) -> None:
        if session.up:
            session.up = False
            if (party := self._parties.get(home)) is not None:
                party.on_disconnected(peer)
