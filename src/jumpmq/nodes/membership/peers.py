"""Messages between nodes about the log, over links.

A message is JSON: ``applied`` acknowledges an entry, with the digest of the definitions then (and ``joins`` right after
the link has come up); ``number`` and ``entry`` tell of one; ``differs`` says that the digests differ; ``dead`` lists
homes for :mod:`~jumpmq.nodes.membership.witness`; ``deposed`` tells a process that its home has a later one.
"""

import asyncio
import json
from collections.abc import Callable

from jumpmq.nodes.log.cluster_log import ClusterLog, Entry
from jumpmq.nodes.log.log_link import tell
from jumpmq.nodes.membership.answers import Answers
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.entries import EtcdEntries
from jumpmq.nodes.membership.lease import Lease
from jumpmq.nodes.membership.witness import Witness
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links

LATE = 0.3
"""Seconds after which a home with a link is told over etcd, too."""


class PeerMessages:
    """Messages of the local node to peers.

    Args:
        etcd: of this node.
        links: to the other homes.
        log: notes acknowledgements.
        lease: of this process, which others may know to be deposed.
        entries: applies entries, and keeps the last ones.
        answers: acknowledges over etcd where there is no link.
        witness: told of homes that others take for dead.
        lives_unlinked: True while a home lives that has no link.
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
        self._log = log  # notes acknowledgements
        self._lease = lease  # of this process
        self._entries = entries  # applies entries
        self._answers = answers  # over etcd
        self._witness = witness  # of dead homes
        self._lives_unlinked = lives_unlinked  # True while a home without a link lives

    def tell_own(self, number: int, entry: Entry) -> None:
        """Send an entry proposed by this home to all linked homes."""
        for home in self._links.homes:
            tell(self._links, home, {"number": number, "entry": entry})

    def applied(self, entry: int, asker: int) -> None:
        """Acknowledge an applied entry to the home that proposed the entry."""
        if asker == self._etcd.me.home:
            loop = asyncio.get_running_loop()
            loop.call_later(0.0 if self._lives_unlinked() else LATE, self._answers.wait.set)
        else:
            tell(self._links, asker, {"applied": entry, "digest": self._log.digests[entry]})
            self._answers.applied(entry)

    def up(self, link: Link) -> None:
        """Tell a home whose link has come up of the last entry applied here."""
        tell(self._links, link.peer, {"applied": self._log.applied, "joins": True})

    def down(self, link: Link) -> None:
        """Wait for a home with a broken link only as long as alive in etcd."""
        self._witness.left(link.peer)
        self._log.everywhere.left(link.peer)
        self._answers.wait.set()

    def receive(self, link: Link, payload: memoryview) -> None:
        """Act on a message."""
        said = json.loads(bytes(payload))
        match said:
            case {"applied": number}:
                self._log.everywhere.applied(link.peer, number)
                if number > self._log.entry:
                    self._entries.behind.set()
                if said.get("joins"):  # it may have missed entries while the link was down, and etcd may not answer it
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
                self._witness.heard(link.peer, set(homes))

    def _compare(self, home: int, entry: int, digest: int | None) -> None:
        """End the node if a node with a lower number, the older of the two, has different definitions."""
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
