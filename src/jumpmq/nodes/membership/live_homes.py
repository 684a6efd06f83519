"""Live homes of a cluster, from the keys kept by the homes' processes in etcd, and the addresses of the
homes' links.
"""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

from jumpmq.nodes.etcd.client import Event, Found, Value, end_of, get
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.transport.directory import Address
from jumpmq.nodes.transport.links import Links
from jumpmq.topology import Topology


class ClusterDirectory:
    """Addresses of the cluster's homes: see :class:`~jumpmq.nodes.transport.directory.Directory`.

    Args:
        cluster: identity of the cluster.
        secret: the secret of the links.
        host: address of this machine for other machines.
        boot: identity of this run of the process.

    Attributes:
        addresses: address of each home; for a home that is down, the last known address.
        own: address at which this process accepts links, in the form of its key in etcd; empty before :meth:`announce`.
    """

    def __init__(self, cluster: str, secret: str, host: str, boot: str) -> None:
        self.cluster = cluster
        self.secret = secret
        self.on_change: list[Callable[[], None]] = []
        self.addresses: dict[int, Address] = {}
        self.own: dict[str, Any] = {}
        self._host = host  # of this machine
        self._boot = boot  # of this run

    def announce(self, home: int, port: int) -> None:
        """See :meth:`~jumpmq.nodes.transport.directory.Directory.announce`; in etcd once the member has started."""
        self.own = {"home": home, "boot": self._boot, "host": self._host, "port": port}

    def remove(self, *homes: int) -> None:
        """Drop the links to the given homes, if known."""
        for home in homes:
            self.addresses.pop(home, None)
        self.tell()

    def tell(self) -> None:
        """Call the subscribers for address changes."""
        for told in list(self.on_change):
            told()


class LiveHomes:
    """Live homes, as far as known to etcd.

    Args:
        etcd: of this node.
        directory: keeps the addresses found.
        links: the links to other homes.
        topology: knows the homes of the cluster.
        on_change: called when a home starts, ends, or changes its address.
        on_own: called with the boot id in the key of this home's process.

    Attributes:
        by_key: the live homes, by the key of their process in etcd.
        revision: etcd's revision for ``by_key``.
        read_at: time of the last read of all keys, by the loop's clock.
        serving: homes that have declared a queue since the last poll: these are alive even if ``by_key`` lacks them.
    """

    def __init__(
        self,
        etcd: ClusterEtcd,
        directory: ClusterDirectory,
        links: Links,
        topology: Topology,
        on_change: Callable[[], None],
        on_own: Callable[[str], None],
    ) -> None:
        self.by_key: dict[str, int] = {}
        self.revision = 0
        self.read_at = -math.inf
        self.serving: set[int] = set()
        self._etcd = etcd  # of this node
        self._directory = directory  # keeps addresses
        self._links = links  # to the others
        self._topology = topology  # knows the homes of the cluster
        self._on_change = on_change  # called after changes
        self._on_own = on_own  # called with the boot id in this process's key

    @property
    def read(self) -> dict[str, Any]:
        """Read operation for a transaction; the result is for :meth:`found`. An answer to a client waits for all homes
        that are alive at the time of the request. The read must therefore be later than the request.
        """
        return get(self._etcd.keys.live, end_of(self._etcd.keys.live))

    async def refresh(self, age: float = 0.0) -> None:
        """Read all keys from etcd, if the last read is older than ``age`` seconds. Other polls read the keys, too."""
        if asyncio.get_running_loop().time() - self.read_at >= age:
            self.found(await self._etcd.client.folder(self._etcd.keys.live))

    def found(self, found: Found) -> None:
        """Process a read of all processes' keys, unless a later read was processed."""
        if found.revision < self.revision:
            return
        self.revision, self.read_at = found.revision, asyncio.get_running_loop().time()
        before = self.by_key.copy(), self._directory.addresses.copy()
        for key in self.by_key.keys() - {value.key for value in found.values}:
            self._take(Event(key, None, found.revision))
        for value in found.values:
            self._take(value)
        if before != (self.by_key, self._directory.addresses):
            self._on_change()

    async def follow(self) -> None:
        """Watch etcd; runs forever."""
        async for events in self._etcd.watched(self._etcd.keys.live, self.revision):
            known = self.revision
            for event in events:
                if event.revision > known:
                    self._take(event)
                    self.revision = max(self.revision, event.revision)
            self._on_change()

    def _take(self, found: Value | Event) -> None:
        """Take the value of a single key; None if deleted."""
        if found.value is None:
            gone = self.by_key.pop(found.key, 0)
            if gone not in self._topology.homes:
                self._directory.addresses.pop(gone, None)
            return
        said = json.loads(found.value)
        self.by_key[found.key] = int(said["home"])
        if said["home"] != self._etcd.me.home:
            self._directory.addresses[int(said["home"])] = str(said["host"]), int(said["port"])
            self._links.require_epoch(int(said["home"]), int(said.get("epoch", 0)))
        else:
            self._on_own(str(said["boot"]))

    @property
    def homes(self) -> set[int]:
        """Numbers of the live homes."""
        return set(self.by_key.values())

    @property
    def unlinked(self) -> set[int]:
        """Live homes without a link to the local home."""
        return {home for home in self.by_key.values() if home != self._etcd.me.home and self._links.to(home) is None}

    def is_dead(self, home: int) -> bool:
        """Return True if a home's process has ended, according to etcd. False after etcd was set back."""
        if self._etcd.stall.set_back is not None:
            return False
        return home not in self.serving and home not in self.by_key.values()

    async def key_of(self, home: int) -> str:
        """Return the key of a home's process, present in etcd while the process is alive."""
        keys = self._etcd.keys
        found = await self._etcd.client.folder(keys.members)
        names = {int(json.loads(one.value)["home"]): one.key.removeprefix(keys.members) for one in found.values}
        return keys.live_node(names.get(home, self._topology.node_of(home)))
