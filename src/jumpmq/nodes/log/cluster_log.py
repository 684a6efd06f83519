"""Log of changes of a cluster, without an ordering home: every home appends to the log and applies all entries.

A *metadata store*, etcd, keeps the log. An entry holds changes that one home proposed together. A home appends an entry
at the end of the log as known to the home. If another home has appended meanwhile, the append fails, and the home tries
again behind the new entries. A change is accepted or refused when it is applied: all homes apply the same entries to
the same state, so that the outcome is the same everywhere. The proposer gets the outcome when all linked homes have
applied the entry; slow homes are no longer awaited after a while.

The commit of a change's effect records the last change applied by the home, as a number. For the last change of an
entry it is the entry's number times 1,024. For an earlier change it is the previous entry's number times 1,024, plus
the change's position in its entry, counted from 1. A restarted home thus continues within an entry.

This module has no sockets, disks or clock: callers provide the store and the messages to other homes.
"""

import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from jumpmq.amqp.errors import AMQPError, PreconditionFailed
from jumpmq.nodes.log.shared_log import Deciding, Everywhere, SharedLog
from jumpmq.topology import Change, DeclareQueue, ForgetNode, HomeDown
from jumpmq.topology.json_form import to_json
from jumpmq.topology.log import ANYWHERE
from jumpmq.topology.proposals import ChangePrincipal, Pending

log = logging.getLogger(__name__)

PLACE_BITS = 10
"""Bits of a change's number for the change's position in its entry."""

MOST_CHANGES = (1 << PLACE_BITS) - 1
"""Maximum number of changes in an entry."""

MOST_OCTETS = 1 << 20
"""Maximum octets of an entry's changes, and so of one change: etcd accepts requests of up to 1.5 MiB."""

STALLED = "the metadata store operation timed out: etcd is down, inaccessible, or has no quorum"
"""Reply text for a change while etcd accepts no changes: RabbitMQ 4's text for its metadata store."""

NO_SPACE = "the metadata store operation timed out: etcd has no space left"
SET_BACK = "the metadata store operation timed out: etcd was set back to an older state, or has lost its data"
"""Reply text for a change after etcd was set back or lost its data."""


def forgotten(node: str) -> str:
    """Return the reason for stopping, or not starting, a node forgotten by its cluster."""
    return f"{node} was forgotten by its cluster; its data is kept: to join again it needs an empty directory"


EntryFields = dict[str, Any]
"""Entry of the log, in JSON form. ``id`` is unique, ``home`` has proposed its ``changes``."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Change proposed by the local process.

    Attributes:
        pending: gets the outcome.
        text: the change and the principal, as JSON.
        home: home of the queue declared by the change; None for other changes.
        down: the home declared dead by the change; None for other changes.
        forgets: the change, if it removes a node; None for other changes.
    """

    pending: Pending
    text: str
    home: int | None
    down: int | None
    forgets: ForgetNode | None

    @property
    def is_conditional(self) -> bool:
        """True if a condition has to hold when the change is appended."""
        return self.down is not None or self.forgets is not None


