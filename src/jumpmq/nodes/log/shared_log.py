"""One process's side of the log of definitions shared by several processes.

An *entry* of the log has a number and one or more changes. Every process decides the entries in the order of their
numbers, so that definitions are equal everywhere; the last number applied is recorded in the commit of the effect.

A *sequencer* orders the changes that processes propose, and is a subclass of :class:`SharedLog`:

=================================================  ====================================================================
:class:`~jumpmq.nodes.log.first.First`             the first worker of a node: validates a change, records it, sends it
:class:`~jumpmq.nodes.log.follower.LogFollower`    another worker: asks the first one, and replays its entries
:class:`~jumpmq.nodes.log.cluster_log.ClusterLog`  a node of a cluster: etcd orders, each node validates each change
=================================================  ====================================================================

Common to all of them, and here: a proposal is refused while the log is stalled (:meth:`SharedLog.stall`);
digests of the definitions after recent entries are compared between processes (:attr:`SharedLog.digests`); the proposer
is answered when all peers have applied the entry (:class:`Everywhere`); a queue without a home is placed at the home
with the fewest queues (:meth:`SharedLog.least_loaded`).

No sequencer knows sockets, disks or the clock.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Protocol

from jumpmq.amqp.errors import MetadataTimeout
from jumpmq.topology import Change, DeclareQueue
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.holdings import Holdings
from jumpmq.topology.proposals import Pending

FIRST = 1
"""The home of the first worker, which orders the log of a node's workers."""

DIGESTS = 1000
"""Number of entries with kept digests."""

Record = tuple[str, str, Any]
"""Kind, key and value of a definition's record."""


class Deciding(Protocol):
    """Decides and applies changes in the local process: the topology."""

    applied: int
    holdings: Holdings
    homes: dict[int, str]
    left: set[int]

    def decide(self, pending: Pending) -> None: ...
    def refuse_own_end(self, change: Change) -> None: ...
    def is_balanced(self, vhost: str, name: str, arguments: Arguments) -> bool: ...


class Everywhere:
    """Callbacks waiting until the local process and all peers have an entry, in the order of the entries.

    Args:
        own: the last entry that this process has, as the peers are to have it.

    Attributes:
        peers: returns the homes whose acknowledgement is waited for.
    """

    def __init__(self, own: Callable[[], int], peers: Callable[[], Collection[int]]) -> None:
        self._peers = peers
        self._own = own  # last entry of this process
        self._applied: dict[int, int] = {}  # by home, the last entry acknowledged since its link is up
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # number of an entry and a callback, in order

    def call(self, number: int, then: Callable[[], None]) -> None:
        """Call a function once the entry is everywhere, and not before the functions of earlier calls."""
        self._waiting.append((number, then))
        self.look()

    def joined(self, home: int, number: int) -> None:
        """Note the last entry of a peer whose link has come up."""
        self._applied[home] = number
        self.look()

    def applied(self, home: int, number: int) -> None:
        """Note the acknowledgement of a peer; a late, lower one changes nothing."""
        self._applied[home] = max(number, self._applied.get(home, 0))
        self.look()

    def left(self, home: int) -> None:
        """Forget the acknowledgements of a peer with a broken link: the peer's process may return with
        fewer entries.
        """
        self._applied.pop(home, None)
        self.look()

    @property
    def unanswered(self) -> list[int]:
        """Numbers of the entries awaited by callbacks, in order, without duplicates."""
        return list(dict.fromkeys(number for number, _ in self._waiting))

    @property
    def behind(self) -> list[int]:
        """Peers without the first of :attr:`unanswered`."""
        return [home for home in self._peers() if self._waiting and self._applied.get(home, 0) < self._waiting[0][0]]

    def look(self) -> None:
        """Call the callbacks of entries applied everywhere."""
        if self._waiting:
            self.answer_to(min([self._own(), *(self._applied.get(home, 0) for home in self._peers())]))

    def answer_to(self, number: int) -> None:
        """Call the functions of entries up to ``number``, whether these are everywhere or not."""
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1]()


class SharedLog(ABC):
    """This process's log: a :class:`~jumpmq.topology.log.CommonLog`, with sequencers as subclasses.

    Args:
        topology: decides changes here.
        digest: of all definitions, as they are now.

    Attributes:
        digests: of the definitions after the last :data:`DIGESTS` entries, by number of the entry.
    """

    is_shared = True
    has_copies = False

    def __init__(self, topology: Deciding, digest: Callable[[], int]) -> None:
        self.digests: dict[int, int] = {}
        self._topology = topology  # decides changes
        self._digest = digest  # of all definitions
        self._stall: str | None = None  # reason for refusals while no change can be ordered; None else

    # --- proposing ---

    def propose(self, pending: Pending) -> None:
        """See :meth:`~jumpmq.topology.log.CommonLog.propose`. Refused at once while the log is stalled, if the
        proposer waits for a limited time only."""
        if self._stall is not None and pending.limited:
            pending.refuse(MetadataTimeout(self._stall))
        else:
            self._order(pending)

    @abstractmethod
    def _order(self, pending: Pending) -> None:
        """Give the change a position in the log, now or later, and then report the outcome."""

    def placed(self, change: Change) -> Change:
        """See :meth:`~jumpmq.topology.log.CommonLog.placed`."""
        return change

    def note(self, pending: Pending) -> None:
        """See :meth:`~jumpmq.topology.log.CommonLog.note`; nothing is noted where others record entries."""
        return

    def least_loaded(self, change: DeclareQueue, homes: Iterable[int], coming: Counter[int] | None = None) -> Change:
        """Return the declaration, placed at the home with the fewest queues; among equals, at the lowest number.

        Args:
            homes: candidates; homes whose queues move away are left out while others remain.
            coming: queues by home that are under way in addition.
        """
        candidates, left = sorted(homes), self._topology.left
        queues, coming = self._topology.holdings.queues_by_home, coming or Counter()
        stay = [number for number in candidates if number not in left] or candidates
        home = min(stay, key=lambda number: queues[number] + coming[number])
        return replace(change, definition=replace(change.definition, home=home))

    # --- stalls ---

    def stall(self, reply: str) -> None:
        """Reject undecided proposals with a time limit, and later proposals until :meth:`go_on`.

        The changes are ordered all the same when that is possible again: the sequencer may have them already.

        Args:
            reply: reply text for the proposers.
        """
        self._stall = reply
        for pending in list(self._undecided()):
            if pending.limited:
                pending.refuse(MetadataTimeout(reply))

    def go_on(self) -> None:
        """Changes can be ordered again."""
        self._stall = None

    @abstractmethod
    def _undecided(self) -> Iterable[Pending]:
        """Proposals of the local process with outstanding entries."""

    # --- digests ---

    def _note_digest(self, number: int) -> None:
        """Note the digest of the definitions right after an entry."""
        self.digests[number] = self._digest()
        if len(self.digests) > DIGESTS:
            del self.digests[next(iter(self.digests))]

    def differs(self, number: int, digest: int | None) -> bool:
        """True if a peer's digest after an entry is known to differ from this process's digest."""
        own = self.digests.get(number)
        return own is not None and digest is not None and own != digest
