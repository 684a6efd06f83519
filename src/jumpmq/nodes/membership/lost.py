"""Entries applied by a running node and missing in etcd, after a loss of data or a reset to an older state.

Nodes that lack something in etcd say so there, in the folder ``lost``, for as long as they run. Nobody appends to the
log meanwhile, nor makes or joins a cluster of that name: an entry of theirs would take the number of one that is lost.
"""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from jumpmq.nodes.etcd.client import Found, delete, end_of, get, never, put
from jumpmq.nodes.etcd.keys import Keys, number_of
from jumpmq.nodes.joining.joining import Membership, knows_more, other_format, set_back
from jumpmq.nodes.log.cluster_log import Entry
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.entries import EtcdEntries
from jumpmq.nodes.membership.lease import Lease
from jumpmq.nodes.membership.live_homes import LiveHomes

LOOK_INTERVAL = 2.5
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class EtcdPoll:
    """Single poll of etcd.

    Attributes:
        keys, me: the cluster's, and the node.
        number: of the last entry that the node has received; 0 before the first.
        entry: the entry; None if the node began with it.
    """

    keys: Keys
    me: Membership
    number: int
    entry: Entry | None

    @property
    def folder(self) -> str:
        """Folder for reports of lost entries."""
        return self.keys.lost_of(self.me.id)

    @property
    def key(self) -> str:
        """Key of the node's report of lost entries."""
        return self.folder + self.me.process

    @property
    def value(self) -> str:
        """Text of the notice in etcd."""
        return json.dumps({"entry": self.number})

    @property
    def reads(self) -> list[dict[str, Any]]:
        """Read operations for a single poll of etcd, as a single transaction."""
        return [
            get(self.keys.id),
            get(self.keys.entry(self.number), end_of(self.keys.log), 1),
            get(self.keys.recovered),
            get(self.folder, end_of(self.folder)),
        ]

    def lacks(self, found: list[Found]) -> tuple[str | None, bool]:
        """Return a sentence about entries missing in etcd, from the results read, or None; and True if other nodes must
        be notified.
        """
        identity, entries, recovered, told = (one.values for one in found)
        if not identity:
            return set_back(self.me.cluster, 0), True
        if identity[0].value.decode() != self.me.id:
            return f"etcd has lost cluster '{self.me.cluster}', and has another one of that name", False
        if recovered and (more := knows_more(self.me, self.number, int(recovered[0].value))) is not None:
            return more, False
        if self.number and (not entries or not self._is_last(number_of(entries[0].key), entries[0].value)):
            return set_back(self.me.cluster, self.number), True
        others = {one.key: int(json.loads(one.value)["entry"]) for one in told if one.key != self.key}
        if others:
            key = max(others, key=lambda one: others[one])
            node = key.removeprefix(self.folder)
            return set_back(self.me.cluster, others[key], f"node '{node}'"), False
        return None, False

    def _is_last(self, number: int, value: bytes) -> bool:
        """Return True if the first entry from the node's last entry on is the node's last, or a later entry where the
        log was compacted.
        """
        return number > self.number or self.entry is None or json.loads(value)["id"] == self.entry["id"]


class EtcdWatch:
    """Polls etcd every few seconds, for its acceptance of changes and for all entries applied here.

    Args:
        etcd: of this node; its ``doubted`` begins a look at once.
        entries: knows the last entry here.
        live: the homes that live, as each look finds them.
        lease: of this process; announced again once etcd has everything.
    """

    def __init__(self, etcd: ClusterEtcd, entries: EtcdEntries, live: LiveHomes, lease: Lease) -> None:
        self._etcd = etcd  # of this node
        self._entries = entries  # knows the last one
        self._live = live  # homes that live
        self._lease = lease  # of this process

    async def watch(self) -> None:
        """Look without end."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_INTERVAL):
                    await self._etcd.doubted.wait()
            self._etcd.doubted.clear()
            await self._etcd.until_answered(self._look)

    async def _look(self) -> None:
        """Ask for a transaction that would put something, and does not: it is refused where no change is taken, goes
        through etcd's own log, and makes no revision.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        client, standstill = self._etcd.client, self._etcd.standstill
        look, known = EtcdPoll(self._etcd.keys, self._etcd.me, *self._entries.last), self._live.revision
        reads = [*look.reads, get(self._etcd.keys.format), self._live.read]
        _, (*found, version, live) = await client.transaction([never(look.key)], [put(look.key, "")], reads)
        lacks, is_told = look.lacks(found)
        had = standstill.set_back
        standstill.lacks(lacks)
        standstill.changed(client.url)
        if live.revision < known:  # the known revision is not of this etcd any more
            self._live.revision = 0
        if is_told:
            await self._lease.require()
            await client.transaction([], [put(look.key, look.value, self._lease.id)])
        elif any(one.key == look.key for one in found[-1].values):
            await client.transaction([], [delete(look.key)])
        if lacks is None:
            if (problem := other_format(next(iter(version.values), None))) is not None:  # of a later release
                self._etcd.on_failure(problem)
                return
            if had is not None:
                await self._lease.announce()
            self._live.found(live)
