"""Changes of rings in a broker of several homes, each of which routes by its own copy of the ring; see
:mod:`jumpmq.topology.fences`.

A home that applies a change of a hash exchange's bindings reports the change to all other homes (:data:`MADE`). Each
link keeps the order: messages that the home routed by the old ring arrive before the report. For keys that have to stay
in order, two waits follow:

- The home stops processing input of its clients until all other homes have reported the change.
- Batches from a home that has reported the change may be routed by the new ring. They wait here until all homes have
  reported the change.

Only then is the change recorded. At that time all messages routed by the old ring are in their queues, and no message
routed by the new ring is.

The waits end after :data:`PATIENCE` seconds: messages of a home that has not reported the change may then overtake
others.

Once a second, a home asks the homes of ordering markers for the number of messages before each marker. A home reports 0
once the settlements are on disk. Ahead of a report it sends the highest owner epoch that it has assigned
(:data:`OWNED`), so that the owners of the moved keys get higher epochs.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator
from typing import Protocol

from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.log.log_link import OnDisk
from jumpmq.nodes.messages.enqueue import Enqueue
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import ASK_MARKS, EPOCH, LEFT, MADE, NUMBER, OWNED
from jumpmq.topology import Topology
from jumpmq.topology.fences import MarkName

REASON = "the ring of an exchange changes"
"""Reason shown while clients are paused for a change."""

PATIENCE = 2.0
"""Maximum wait for other homes to report a change, in seconds."""

log = logging.getLogger(__name__)


class PausesClients(Protocol):
    """Pauses the processing of clients' input."""

    def begin(self, reason: str) -> None:
        """Pause clients for the given reason."""

    def end(self, reason: str) -> None:
        """End the pause for the given reason."""


class RingChanges:
    """The other homes' progress with ring changes; see :class:`~jumpmq.topology.fences.Others`."""

    def __init__(self, links: Links, turns: Turns, enqueue: Enqueue, on_disk: OnDisk) -> None:
        self._links = links  # to all peers
        self._turns = turns  # those of the broker
        self._on_disk = on_disk  # calls back once settlements are on disk
        self._topology: Topology  # notes ring changes
        self._pause: PausesClients  # pauses clients
        self._serves = False  # whether the local queues are loaded
        self._made: dict[int, int] = {}  # last change reported by each linked home
        self._waits: dict[int, asyncio.TimerHandle] = {}  # changes not reported by all homes yet, each with its timeout
        enqueue.follow_rings(MADE, self._on_made, self.is_ahead)
        links.handlers[ASK_MARKS] = self._on_ask
        links.handlers[LEFT] = self._on_left
        links.on_up.append(self._up)
        links.on_down.append(self._down)

    def serve(self, topology: Topology, pause: PausesClients) -> None:
        """Start reporting changes, once the queues are restored, beginning with the last applied change."""
        self._topology, self._pause, self._serves = topology, pause, True
        topology.fences.serve(self)
        with self._turns.turn():
            self.changed(topology.applied)

    def is_ahead(self, home: int) -> bool:
        """Return True if a home has reported a ring change that other homes have not reported yet."""
        return bool(self._waits) and self._made.get(home, 0) >= min(self._waits)

    def _all(self) -> Iterator[Link]:
        return filter(None, map(self._links.to, self._links.homes))

    def _up(self, link: Link) -> None:
        if self._serves:
            link.send(MADE, NUMBER.pack(self._topology.applied))

    def _down(self, link: Link) -> None:
        # A home without a link is not waited for: its clients' messages cannot arrive here before its next link.
        self._made.pop(link.peer, None)
        self._look()

    # --- changes ---

    def changed(self, number: int) -> None:
        """See :class:`~jumpmq.topology.fences.Others`."""
        for link in self._all():
            link.send(MADE, NUMBER.pack(number))

    def wait(self, number: int) -> None:
        """See :class:`~jumpmq.topology.fences.Others`."""
        if number not in self._waits:
            self._pause.begin(REASON)
            self._waits[number] = asyncio.get_running_loop().call_later(PATIENCE, self._give_up, number)
            asyncio.get_running_loop().call_soon(self._look_in_turn)  # without other homes, end the wait at once

    def _missing(self, number: int) -> list[int]:
        """Return the homes that have not reported a change."""
        return [home for home, made in self._made.items() if made < number]

    def _on_made(self, link: Link, payload: memoryview) -> None:
        (number,) = NUMBER.unpack(payload)
        self._made[link.peer] = max(number, self._made.get(link.peer, 0))
        self._look()

    def _look_in_turn(self) -> None:
        with self._turns.turn():
            self._look()

    def _look(self) -> None:
        for number in sorted(self._waits):
            if self._missing(number):
                break
            self._end(number)

    def _give_up(self, number: int) -> None:
        log.warning(
            "home %s has not made change %d of definitions in %g s: its publishes until then may be out of order",
            ", ".join(map(str, self._missing(number))), number, PATIENCE,
        )  # fmt: skip
        with self._turns.turn():
            # In ascending order: a queue waits for earlier changes as well.
            for passed in sorted(one for one in self._waits if one <= number):
                self._end(passed)

    def _end(self, number: int) -> None:
        self._waits.pop(number).cancel()
        # First the markers, then the clients: nothing is published by the new ring before the markers are placed.
        self._topology.fences.note(number)
        if not self._waits:
            self._pause.end(REASON)

    # --- marks ---

    def ask(self, home: int, marks: list[MarkName]) -> None:
        """See :class:`~jumpmq.topology.fences.Others`."""
        if (link := self._links.to(home)) is not None:
            with self._turns.turn():
                link.send(ASK_MARKS, json.dumps(marks).encode())

    def ended(self, mark: MarkName) -> None:
        """See :class:`~jumpmq.topology.fences.Others`."""
        for link in self._all():
            self._tell(link, [(mark, 0)])

    def _tell(self, link: Link, left: Iterable[tuple[MarkName, int]]) -> None:
        """Send the number of messages before each marker, after their settlements are on disk. A number sent earlier
        would be too low if a crash restored settled messages.
        """
        told = json.dumps([[*mark, count] for mark, count in left]).encode()

        def tell() -> None:
            # Before the count: the owners named once the queue goes on need higher epochs than those named here.
            link.send(OWNED, EPOCH.pack(0, self._topology.epochs.last))
            link.send(LEFT, told)

        self._on_disk(tell)

    def _on_ask(self, link: Link, payload: memoryview) -> None:
        if not self._serves:
            return
        marks = [MarkName(*one) for one in json.loads(bytes(payload))]
        found = [(mark, self._topology.fences.left_at(mark)) for mark in marks]
        self._tell(link, [(mark, left) for mark, left in found if left is not None])

    def _on_left(self, link: Link, payload: memoryview) -> None:
        if self._serves:
            for *mark, left in json.loads(bytes(payload)):
                self._topology.fences.tell(MarkName(*mark), left)

    def stop(self) -> None:
        """Cancel all waits."""
        for timer in self._waits.values():
            timer.cancel()
        self._waits.clear()
