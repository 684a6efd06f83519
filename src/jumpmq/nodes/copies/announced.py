"""Announcements of processes in etcd, at ``copies/PROCESS``: address for copies, rack, problems of copies, damage, and
replicas. A replica's name has the identity of its disk, which distinguishes a new copy from a lost one.
"""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from jumpmq.nodes.etcd.client import EtcdError, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.live_homes import ClusterDirectory
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import ReplicaId

MOST_TEXT = 500
"""Maximum characters of a problem's text."""


class Announced:
    """Addresses and problems of all processes that keep copies.

    Args:
        etcd: the node's etcd.
        keys: the cluster's keys in etcd.
        me: this process.
        directory: receives the addresses of other processes.
        racks: receives the racks announced by nodes; already has this node's rack, empty for none.
    """

    def __init__(
        self, etcd: ClusterEtcd, keys: Keys, me: Membership, directory: ClusterDirectory, racks: dict[str, str]
    ) -> None:
        self._racks = racks
        self._etcd, self._keys, self._me = etcd, keys, me
        self._directory = directory
        self._nodes = {me.home: me.node}  # node of each process, by the process's home
        self._addresses: dict[str, int] = {}  # home of each process, by the process's name in etcd
        self._troubles: dict[str, dict[int, str]] = {}  # problems of copies at other nodes, by process and home
        self._own: dict[int, str] = {}  # problems of copies at this process, by home
        self._damaged: dict[str, frozenset[int]] = {}  # homes with a damaged copy at other nodes, by process
        # homes with a damaged copy at this process, and those of them whose copy cannot be opened
        self._own_damaged: tuple[frozenset[int], frozenset[int]] = frozenset(), frozenset()
        self._replicas: dict[int, ReplicaId] = {}  # replicas of open copies at this process, by home
        self._away: dict[str, float] = {}  # nodes without a process, with the begin of their absence
        self._lease = 0

    async def announce(self) -> None:
        """Publish the address and the problems of this process, with a new lease.

        Raises:
            EtcdError: etcd does not answer.
        """
        self._lease = await self._etcd.client.grant(LEASE)
        await self._put()

    async def keep_alive(self) -> None:
        """Renew the lease, and publish again if the lease has ended; runs until cancelled."""
        while True:
            await asyncio.sleep(LEASE / 4)
            if not await self._etcd.until_answered(lambda: self._etcd.client.keep_alive(self._lease)):
                await self._etcd.until_answered(self.announce)

    async def revoke(self) -> None:
        """Remove the announcement from etcd.

        Raises:
            EtcdError: etcd does not answer.
        """
        if self._lease:
            await self._etcd.client.revoke(self._lease)

    async def tell(
        self,
        troubles: dict[int, str],
        damaged: Iterable[int],
        closed: Iterable[int],
        replicas: dict[int, ReplicaId],
    ) -> None:
        """Publish the state of the copies at this process, if changed.

        Args:
            troubles: problems of copies, by home; empty texts for none.
            damaged: homes with a damaged copy here.
            closed: homes with a damaged copy that cannot be opened.
            replicas: replicas of open copies, by home.
        """
        before = self._own, self._own_damaged, self._replicas
        self._own = {home: text[:MOST_TEXT] for home, text in troubles.items() if text}
        self._own_damaged = frozenset(damaged), frozenset(closed)
        self._replicas = replicas
        if (self._own, self._own_damaged, self._replicas) == before:
            return
        try:
            await self._put()
        except EtcdError:  # the next call retries
            self._own, self._own_damaged, self._replicas = before

    async def _put(self) -> None:
        value = {
            **self._directory.own,
            "node": self._me.node,
            "troubles": self._own,
            "damaged": sorted(self._own_damaged[0]),
            "closed": sorted(self._own_damaged[1]),
            "replicas": self._replicas,
            "rack": self._racks[self._me.node],
        }
        same, key = [self._etcd.is_ours], self._keys.copies_of(self._me.process)
        await self._etcd.client.transaction(same, [put(key, json.dumps(value), self._lease)])

    def take(self, process: str, value: bytes | None) -> None:
        """Process the announcement of a process; None for a removed announcement."""
        self._troubles.pop(process, None)
        self._damaged.pop(process, None)
        if value is None:
            self._directory.addresses.pop(self._addresses.pop(process, 0), None)
        else:
            said: dict[str, Any] = json.loads(value)
            home = int(said["home"])
            if home == self._me.home:
                return
            self._addresses[process], self._nodes[home] = home, str(said["node"])
            self._directory.addresses[home] = str(said["host"]), int(said["port"])
            self._racks[self._nodes[home]] = str(said.get("rack", ""))
            self._damaged[process] = frozenset(map(int, said.get("damaged", ())))
            self._troubles[process] = {int(one): str(text) for one, text in said.get("troubles", {}).items()}
        self._directory.tell()

    def node_at(self, home: int) -> str:
        """Return the node of the process that serves a home at its seat; empty if unknown."""
        return self._nodes.get(home, "")

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes that accept connections for copies, in the order of joining."""
        homes = sorted({self._me.home, *self._addresses.values()})
        return list(dict.fromkeys(self._nodes[home] for home in homes))

    def gone(self, nodes: Iterable[str], seconds: float, now: float) -> set[str]:
        """Return the given nodes that have had no process for at least ``seconds``. Call this regularly: a node's
        absence is measured from the first call that finds no process of the node.

        Args:
            now: time by a clock that counts suspended time, in seconds.
        """
        live = self.nodes
        for node in live:
            self._away.pop(node, None)
        return {node for node in nodes if node not in live and now - self._away.setdefault(node, now) >= seconds}

    def troubles_of(self, home: int) -> dict[str, str]:
        """Return the problems of a home's copies, by node."""
        found = {self._nodes[self._addresses[one]]: texts for one, texts in self._troubles.items() if home in texts}
        told = {node: texts[home] for node, texts in found.items()}
        return told | ({self._me.node: self._own[home]} if home in self._own else {})

    def damaged_at(self, home: int) -> set[str]:
        """Return the nodes that have announced a damaged copy of a home."""
        found = {self._nodes[self._addresses[one]] for one, homes in self._damaged.items() if home in homes}
        return found | ({self._me.node} if home in self._own_damaged[0] else set())
