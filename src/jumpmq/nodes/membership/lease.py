"""The lease in etcd of the process that serves a home.

An *epoch* is one life of a home's process; epochs are numbered in ascending order. A starting process first stores the
next epoch in its data directory, and then claims it in ``home/H`` (:meth:`Lease.claim`). From then on, each transaction
that appends an entry or announces a process compares ``home/H``, so that a process of an earlier epoch changes nothing.
A process ends when it learns of a later epoch, from etcd or from another home. If two processes share a data directory,
for example a volume attached twice or a copied directory, the older process ends.

The replica of a home with copies claims the epoch (:mod:`jumpmq.nodes.copies`), before the process opens the store. For
such a home ``home/H`` also changes with the set of copies. Transactions therefore compare ``led/H``, which has only the
epoch.

``live/NODE`` is attached to a lease of :data:`~jumpmq.nodes.timing.LEASE` seconds, which the process renews.
``served/NODE`` has the boot id of the last start, for nodes of releases without epochs.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from jumpmq.broker.bulk.starts import Fingerprint
from jumpmq.nodes.etcd.client import EtcdError, Found, Value, absent, delete, get, has, put
from jumpmq.nodes.joining.joining import SetBack, set_back
from jumpmq.nodes.log.shared_log import Record
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import Configuration, ConfigurationError
from jumpmq.store import Store
from jumpmq.store.kinds import EPOCH

NOTE_INTERVAL = 60.0
"""Seconds between two records of the data directory's state in etcd; starts and clean stops make further records. etcd
keeps every version of a key until a compaction, hence the long interval.
"""


REPLICA_TIMEOUT = 10.0
"""Time in seconds for a replica to end a process whose home is served by another node."""


class Promise:
    """The highest epoch of the home stored in the data directory. The process never claims a lower one.

    Args:
        kept: the stored epoch; 0 for none.
        keep: stores an epoch; returns once it is on disk.
    """

    def __init__(self, kept: int, keep: Callable[[int], Awaitable[None]]) -> None:
        self.kept = kept
        self._keep = keep  # stores an epoch

    @classmethod
    def of(cls, found: list[Record], store: Store, on_disk: Callable[[], Awaitable[None]]) -> Self:
        """Return the promise stored in a data directory.

        Args:
            found: the directory's records.
            on_disk: waits for the disk.
        """

        async def keep(epoch: int) -> None:
            store.put(*EPOCH, epoch)
            await on_disk()

        return cls(next((int(value) for kind, key, value in found if (kind, key) == EPOCH), 0), keep)

    async def raised(self, epoch: int) -> None:
        """Store the epoch on disk, unless an equal or higher epoch is stored already."""
        if epoch > self.kept:
            await self._keep(epoch)
            self.kept = epoch


class Lease:
    """Lease of the local process.

    Args:
        etcd: requests to etcd.
        address: home, boot id and link address of this process.
        promise: stores the epoch on disk.
        fingerprint: identifies the contents of the data directory.
        had: tells whether the data directory has a record of the start with the given boot id.
        leads: epoch that the home's replica has claimed; 0 in a home without copies.

    Attributes:
        id: id of the lease in etcd; 0 before :meth:`claim`.
        epoch: epoch of this process; 0 before :meth:`claim`.
    """

    def __init__(
        self,
        etcd: ClusterEtcd,
        address: Mapping[str, Any],
        promise: Promise,
        fingerprint: Callable[[], Fingerprint],
        had: Callable[[str], bool],
        leads: int = 0,
    ) -> None:
        self.id = 0
        self.epoch = 0
        me, keys = etcd.me, etcd.keys
        self._etcd = etcd  # of this node
        self._address = address  # of this process
        self._promise = promise  # stores the epoch
        self._fingerprint = fingerprint  # of the data directory
        self._had = had  # knows the data directory's starts
        self._leads = leads  # epoch of the replica
        self._live, self._served = keys.live_node(me.process), keys.served(me.process)
        self._home = keys.led(me.home) if leads else keys.home(me.home)
        self._value = b""  # value of ``live/NODE``
        self._state = b""  # value of ``home/H`` or ``led/H`` with this epoch
        self._noted: Fingerprint = {}  # the fingerprint last recorded in etcd
        self._noted_at = 0.0  # loop time of the last record

    @property
    def is_held(self) -> list[dict[str, Any]]:
        """Comparisons for a transaction: the lease is alive, and the home has no later process."""
        return [has(self._live, self._value), has(self._home, self._state)]

    @property
    def reads(self) -> list[dict[str, Any]]:
        """Reads of a transaction, for :meth:`is_held_by`."""
        return [get(self._live), get(self._home)]

    def is_held_by(self, read: Sequence[Found]) -> bool:
        """Return True if the comparisons of :attr:`is_held` hold for the results of :attr:`reads`."""
        return [value.value for found in read for value in found.values] == [self._value, self._state]

    def require_epoch(self, epoch: int) -> None:
        """End the process if the home has a later epoch."""
        if epoch > self.epoch:
            self._superseded()

    async def forget_dead_workers(self) -> None:
        """Delete the keys of the node's ended processes, so that no home waits for these processes."""
        found = await self._etcd.client.folder(f"{self._etcd.keys.live_node(self._etcd.me.node)}/")
        if found.values:
            await self._etcd.client.transaction([], [delete(one.key) for one in found.values])

    async def claim(self) -> None:
        """Begin the next epoch of the home, as the home's latest process.

        Raises:
            SetBack: etcd has lost the cluster.
            EtcdError: etcd does not answer, or another process of the home was faster; the caller retries.
        """
        if self._leads:
            await self._take(self._leads, str(self._leads).encode())
            await self._put([])
            return
        found = await self._etcd.client.get(self._home)
        state = self._next(None if found is None else found.value)
        await self._take(state.epoch, state.to_json())
        await self._put([_same(self._home, found)])

    async def _take(self, epoch: int, state: bytes) -> None:
        """Set the epoch of this process, and the value of the home's key with the epoch."""
        # On disk before the claim: a restart that finds etcd set back must not claim the same epoch twice.
        await self._promise.raised(epoch)
        self.epoch, self._state = epoch, state
        self._value = json.dumps({**self._address, "epoch": epoch}).encode()

    def _next(self, found: bytes | None) -> Configuration:
        """Return the home's configuration with the next epoch, led by this process."""
        me = self._etcd.me
        replica = f"{me.node}.{me.disk}"
        claimed = Configuration.first(me.member, replica)
        if found is not None:
            before = _parsed(found)
            if before.log == claimed.log and replica in before.electable:
                claimed = before.claimed(replica)
            else:  # configuration of an earlier home with this number, of which etcd has lost the rest
                claimed = replace(claimed, v=before.v + 1, epoch=before.epoch + 1)
        return replace(claimed, epoch=max(claimed.epoch, self._promise.kept + 1))

    async def announce(self) -> None:
        """Announce this process again, with a new lease. The process ends instead if its home has a later epoch, or if
        its data directory has a record of a later start. This holds also after etcd was unreachable for long.

        Raises:
            SetBack: etcd has lost the cluster.
            EtcdError: etcd cannot be asked.
        """
        client = self._etcd.client
        served, home = await client.get(self._served), await client.get(self._home)
        if self._leads:
            # The replica owns `home/H` of a home with copies; this process only compares `led/H`.
            await self._require_led(home)
            await self._put([_same(self._served, served)])
            return
        is_other = served is not None and not self._had(served.value.decode())
        found = None if home is None else _parsed(home.value)
        if is_other or (found is not None and found.epoch > self.epoch):
            await self._give_way()
        if home is not None and found is not None and home.value != self._state:  # of an earlier process
            own = Configuration.from_json(self._state)
            self._state = replace(own, v=max(own.v, found.v) + 1).to_json()
        await self._put([_same(self._served, served), _same(self._home, home)])

    async def _require_led(self, led: Value | None) -> None:
        """End this process if a later epoch of a home with copies was claimed.

        Args:
            led: the value found in etcd.
        """
        if led is not None and int(led.value) > self.epoch:
            await self._give_way()

    async def _give_way(self) -> None:
        """End the process; does not return."""
        self._superseded()
        await asyncio.Event().wait()

    def _superseded(self) -> None:
        """End the process, because a later process serves its home.

        For a home with copies, the replica ends the process and restarts it in place. Until then the process does no
        harm: it alone uses its data directory, and none of its writes become complete.
        """
        fail = partial(self._etcd.on_failure, superseded(self._etcd))
        if self._leads:
            asyncio.get_running_loop().call_later(REPLICA_TIMEOUT, fail)
        else:
            fail()

    async def _put(self, same: list[dict[str, Any]]) -> None:
        """Put the local process's keys with a new lease.

        Args:
            same: comparisons of the transaction.
        """
        client, me, keys = self._etcd.client, self._etcd.me, self._etcd.keys
        lease = await client.grant(LEASE)
        # One transaction: no process is announced without holding the home's epoch.
        puts = [put(self._live, self._value, lease), put(self._served, str(self._address["boot"]))]
        if self._leads:
            same = [*same, has(self._home, self._state)]
        else:
            puts.append(put(self._home, self._state))
        done, read = await client.transaction([self._etcd.is_ours, *same], puts, [get(keys.id)])
        if not done:
            # The lease would otherwise remain in etcd until it expires, once for each failed attempt.
            await client.revoke(lease)
            if [one.value.decode() for one in read[0].values] != [me.id]:
                raise SetBack(set_back(me.cluster, 0))
            if self._leads:
                await self._require_led(await client.get(self._home))
            raise EtcdError(f"another process of {me} was announced at the same time")
        self.id = lease

    async def renew(self) -> bool:
        """Renew the lease; False if ended by etcd."""
        return await self._etcd.client.keep_alive(self.id)

    async def require(self) -> None:
        """Renew the lease; if etcd has ended it, get a new lease, without writing the key of this process. etcd may
        have lost all keys.
        """
        if not await self.renew():
            self.id = await self._etcd.client.grant(LEASE)

    async def note_in_time(self) -> None:
        """Call :meth:`note` if the last record is older than :data:`NOTE_INTERVAL`."""
        if asyncio.get_running_loop().time() >= self._noted_at + NOTE_INTERVAL:
            await self.note()

    async def note(self) -> None:
        """Record the process's state on disk in etcd, so that an older copy of the data directory is rejected later.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        fingerprint = self._fingerprint()
        # etcd keeps every version of a key until compaction: an unchanged record is not written again.
        if fingerprint == self._noted:
            return
        value = json.dumps({"at": time.time(), "sight": fingerprint})
        note = put(self._etcd.keys.seen(self._etcd.me.process), value)
        if (await self._etcd.client.transaction([self._etcd.is_ours, *self.is_held], [note]))[0]:
            self._noted, self._noted_at = fingerprint, asyncio.get_running_loop().time()

    async def end(self) -> None:
        """Record the process's state on disk in etcd, and end the lease. Peers are notified at once.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        if self.id:
            await self.note()
            # After the record: the record's transaction compares `live/NODE`, which is deleted with the lease.
            await self._etcd.client.revoke(self.id)


def _same(key: str, found: Value | None) -> dict[str, Any]:
    """Return the comparison: a key is unchanged since it was read."""
    return absent(key) if found is None else has(key, found.value)


def _parsed(state: bytes) -> Configuration:
    """Parse the configuration of a home in etcd.

    Raises:
        EtcdError: this release cannot read the configuration.
    """
    try:
        return Configuration.from_json(state)
    except ConfigurationError as error:
        raise EtcdError(f"etcd has a state of this home that cannot be read: {error}") from None


def superseded(etcd: ClusterEtcd) -> str:
    """Return the reason for stopping a process after a later process started with its data directory."""
    return f"another process serves {etcd.me} with its data directory, or a copy of that, and was started later"
