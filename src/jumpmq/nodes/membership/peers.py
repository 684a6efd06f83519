"""Messages between nodes about the log, over links.

A message is a JSON object. ``applied`` acknowledges an entry, with the digest of the definitions after the entry; the
first one on a new link also has ``joins``. ``number`` and ``entry`` carry an entry. ``differs`` reports different
digests. ``dead`` lists homes for :mod:`~jumpmq.nodes.membership.witness`. ``deposed`` tells a process that a later
process serves its home.
"""

import asyncio
import json
from collections.abc import Callable

from jumpmq.nodes.log.cluster_log import ClusterLog, EntryFields
from jumpmq.nodes.log.log_link import tell
from jumpmq.nodes.membership.answers import Answers
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.entries import EtcdEntries
from jumpmq.nodes.membership.lease import Lease
from jumpmq.nodes.membership.witness import Witness
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links

LATE = 0.3
"""Seconds after which a linked home is also notified through etcd."""


class PeerMessages:
    """Messages of the local node to peers.

    Args:
        etcd: of this node.
        links: the links to other homes.
        log: receives acknowledgements.
        lease: the lease of this process; peers may know of a later epoch.
        entries: applies entries, and keeps recent ones.
        answers: acknowledges through etcd where a link is missing.
        witness: receives the homes declared dead by peers.
        lives_unlinked: returns True if a live home has no link to this home.
    """

    def __init__(
        self,
        etcd: ClusterEtcd,
        links: Links,
        log: ClusterLog,
        lease: Lease,
        entries: EtcdEntries,
        answers: Answers,
        witness: Witness,
        lives_unlinked: Callable[[], bool],
    ) -> None:
        self._etcd = etcd  # of this node
        self._links = links  # to the others
        self._log = log  # receives acknowledgements
        self._lease = lease  # of this process
        self._entries = entries  # applies entries
        self._answers = answers  # through etcd
        self._witness = witness  # of dead homes
        self._lives_unlinked = lives_unlinked  # tells whether a live home has no link

    def tell_own(self, number: int, entry: EntryFields) -> None:
        """Send an entry proposed by this home to all linked homes."""
        for home in self._links.homes:
            tell(self._links, home, {"number": number, "entry": entry})

    def applied(self, entry: int, proposer: int) -> None:
        """Acknowledge an applied entry to the home that proposed the entry."""
        if proposer == self._etcd.me.home:
            loop = asyncio.get_running_loop()
            loop.call_later(0.0 if self._lives_unlinked() else LATE, self._answers.wait.set)
        else:
            tell(self._links, proposer, {"applied": entry, "digest": self._log.digests[entry]})
            self._answers.applied(entry)

    def up(self, link: Link) -> None:
        """Report the last entry applied here to a home with a new link."""
        tell(self._links, link.peer, {"applied": self._log.applied, "joins": True})

    def down(self, link: Link) -> None:
        """Stop waiting for a home whose link broke, unless the home is alive according to etcd."""
        self._witness.left(link.peer)
        self._log.everywhere.left(link.peer)
        self._answers.wait.set()

    def receive(self, link: Link, payload: memoryview) -> None:
        """Process a message."""
        said = json.loads(bytes(payload))
        match said:
            case {"applied": number}:
                self._log.everywhere.applied(link.peer, number)
                if number > self._log.entry:
                    self._entries.behind.set()
                # the peer may have missed entries while the link was down, and etcd may not answer the peer
                if said.get("joins"):
                    for missed, entry in self._entries.after(number):
                        tell(self._links, link.peer, {"number": missed, "entry": entry})
                self._compare(link.peer, number, said.get("digest"))
            case {"differs": number}:
                self._differs(link.peer, number)
            case {"number": number, "entry": entry}:
                try:
                    self._entries.take(number, entry)
                except (ValueError, LookupError, TypeError) as error:
                    self._entries.cannot_read(number, error)
            case {"deposed": int(epoch)}:
                self._lease.require_epoch(epoch)
            case {"dead": homes}:
                self._witness.note_dead(link.peer, set(homes))

    def _compare(self, home: int, entry: int, digest: int | None) -> None:
        """End this node if a node with a lower number, which has joined earlier, has different definitions."""
        if not self._log.differs(entry, digest):
            return
        if home < self._etcd.me.home:
            self._differs(home, entry)
        else:
            tell(self._links, home, {"differs": entry})

    def _differs(self, home: int, entry: int) -> None:
        self._etcd.on_failure(
            f"after entry {entry} of the cluster's log the definitions here differ from those of home {home}: "
            "its node keeps its data; please report this, and have it join with an empty directory"
        )
