"""Lease of a process in etcd, as the process serving a home.

An *epoch* is one life of a home's process; each has a higher number than those before it. A process that starts claims
the next one in ``home/H`` (:meth:`Lease.claim`), after its data directory has it on disk. From then on every entry of
the log, and every announcement of a process, compares ``home/H``: a process of an earlier epoch changes nothing. It
ends when it reads of a later epoch, or when another home tells it of one: where two processes have one data directory,
a volume that was taken over, or copies of a directory, the older one ends.

The epoch of a home with copies is claimed by its replica (:mod:`jumpmq.nodes.copies`) before the store is open. Since
``home/H`` then also changes with the set of copies, ``led/H`` is compared in its place, which has the epoch alone.

``live/NODE`` has a lease of :data:`~jumpmq.nodes.timing.LEASE` seconds, which is renewed. ``served/NODE`` has the boot
id of the last start, which says the same to releases before epochs.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from jumpmq.broker.bulk.starts import Sight
from jumpmq.nodes.etcd.client import EtcdError, Found, Value, absent, delete, get, has, put
from jumpmq.nodes.joining.joining import SetBack, set_back
from jumpmq.nodes.log.shared_log import Record
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import Configuration, ConfigurationError
from jumpmq.store import Store
from jumpmq.store.kinds import EPOCH

NOTE_INTERVAL = 60.0
"""Interval between two notes in etcd of this node's state on disk, in seconds, besides notes at starts and clean stops.
Every note makes a revision, kept by etcd until compaction."""


REPLICA_TIMEOUT = 10.0
"""Time in seconds for a replica to end a process whose home is served by another node."""


class Promise:
    """Highest epoch of the home known to the data directory: no lower epoch is ever claimed.

    Args:
        kept: the kept epoch; 0 before the first.
        keep: puts one on disk; returns when it is there.
    """

    def __init__(self, kept: int, keep: Callable[[int], Awaitable[None]]) -> None:
        self.kept = kept
        self._keep = keep  # puts one on disk

    @classmethod
    def of(cls, found: list[Record], store: Store, on_disk: Callable[[], Awaitable[None]]) -> Self:
        """The promise of a data directory.

        Args:
            found: its records.
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
        etcd: of this node.
        address: home, boot id and link address of this process.
        promise: keeps the epoch on disk.
        sight: identifies the contents of the data directory.
        had: True of the boot id of a start that the data directory has had.
        leads: epoch that the home's replica has claimed; 0 in a home without copies.

    Attributes:
        id: of the lease in etcd; 0 before :meth:`claim`.
        epoch: of this process; 0 before :meth:`claim`.
    """

    def __init__(
        self,
        etcd: ClusterEtcd,
        address: Mapping[str, Any],
        promise: Promise,
        sight: Callable[[], Sight],
        had: Callable[[str], bool],
        leads: int = 0,
    ) -> None:
        self.id = 0
        self.epoch = 0
        me, keys = etcd.me, etcd.keys
        self._etcd = etcd  # of this node
        self._address = address  # of this process
        self._promise = promise  # keeps the epoch
        self._sight = sight  # of the data directory
        self._had = had  # knows the data directory's starts
        self._leads = leads  # epoch of the replica
        self._live, self._served = keys.live_node(me.process), keys.served(me.process)
        self._home = keys.led(me.home) if leads else keys.home(me.home)
        self._value = b""  # of this process's key
        self._state = b""  # of the home, with this epoch
        self._noted: Sight = {}  # the sight that etcd has
        self._noted_at = 0.0  # by the loop's clock

    @property
    def is_held(self) -> list[dict[str, Any]]:
        """Comparisons of a transaction: the process is alive, and the home has no later process."""
        return [has(self._live, self._value), has(self._home, self._state)]

    @property
    def reads(self) -> list[dict[str, Any]]:
        """Reads of a transaction, for :meth:`is_held_by`."""
        return [get(self._live), get(self._home)]

    def is_held_by(self, read: Sequence[Found]) -> bool:
        """True where :attr:`is_held` would have held, by the answers to :attr:`reads`."""
        return [value.value for found in read for value in found.values] == [self._value, self._state]

    def require_epoch(self, epoch: int) -> None:
        """End the process if the home has a later epoch."""
        if epoch > self.epoch:
            self._superseded()

    async def bury_workers(self) -> None:
        """Delete the keys of all ended processes of the node, so that nothing waits for the processes."""
        found = await self._etcd.client.folder(f"{self._etcd.keys.live_node(self._etcd.me.node)}/")
        if found.values:
            await self._etcd.client.transaction([], [delete(one.key) for one in found.values])

    async def claim(self) -> None:
        """Start the next epoch of the home: this process is the last started.

        Raises:
            SetBack: etcd has lost the cluster.
            EtcdError: etcd cannot be asked, or another process of the home was faster; to be tried again.
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
        await self._promise.raised(epoch)
        self.epoch, self._state = epoch, state
        self._value = json.dumps({**self._address, "epoch": epoch}).encode()

    def _next(self, found: bytes | None) -> Configuration:
        """Return the state of the home with the next epoch, led by this process."""
        me = self._etcd.me
        replica = f"{me.node}.{me.disk}"
        claimed = Configuration.first(me.member, replica)
        if found is not None:
            before = _parsed(found)
            if before.log == claimed.log and replica in before.electable:
                claimed = before.claimed(replica)
            else:  # of a home of this number that etcd has lost since
                claimed = replace(claimed, v=before.v + 1, epoch=before.epoch + 1)
        return replace(claimed, epoch=max(claimed.epoch, self._promise.kept + 1))

    async def announce(self) -> None:
        """Announce this process again, with a new lease. The process ends instead if its home has a later epoch, or its
        data directory a later start, however long etcd was unreachable.

        Raises:
            SetBack: etcd has lost the cluster.
            EtcdError: etcd cannot be asked.
        """
        client = self._etcd.client
        served, home = await client.get(self._served), await client.get(self._home)
        if self._leads:
            await self._require_led(home)
            await self._put([_same(self._served, served)])
            return
        is_other = served is not None and not self._had(served.value.decode())
        found = None if home is None else _parsed(home.value)
        if is_other or (found is not None and found.epoch > self.epoch):
            await self._give_way()
        if home is not None and found is not None and home.value != self._state:  # of before this process's start
            own = Configuration.from_json(self._state)
            self._state = replace(own, v=max(own.v, found.v) + 1).to_json()
        await self._put([_same(self._served, served), _same(self._home, home)])

    async def _require_led(self, led: Value | None) -> None:
        """Give way where a later epoch of a home with copies was claimed.

        Args:
            led: found in etcd.
        """
        if led is not None and int(led.value) > self.epoch:
            await self._give_way()

    async def _give_way(self) -> None:
        """End the process; does not return."""
        self._superseded()
        await asyncio.Event().wait()

    def _superseded(self) -> None:
        """End the process. Where the home has copies, its replica does, and has the process start again in place: it is
        not the second one of a data directory, and confirms nothing meanwhile.
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
        puts = [put(self._live, self._value, lease), put(self._served, str(self._address["boot"]))]
        if self._leads:
            same = [*same, has(self._home, self._state)]
        else:
            puts.append(put(self._home, self._state))
        done, read = await client.transaction([self._etcd.is_ours, *same], puts, [get(keys.id)])
        if not done:
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
        """Make sure of a lease, without the key of the process, possibly lost with all keys."""
        if not await self.renew():
            self.id = await self._etcd.client.grant(LEASE)

    async def note_in_time(self) -> None:
        """As :meth:`note`, if the last time is long ago."""
        if asyncio.get_running_loop().time() >= self._noted_at + NOTE_INTERVAL:
            await self.note()

    async def note(self) -> None:
        """Record the process's state on disk in etcd, so that an older copy of the data directory is rejected later.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        sight = self._sight()
        if sight == self._noted:
            return
        value = json.dumps({"at": time.time(), "sight": sight})
        note = put(self._etcd.keys.seen(self._etcd.me.process), value)
        if (await self._etcd.client.transaction([self._etcd.is_ours, *self.is_held], [note]))[0]:
            self._noted, self._noted_at = sight, asyncio.get_running_loop().time()

    async def end(self) -> None:
        """Record the state on disk, and end the lease: peers learn at once of the end of this process.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        if self.id:
            await self.note()
            await self._etcd.client.revoke(self.id)


def _same(key: str, found: Value | None) -> dict[str, Any]:
    """Return the comparison for a key unchanged since read."""
    return absent(key) if found is None else has(key, found.value)


def _parsed(state: bytes) -> Configuration:
    """The state of a home in etcd.

    Raises:
        EtcdError: the state has a form unknown to this release.
    """
    try:
        return Configuration.from_json(state)
    except ConfigurationError as error:
        raise EtcdError(f"etcd has a state of this home that cannot be read: {error}") from None


def superseded(etcd: ClusterEtcd) -> str:
    """Return the reason for stopping a process after a later process started with its data directory."""
    return f"another process serves {etcd.me} with its data directory, or a copy of that, and was started later"
