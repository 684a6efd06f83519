"""Detection of lost entries: applied by a running node, and missing in etcd after a loss of data or a reset to an older
state.

While entries are missing, each running node that has applied them keeps a notice in etcd, in the folder ``lost``.
Meanwhile no node appends entries, creates a cluster of that name, or joins the cluster: a new entry would get the
number of a lost entry.
"""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from jumpmq.nodes.etcd.client import Found, delete, end_of, get, never, put
from jumpmq.nodes.etcd.keys import Keys, number_of
from jumpmq.nodes.joining.joining import Membership, other_format, reason_to_refuse, set_back
from jumpmq.nodes.log.cluster_log import EntryFields
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.entries import EtcdEntries
from jumpmq.nodes.membership.lease import Lease
from jumpmq.nodes.membership.live_homes import LiveHomes

LOOK_INTERVAL = 2.5
"""Seconds between two polls."""


@dataclass(frozen=True, slots=True)
class EtcdPoll:
    """Single poll of etcd.

    Attributes:
        keys, me: the cluster's keys, and the node's identity.
        number: number of the last entry received by the node; 0 for none.
        entry: the entry; None if it was received before this run.
    """

    keys: Keys
    me: Membership
    number: int
    entry: EntryFields | None

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
        """Return a description of the entries missing in etcd, None without missing entries; and True if this node has
        to notify other nodes.

        Args:
            found: results of :attr:`reads`.
        """
        identity, entries, recovered, told = (one.values for one in found)
        if not identity:
            return set_back(self.me.cluster, 0), True
        if identity[0].value.decode() != self.me.id:
            return f"etcd has lost cluster '{self.me.cluster}', and has another one of that name", False
        if recovered and (more := reason_to_refuse(self.me, self.number, int(recovered[0].value))) is not None:
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
        """Return True if etcd has the node's last entry, or, after a compaction, a later entry.

        Args:
            number, value: etcd's first entry from the node's last number on.
        """
        return number > self.number or self.entry is None or json.loads(value)["id"] == self.entry["id"]


class EtcdWatch:
    """Polls etcd every few seconds, for its acceptance of changes and for all entries applied here.

    Args:
        etcd: requests to etcd; its event ``doubted`` triggers a poll.
        entries: knows the last entry here.
        live: the live homes, updated by each poll.
        lease: the lease of this process; announced again once etcd has all entries.
    """

    def __init__(self, etcd: ClusterEtcd, entries: EtcdEntries, live: LiveHomes, lease: Lease) -> None:
        self._etcd = etcd  # of this node
        self._entries = entries  # knows the last entry
        self._live = live  # homes that live
        self._lease = lease  # of this process

    async def watch(self) -> None:
        """Poll forever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_INTERVAL):
                    await self._etcd.doubted.wait()
            self._etcd.doubted.clear()
            await self._etcd.until_answered(self._look)

    async def _look(self) -> None:
        """Poll etcd, with a transaction that includes a write operation but never executes it. etcd passes such a
        transaction through its own log, without a new revision, and refuses it while no changes are accepted.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        client, stall = self._etcd.client, self._etcd.stall
        look, known = EtcdPoll(self._etcd.keys, self._etcd.me, *self._entries.last), self._live.revision
        reads = [*look.reads, get(self._etcd.keys.format), self._live.read]
        _, (*found, version, live) = await client.transaction([never(look.key)], [put(look.key, "")], reads)
        lacks, notifies = look.lacks(found)
        had = stall.set_back
        stall.lacks(lacks)
        stall.changed(client.url)
        if live.revision < known:  # etcd was set back: its revisions start again
            self._live.revision = 0
        if notifies:
            # The notice is bound to a lease: a node that ends must not stop the cluster's changes for ever.
            await self._lease.require()
            await client.transaction([], [put(look.key, look.value, self._lease.id)])
        elif any(one.key == look.key for one in found[-1].values):
            await client.transaction([], [delete(look.key)])
        if lacks is None:
            if (problem := other_format(next(iter(version.values), None))) is not None:  # of a later release
                self._etcd.on_failure(problem)
                return
            # The keys of this process may be lost with the entries.
            if had is not None:
                await self._lease.announce()
            self._live.found(live)