class ClusterLog(SharedLog):
    """Sequencer of a cluster: etcd, with entries appended and received by every home.

    Args:
        topology: applies entries.
        home: the number of this home.
        boot: identity of this run of the process.
        joined: the other homes for new queues.
        digest: returns the digest of all current definitions.
        copies_of: returns the number of copies of a home.
        on_forgotten: called with the reason when the cluster has removed this node; nothing is applied after that.
        awaited: returns the homes that must apply an entry before its proposer is notified; None for those of
            ``joined``.

    Attributes:
        entry: number of the last received entry, which may not be applied yet.
        everywhere: notifies proposers when all awaited homes have applied an entry.
    """

    has_copies = True

    def __init__(
        self,
        topology: Deciding,
        home: int,
        boot: str,
        joined: Callable[[], Collection[int]],
        digest: Callable[[], int] = lambda: 0,
        copies_of: Callable[[int], int] = lambda home: 1,
        on_forgotten: Callable[[str], None] = log.critical,
        awaited: Callable[[], Collection[int]] | None = None,
    ) -> None:
        super().__init__(topology, digest)
        self.entry = topology.applied >> PLACE_BITS
        self.everywhere = Everywhere(lambda: self.entry, awaited or joined)
        self._on_ask: Callable[[], None] = lambda: None  # called when there are changes to append
        self._on_applied: Callable[[int, int], None] = lambda entry, home: None  # called after an entry is applied
        self._on_forgotten = on_forgotten
        self._copies_of = copies_of
        self._home = home  # number of the local home
        self._boot = boot  # makes the ids of entries unique across runs
        self._joined = joined  # returns the other homes for new queues
        self._count = 0  # number of entries made in this run
        self._unsent: deque[_Asked] = deque()  # proposals not in an entry yet
        self._sent: tuple[EntryFields, list[_Asked]] | None = None  # the entry being appended, with its proposals
        self._coming: Counter[int] = Counter()  # proposed queues not declared yet, by home
        self._is_forgotten = False  # True after peers have removed this node

    def listen(self, *, on_applied: Callable[[int, int], None], on_ask: Callable[[], None] | None = None) -> None:
        """Set the functions called for entries and proposals.

        Args:
            on_applied: called after an entry is applied, with its number and the proposing home.
            on_ask: called when there are changes to append.
        """
        self._on_applied = on_applied
        self._on_ask = on_ask or self._on_ask

    @property
    def applied(self) -> int:
        """Number of the last entry completely applied here."""
        return self._topology.applied >> PLACE_BITS

    # --- asking ---

    def _order(self, pending: Pending) -> None:
        """Add the change to the next entry."""
        try:
            self._topology.refuse_own_end(pending.change)
        except AMQPError as error:
            pending.refuse(error)
            return
        change = self._with_home(pending.change)
        text = json.dumps([change.to_json(), to_json(pending.principal)], separators=(",", ":"))
        if len(text) > MOST_OCTETS:
            pending.refuse(
                PreconditionFailed(f"a definition of {len(text)} octets: {MOST_OCTETS} at most in a cluster")
            )
            return
        home = change.definition.home if isinstance(change, DeclareQueue) else None
        if home is not None:
            self._coming[home] += 1
        down = change.home if isinstance(change, HomeDown) else None
        forgets = change if isinstance(change, ForgetNode) else None
        self._unsent.append(_Asked(pending, text, home, down, forgets))
        self._on_ask()

    def _with_home(self, change: Change) -> Change:
        """Return a declaration of a queue with a home, if the declaration names none: the home with the fewest queues.
        A queue with several copies gets a home with at least that many copies, or else with the most copies; among
        these, preferably this home.
        """
        if not isinstance(change, DeclareQueue) or change.definition.home != ANYWHERE:
            return change
        homes = {self._home, *self._joined()} - self._topology.left or {self._home}
        definition = change.definition
        if definition.group_size > 1:
            enough = min(definition.group_size, max(map(self._copies_of, homes)))
            homes = {home for home in homes if self._copies_of(home) >= enough}
            is_balanced = self._topology.is_balanced(definition.vhost, definition.name, definition.arguments)
            if self._home in homes and not is_balanced:
                homes = {self._home}
        return self.least_loaded(change, homes, self._coming)

    def to_append(self) -> EntryFields | None:
        """Return the entry to append next: unchanged until received back; None without proposals."""
        if self._sent is None and self._unsent:
            asked = self._next_asked()
            self._count += 1
            changes = [json.loads(one.text) for one in asked]
            self._sent = {"id": f"{self._boot}.{self._count}", "home": self._home, "changes": changes}, asked
        return None if self._sent is None else self._sent[0]

    def _next_asked(self) -> list[_Asked]:
        """Return the changes of a single entry; a conditional change has a separate entry, as a withdrawal is
        possible.
        """
        asked, octets = [self._unsent.popleft()], 0
        while self._unsent and len(asked) < MOST_CHANGES:
            octets += len(asked[-1].text)
            is_alone = asked[0].is_conditional or self._unsent[0].is_conditional
            if is_alone or octets + len(self._unsent[0].text) > MOST_OCTETS:
                break
            asked.append(self._unsent.popleft())
        return asked

    @property
    def home_taken_for_dead(self) -> int | None:
        """The home declared dead by the entry of :meth:`to_append`; None if the entry declares none dead. The entry may
        only be appended while that home is dead.
        """
        return None if self._sent is None else self._sent[1][0].down

    @property
    def forgets(self) -> ForgetNode | None:
        """The removal of a node in the entry of :meth:`to_append`; None for other entries. The entry may only be
        appended while the removal loses no confirmed messages, unless the operator accepts the loss.
        """
        return None if self._sent is None else self._sent[1][0].forgets

    def withdraw(self, reason: str) -> None:
        """Drop the entry of :meth:`to_append`: its condition does not hold."""
        assert self._sent is not None
        (asked,), self._sent = self._sent[1], None
        asked.pending.refuse(PreconditionFailed(reason))

    def _undecided(self) -> Iterator[Pending]:
        return (asked.pending for asked in [*self._unsent, *(self._sent[1] if self._sent is not None else ())])

    # --- applying ---

    def receive(self, number: int, entry: EntryFields) -> None:
        """Receive an entry of the log. Entries received before are ignored.

        Raises:
            ValueError: an earlier entry is missing.
            ValueError, LookupError, TypeError: the entry is malformed and not applied; it may be received again.
        """
        if number <= self.entry or self._is_forgotten:
            return
        if number != self.entry + 1:
            raise ValueError(f"entry {number} of the log came after {self.entry}")
        begun = self._topology.applied if self._topology.applied >> PLACE_BITS == self.entry else 0
        skipped = begun & MOST_CHANGES  # applied before a restart
        changes = [
            Pending(Change.from_json(change), ChangePrincipal(**principal)) for change, principal in entry["changes"]
        ]
        proposer = int(entry["home"])
        self.entry = number  # set after parsing: a malformed entry can be received again
        asked: list[_Asked | None] = [None] * len(changes)
        if self._sent is not None and self._sent[0]["id"] == entry["id"]:
            asked, self._sent = list(self._sent[1]), None
        outcomes: list[Callable[[], None]] = []
        for place, decided in enumerate(changes, 1):
            if place <= skipped:
                continue
            if not self._is_for_this_node(decided.change):
                return
            is_last = place == len(changes)
            decided.number = number << PLACE_BITS if is_last else (number - 1) << PLACE_BITS | place
            self._topology.decide(decided)
            decided.then(self._deciding(decided, asked[place - 1], outcomes))
            if is_last:
                decided.then(self._ending(number, proposer, outcomes))

    def _is_for_this_node(self, change: Change) -> bool:
        try:
            self._topology.refuse_own_end(change)
        except AMQPError:
            assert isinstance(change, ForgetNode)
            self._is_forgotten = True
            self._on_forgotten(forgotten(f"node '{change.node}'"))
            return False
        return True

    def _deciding(
        self, decided: Pending, asked: _Asked | None, outcomes: list[Callable[[], None]]
    ) -> Callable[[], None]:
        def known() -> None:
            if asked is not None:
                if asked.home is not None:
                    self._coming[asked.home] -= 1
                outcomes.append(lambda: _answer(asked.pending, decided))

        return known

    def _ending(self, number: int, home: int, outcomes: list[Callable[[], None]]) -> Callable[[], None]:
        def known() -> None:
            self._note_digest(number)
            self._on_applied(number, home)
            for outcome in outcomes:
                self.everywhere.call(number, outcome)

        return known


def _answer(pending: Pending, decided: Pending) -> None:
    try:
        decided.result()
    except Exception as error:
        pending.refuse(error)
    else:
        pending.accept(decided.effects)
