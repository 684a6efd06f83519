"""Receiver of messages forwarded by the outboxes of other homes (:mod:`~jumpmq.nodes.messages.outbox`), exactly once.

The commit of received messages also records, per queue and sending home, the number of the last message. A message that
arrives again, because the answer to it was lost, is skipped, and answered once that commit is on disk.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.confirms import Confirms
from jumpmq.broker.commit.receipts import Part
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.routing.routing import push_to
from jumpmq.nodes.messages.units import Ahead, NotKnownYet, decoded, destination
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import FORWARD, SLICE_HEAD, SLICE_TAKEN, TAKEN
from jumpmq.queues import Queue
from jumpmq.queues.base import STORE
from jumpmq.store import Store, kinds
from jumpmq.store.definitions import AHEAD
from jumpmq.topology import Change, ChangePrincipal, DeleteQueue, EndMove, Topology


class _Last(NamedTuple):
    """Last message received for a queue from a home: source and number."""

    source: str
    number: int


class _Answers:
    """Answers to a home's slices, each sent once the slice is complete. Acts as a publisher for commits; each slice is
    one publish.
    """

    def __init__(self, link: Link, turns: Turns) -> None:
        self._link = link  # for the answers
        self._turns = turns  # notify of completion
        self._confirms = Confirms()  # each slice is one publish
        self._slices: deque[tuple[int, int, int]] = deque()  # delivery tag, attempt and number of unanswered slices
        self._refused = 0  # the last attempt with a refused slice

    def is_refused(self, attempt: int) -> bool:
        """Return True if the attempt's further messages are refused."""
        return attempt <= self._refused

    def refuse(self, attempt: int, number: int) -> None:
        """Refuse a slice and the rest of the attempt."""
        self._refused = attempt
        self._link.send(TAKEN, SLICE_TAKEN.pack(attempt, number, False))

    def add(self, attempt: int, number: int, sources: int) -> None:
        """Register a slice pushed to queues with the given sources."""
        self._confirms.add(1, sources)
        self._slices.append((self._confirms.published, attempt, number))
        self._turns.confirm(self)

    def assign_receipts(self, parts: Mapping[int, Part]) -> bool:
        """See :class:`~jumpmq.broker.commit.turns.Publisher`."""
        self._confirms.assign_receipts(parts)
        return not self._confirms.due or self.send_confirms()

    def send_confirms(self) -> bool:
        """See :class:`~jumpmq.broker.commit.turns.Publisher`."""
        answers = self._confirms.answers()
        if answers:
            assert all(isinstance(answer, m.BasicAck) for answer in answers)
            last = None
            while self._slices and self._slices[0][0] <= answers[-1].delivery_tag:
                _, *last = self._slices.popleft()
            if last is not None:
                self._link.send(TAKEN, SLICE_TAKEN.pack(*last, True))
        return self._confirms.waiting


