"""The key in etcd by which others see that this process lives, and the notes that go with it.

``live/NODE`` has a lease of :data:`LEASE` seconds, which is renewed. ``served/NODE`` outlives it: of two processes with
one data directory, or with copies of one, the process that was started earlier finds a start there that its directory
does not have, and ends.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from jumpmq.broker.bulk.starts import Sight
from jumpmq.nodes.etcd.client import EtcdError, absent, delete, get, has, put
from jumpmq.nodes.joining.joining import SetBack, set_back
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd

LEASE = 10
"""Seconds after which etcd takes a process without a sign of life for dead."""

NOTE_INTERVAL = 60.0
"""Seconds between two notes in etcd of what is on disk here, beside those at starts and clean stops. Each makes a
revision, which etcd keeps until that is compacted."""


class Lease:
    """The lease of this process.

    Args:
        etcd: of this node.
        value: of the process's key.
        boot: identity of this run of the process.
        sight: identifies the contents of the data directory.
        had: True of the boot id of a start that the data directory has had.

    Attributes:
        id: of the lease in etcd; 0 before :meth:`announce`.
    """

    def __init__(
        self,
        etcd: ClusterEtcd,
        value: bytes,
        boot: str,
        sight: Callable[[], Sight],
        had: Callable[[str], bool],
    ) -> None:
        self.id = 0
        self._etcd = etcd  # of this node
        self._value = value  # of the key
        self._boot = boot  # of this run
        self._sight = sight  # of the data directory
        self._had = had  # knows the data directory's starts
        self._noted: Sight = {}  # the sight that etcd has
        self._noted_at = 0.0  # by the loop's clock

    @property
    def key(self) -> str:
        """The key of this process."""
        return self._etcd.keys.live_node(self._etcd.me.process)

    @property
    def is_held(self) -> dict[str, Any]:
        """Comparison of a transaction: the key has this run's value."""
        return has(self.key, self._value)

    def is_own(self, value: bytes | None) -> bool:
        """True of the value that this run has put."""
        return value == self._value

    async def bury_workers(self) -> None:
        """Delete the keys of all processes of this node, which have ended, so that nothing waits for them."""
        found = await self._etcd.client.folder(f"{self._etcd.keys.live_node(self._etcd.me.node)}/")
        if found.values:
            await self._etcd.client.transaction([], [delete(one.key) for one in found.values])

    async def announce(self, *, starts: bool = False) -> None:
        """Put the key, with a new lease. The process ends instead where one that was started later has the data
        directory, however long etcd was out of reach.

        Args:
            starts: True of the first time: the process is the one that was started last.

        Raises:
            SetBack: etcd has lost the cluster.
            EtcdError: etcd cannot be asked.
        """
        keys, client, me = self._etcd.keys, self._etcd.client, self._etcd.me
        served = keys.served(me.process)
        found = None if starts else await client.get(served)
        if found is not None and not self._had(found.value.decode()):
            self._etcd.on_failure(superseded(self._etcd))
            await asyncio.Event().wait()
        same = [] if starts else [absent(served) if found is None else has(served, found.value)]
        lease = await client.grant(LEASE)
        puts = [put(self.key, self._value, lease), put(served, self._boot)]
        done, read = await client.transaction([self._etcd.is_ours, *same], puts, [get(keys.id)])
        if not done:
            await client.revoke(lease)
            if [one.value.decode() for one in read[0].values] != [me.id]:
                raise SetBack(set_back(me.cluster, 0))
            raise EtcdError(f"another process of {me} was announced at the same time")
        self.id = lease

    async def renew(self) -> bool:
        """Renew the lease; False where etcd has ended it."""
        return await self._etcd.client.keep_alive(self.id)

    async def require(self) -> None:
        """Have a lease in any case, without the key of this process, which may be lost with all others."""
        if not await self.renew():
            self.id = await self._etcd.client.grant(LEASE)

    async def note_in_time(self) -> None:
        """As :meth:`note`, if the last time is long ago."""
        if asyncio.get_running_loop().time() >= self._noted_at + NOTE_INTERVAL:
            await self.note()

    async def note(self) -> None:
        """Note in etcd what this process has on disk, so that an older copy of its data directory is refused later.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        sight = self._sight()
        if sight == self._noted:
            return
        value = json.dumps({"at": time.time(), "sight": sight})
        note = put(self._etcd.keys.seen(self._etcd.me.process), value)
        if (await self._etcd.client.transaction([self._etcd.is_ours, self.is_held], [note]))[0]:
            self._noted, self._noted_at = sight, asyncio.get_running_loop().time()

    async def end(self) -> None:
        """Note what is on disk, and end the lease: others know at once that this process ends.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        if self.id:
            await self.note()
            await self._etcd.client.revoke(self.id)


def superseded(etcd: ClusterEtcd) -> str:
    """Reason for the end of a process whose data directory has a later one."""
    return f"another process serves {etcd.me} with its data directory, or a copy of that, and was started later"