class OutboxReceiver:
    """Receiver of messages forwarded by other homes to queues here.

    Args:
        store: store of the records of received messages; None if everything is in memory.
        is_ahead: tells whether a home may already route by a ring not yet current at all homes; its slices are refused.
    """

    def __init__(self, links: Links, turns: Turns, store: Store | None, is_ahead: Callable[[int], bool]) -> None:
        self._is_ahead = is_ahead
        self._alarms: Alarms | None = None  # while an alarm is in effect, all slices are refused
        self._turns = turns  # those of the broker
        self._store = store  # records what was taken
        self._topology: Topology  # finds the queues
        self._last: dict[int, dict[int, _Last]] = {}  # by id of the queue, and home
        self._answers: dict[int, _Answers] = {}  # by home
        links.handlers[FORWARD] = self._take
        links.on_up.append(self._up)

    def restore(self, topology: Topology, definitions: Iterable[tuple[str, str, Any]], alarms: Alarms) -> None:
        """Restore the recorded state.

        Args:
            alarms: alarms of this process; all slices are refused during an alarm.
        """
        self._topology, self._alarms = topology, alarms
        topology.listeners.append(self._follow)
        here = {queue.id for host in topology.vhosts.values() for queue in host.queues.values()}
        here |= {queue | AHEAD for queue in here}
        # A queue that is moving away still takes messages that other homes sent to its former id.
        here |= {queue.id for host in topology.vhosts.values() for queue in host.departed.values()}
        for key, value in [(key, value) for kind, key, value in definitions if kind == kinds.TAKEN]:
            home, queue = map(int, key.split())
            if queue in here:
                self._last.setdefault(queue, {})[home] = _Last(*value)
            # No queue here has this id any more: the record would stay for ever.
            elif self._store is not None:
                self._store.delete(kinds.TAKEN, key)

    def _follow(self, change: Change, principal: ChangePrincipal) -> None:
        if isinstance(change, DeleteQueue):
            self._forget(change.id)
        if isinstance(change, DeleteQueue | EndMove):
            self._forget(change.id | AHEAD)

    def _forget(self, queue: int) -> None:
        for home in self._last.pop(queue, ()):
            if self._store is not None:
                self._store.delete(kinds.TAKEN, f"{home} {queue}")

    def _up(self, link: Link) -> None:
        self._answers[link.peer] = _Answers(link, self._turns)

    def _take(self, link: Link, payload: memoryview) -> None:
        attempt, number, applied, source, queues = SLICE_HEAD.unpack_from(payload)
        answers = self._answers[link.peer]
        # A slice behind a refused one would overtake it; the sender sends both again in a later attempt.
        if answers.is_refused(attempt):
            return
        # Messages routed by a new ring must not arrive before the old ring's messages of the same keys.
        is_short = self._alarms is not None and self._alarms.active
        if is_short or self._is_ahead(link.peer):
            answers.refuse(attempt, number)
            return
        last = struct.unpack_from(f"!{queues}Q", payload, SLICE_HEAD.size)
        try:
            with payload[SLICE_HEAD.size + 8 * queues :] as unit:
                flags, shares = self._shares(unit)
        except NotKnownYet:
            answers.refuse(attempt, number)
            return
        if any(queue is None for queue, _ in shares) and self._topology.applied < applied:
            answers.refuse(attempt, number)  # the declaration may still arrive
            return
        sources = STORE
        with self._turns.together():
            for (queue, share), upto in zip(shares, last, strict=True):
                if queue is not None and (new := self._new(link.peer, queue.id, source.hex(), share, upto)):
                    sources |= queue.source
                    push_to(queue, new, flags, fitting=True)
                    if isinstance(queue, Queue) and any(message.redelivered for message in new):
                        queue.note_redelivered()
        answers.add(attempt, number, sources)

    def _shares(self, unit: memoryview) -> tuple[int, list[tuple[Queue | Ahead | None, list[Message]]]]:
        """Return the flags of a unit's messages, and the messages per queue; None for a queue not present here."""
        _, flags, messages, queues, at = decoded(unit)
        shares: list[tuple[Queue | Ahead | None, list[Message]]] = []
        for _ in range(queues):
            queue, chosen, at = destination(self._topology, unit, at)
            share = messages[chosen] if isinstance(chosen, slice) else [messages[place] for place in chosen]
            shares.append((queue, share))
        return flags, shares

    def _new(self, home: int, queue: int, source: str, messages: list[Message], upto: int) -> list[Message]:
        """Return the messages not taken before, and record the messages as taken.

        Args:
            upto: the number of the last; they are consecutive.
        """
        by_home = self._last.setdefault(queue, {})
        before = by_home.get(home)
        if before is not None and before.source == source:
            had = before.number - (upto - len(messages))
            if had >= len(messages):
                return []
            messages = messages[max(0, had) :]
        by_home[home] = taken = _Last(source, upto)
        if self._store is not None:
            self._store.put(kinds.TAKEN, f"{home} {queue}", list(taken))
        return messages
