"""Joining or rejoining of a node to its cluster, before any definitions are loaded.

The data directory has the node's identity (:class:`Membership`), which is synced before it is sent to etcd. After a
kill at any point of the join, the next start continues at this point. After a refusal, the data directory can still be
served without a cluster. Joining never deletes data: a data directory of another cluster or node is refused.
"""

import json
import logging
import secrets
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from jumpmq.broker.bulk.starts import OlderDirectory, Starts
from jumpmq.broker.errors import BrokerError, HomeLeft
from jumpmq.nodes.etcd.client import Etcd, EtcdError, Value, absent, delete, end_of, has, put
from jumpmq.nodes.etcd.keys import FORMAT, Keys
from jumpmq.nodes.joining.rejoining import ClusterRecovery, bring_queues, kept_recovery, strayed
from jumpmq.nodes.log.cluster_log import PLACE_BITS, forgotten
from jumpmq.nodes.log.shared_log import Record
from jumpmq.nodes.log.snapshots import SnapshotHead, read_snapshot, write_snapshot
from jumpmq.store import Store
from jumpmq.store.kinds import APPLIED, HOME, LEFT, MEMBERSHIP, QUEUE, RECOVERY, RETURNING
from jumpmq.topology import Topology
from jumpmq.topology.records import SHARED
from jumpmq.topology.snapshot import records_of

log = logging.getLogger(__name__)

AHEAD = 1_000_000
"""Number of entries between the last entry of the recovering node and the first entry of the recovered log. No other
node can have applied more entries.
"""

DEFINITIONS = "vhost", "user", "exchange", "queue", "binding", "policy", "home"
"""Kinds of records that a never used data directory lacks."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Identity of a node.

    Attributes:
        cluster: name of the cluster.
        id: identity of the cluster.
        node: name of the node.
        member: identity of the data directory.
        home: number of the process's home; 0 before the assignment.
        worker: number of the process among the node's processes.
    """

    cluster: str
    id: str
    node: str
    member: str
    home: int = 0
    worker: int = 1

    @property
    def process(self) -> str:
        """Name of the process in etcd."""
        return self.node if self.worker == 1 else f"{self.node}/{self.worker}"

    @property
    def disk(self) -> str:
        """Identity in etcd of the disk of a home that never had copies."""
        return self.member[:8]

    def __str__(self) -> str:
        return f"node '{self.node}'" if self.worker == 1 else f"worker {self.worker} of node '{self.node}'"


@dataclass(frozen=True, slots=True)
class NodeStart:
    """Initial state of a node.

    Attributes:
        membership: the membership, with a home.
        secret: the secret of the links.
        definitions: all records, including the home's own.
    """

    membership: Membership
    secret: str
    definitions: list[Record]


def kept_membership(records: list[Record]) -> Membership | None:
    """Return the membership of the node recorded in a data directory; None outside a cluster."""
    return next((Membership(**value) for kind, key, value in records if (kind, key) == MEMBERSHIP), None)


class ClusterJoining:
    """The join of a process to its cluster.

    Args:
        store: the store of the data directory.
        on_disk: waits until all changes of the store are on disk.
        first_definitions: makes the definitions of a new cluster from those of the data directory.
        recovers: True to make a cluster that etcd has lost anew, with this node's definitions.
        rejoins: True to replace the definitions of a node that has followed another recovery of the cluster.
        takes_older: True to accept a data directory older than the one recorded in etcd.
        waits: True if this process waits after a reset of etcd, because other workers of the node serve.
    """

    def __init__(
        self,
        etcd: Etcd,
        keys: Keys,
        store: Store,
        on_disk: Callable[[], Awaitable[None]],
        first_definitions: Callable[[list[Record]], list[Record]],
        recovers: bool = False,
        rejoins: bool = False,
        takes_older: bool = False,
        waits: bool = False,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._store = store
        self._on_disk = on_disk
        self._first_definitions = first_definitions
        self._refused = EtcdError if waits else BrokerError  # raised if etcd lacks definitions of this process
        self._rejoins = rejoins
        self._takes_older = takes_older
        self._recovers = recovers
        self._me: Membership | None = None  # the membership; etcd may have it even after a failed attempt

    async def join(self, found: list[Record], node: str | None, default_node: str, worker: int = 1) -> NodeStart:
        """Join the cluster.

        Args:
            found: the records in the data directory.
            node: the name in the settings; None for the name in the data directory, or else ``default_node``.
            worker: number of the process, if it is not a member yet.

        Raises:
            BrokerError: this node cannot be a member.
            HomeLeft: the home was removed; its queues are at other workers.
            EtcdError: etcd does not answer; the caller should retry.
        """
        me = self._me or kept_membership(found)
        if me is not None and any((kind, key) == LEFT for kind, key, _ in found):
            await resign(self._etcd, self._keys, me)
            raise HomeLeft(f"{me} was removed: its queues are at other workers")
        if me is None or (self._is_otherwise(me, node) and not await self._is_member(me)):
            name, other = node or default_node, uuid.uuid4().hex
            me = Membership(self._keys.cluster, uuid.uuid4().hex, name, other, worker=worker)
        self._me = me
        self._bind(me.id)
        if me.cluster != self._keys.cluster:
            raise BrokerError(f"the data directory belongs to cluster '{me.cluster}', not '{self._keys.cluster}'")
        if node is not None and node != me.node:
            raise BrokerError(f"the data directory belongs to node '{me.node}', not '{node}'")
        has_none = not any(kind in DEFINITIONS for kind, _, _ in found)
        applied = applied_entry(found)
        if self._recovers:
            await recover_cluster(self._etcd, self._keys, me, found)
        identity = await self._created(me, applied, found)
        self._bind(identity)
        me = self._of_cluster(me, identity, has_none)
        await self._check_format()
        recovery = await self._recovery()
        is_stray = bool(me.home and recovery and not recovery.has_all_of(kept_recovery(found), applied))
        if is_stray:
            await self._rejoin(me, recovery, applied, found)
        head = await self._head()
        if not is_stray and applied > head.entry and await self._etcd.get(self._keys.entry(applied)) is None:
            raise self._refused(set_back(me.cluster, applied))
        await self._require_all(self._keys.lost_of(me.id))
        await self._require_newest(me, found)
        is_new = not me.home
        me = await self._with_home(me, applied, is_stray=is_stray)
        # The store gets definitions only after etcd's last answer: until then, the join may have to be repeated.
        secret = await self._etcd.get(self._keys.secret)
        assert secret is not None
        if has_none or is_stray or applied < head.floor - 1:
            found = self._replaced(found, await read_snapshot(self._etcd, self._keys, head), me)
        elif not any(kind == APPLIED for kind, _, _ in found):  # the cluster began with this node's definitions
            self._store.put(APPLIED, "", 0)
            found = [*found, (APPLIED, "", 0)]
        if recovery is not None:
            self._store.put(*RECOVERY, recovery.id)
        if is_new:
            self._store.put(*RETURNING, True)
            found = [*found, (*RETURNING, True)]
        await self._keep(me)
        return NodeStart(me, secret.value.decode(), found)

    async def _recovery(self) -> ClusterRecovery | None:
        """Return the recovery followed by the cluster, if the cluster was recovered."""
        found = await self._etcd.get(self._keys.recovery)
        return None if found is None else ClusterRecovery.read(found.value)

    async def _rejoin(
        self, me: Membership, recovery: ClusterRecovery | None, applied: int, found: list[Record]
    ) -> None:
        """Declare the queues of a node whose data was not part of the cluster's recovery.

        Raises:
            BrokerError: the settings do not allow the rejoining, or a queue cannot be declared.
        """
        assert recovery is not None
        if not self._rejoins:
            begin = recovery.entry + AHEAD
            more = reason_to_refuse(me, applied, begin) if kept_recovery(found) == recovery.before else None
            raise BrokerError(more or strayed(str(me), me.cluster))
        await bring_queues(self._etcd, self._keys, me.home, found)
        log.warning("%s takes the definitions of cluster '%s' in place of its own", me, me.cluster)

    def _bind(self, identity: str) -> None:
        """Seal values from now on as values of the cluster with this identity."""
        if self._etcd.seal is not None:
            self._etcd.seal.identity = identity

    def _is_otherwise(self, me: Membership, node: str | None) -> bool:
        """Return True if an earlier start got no home, and had another cluster or node name."""
        return not me.home and (me.cluster != self._keys.cluster or node not in (None, me.node))

    async def _is_member(self, me: Membership) -> bool:
        """Return True if etcd already has the node, because an earlier answer of etcd was lost or not stored."""
        member = await self._etcd.get(Keys(me.cluster).member(me.process))
        return member is not None and json.loads(member.value)["member"] == me.member

    async def _keep(self, me: Membership) -> None:
        kept = asdict(me)
        if me.worker == 1:
            del kept["worker"]  # earlier releases do not know the field
        self._store.put(*MEMBERSHIP, kept)
        await self._on_disk()

    async def _created(self, me: Membership, applied: int, found: list[Record]) -> str:
        """Return the cluster's identity; create the cluster if it does not exist.

        Raises:
            BrokerError: the cluster existed, but etcd has lost it.
        """
        while (identity := await self._etcd.get(self._keys.id)) is None:
            if me.home or me.worker > 1:
                raise self._refused(f"{set_back(me.cluster, 0)}; the last entry of the log here is {applied}")
            await self._require_all(self._keys.lost)  # before the write, because failed starts are repeated often
            records = self._first_definitions(found)
            head = await write_snapshot(self._etcd, self._keys, 0, 1, records)
            begins = [
                put(self._keys.format, FORMAT),
                put(self._keys.id, me.id),
                put(self._keys.secret, secrets.token_hex(32)),
                put(self._keys.homes, "1"),
                put(self._keys.member(me.process), member_value(1, me)),
                head.put(self._keys),
            ]
            await self._keep(me)
            new = [absent(self._keys.id), absent(self._keys.lost, end_of(self._keys.lost))]
            if (await self._etcd.transaction(new, begins))[0]:
                log.info("cluster '%s' was made", me.cluster)
        return identity.value.decode()

    async def _require_all(self, lost: str) -> None:
        """
        Raises:
            EtcdError: running nodes report entries missing in etcd; the caller should retry later.
        """
        for one in (await self._etcd.folder(lost)).values:
            node = one.key.removeprefix(self._keys.lost).partition("/")[2]
            raise EtcdError(set_back(self._keys.cluster, int(json.loads(one.value)["entry"]), f"node '{node}'"))

    async def _require_newest(self, me: Membership, found: list[Record]) -> None:
        """Refuse a data directory older than the state recorded in etcd; with ``takes_older``, record the loss instead.

        Raises:
            BrokerError: the directory is older.
        """
        value = await self._etcd.get(self._keys.seen(me.process))
        if value is None or not me.home:
            return
        seen = json.loads(value.value)
        try:
            Starts.until_now(self._store, found).require_seen(seen["sight"])
        except OlderDirectory:
            at = datetime.fromtimestamp(seen["at"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            lacks = (
                f"the data directory of {me} lacks data recorded at {at}: the directory is an older copy, or the end "
                "of its log is missing. Messages published since then are missing, and messages acknowledged since "
                "then come again"
            )
            if not self._takes_older:
                raise BrokerError(
                    f"{lacks}: start with the newest directory or, if it is lost, with --accept-older-data true"
                ) from None
            self._store.losses.add(lacks)
            self._store.keep_losses()

    def _of_cluster(self, me: Membership, identity: str, has_none: bool) -> Membership:
        if me.id == identity:
            return me
        if not has_none:
            raise BrokerError(
                f"the data directory has definitions that do not belong to cluster '{me.cluster}' in etcd: "
                "a node joins with an empty directory"
            )
        return replace(me, id=identity, home=0)

    async def _check_format(self) -> None:
        if (problem := other_format(await self._etcd.get(self._keys.format))) is not None:
            raise BrokerError(problem)

    async def _with_home(self, me: Membership, applied: int, *, is_stray: bool) -> Membership:
        """Return the membership with a home number, assigned unless already known.

        Args:
            is_stray: True if the node has followed another recovery of the cluster.

        Raises:
            BrokerError: the cluster was recovered from a node with fewer entries than this node has.
        """
        recovered = await self._etcd.get(self._keys.recovered)
        if recovered is not None and me.home and (is_stray or applied < (begin := int(recovered.value))):
            if not is_stray and (more := reason_to_refuse(me, applied, begin)) is not None:
                raise BrokerError(more)
            name = self._keys.member(me.process)  # etcd has lost the list of members
            await self._etcd.transaction([absent(name)], [put(name, member_value(me.home, me))])
        while True:
            member = await self._etcd.get(self._keys.member(me.process))
            if member is not None:
                value = json.loads(member.value)
                if value["member"] != me.member:
                    raise BrokerError(f"the cluster has a {me} with another data directory: {_advice(me)}")
                return replace(me, home=int(value["home"]))
            if me.home:
                raise BrokerError(forgotten(str(me)))
            homes = await self._etcd.get(self._keys.homes)
            assert homes is not None
            home = int(homes.value) + 1
            await self._keep(me)
            await self._etcd.transaction(
                [has(self._keys.homes, homes.value), absent(self._keys.member(me.process))],
                [put(self._keys.homes, str(home)), put(self._keys.member(me.process), member_value(home, me))],
            )

    async def _head(self) -> SnapshotHead:
        head = await self._etcd.get(self._keys.snapshot_head)
        assert head is not None
        return SnapshotHead.read(head.value)

    def _replaced(self, found: list[Record], given: list[Record], me: Membership) -> list[Record]:
        """Return a node's records, with the definitions replaced by the cluster's. Used for a node without definitions,
        and after an absence longer than the log reaches back. The messages of the node's queues stay, except those of
        queues deleted during the absence.

        Raises:
            BrokerError: the node was removed from the cluster.
        """
        home = next((value for kind, key, value in given if (kind, key) == (HOME, str(me.home))), None)
        if home is not None and home.get("forgotten"):
            raise BrokerError(forgotten(str(me)))
        there = {value["id"] for kind, _, value in given if kind == QUEUE}
        kept = []
        for kind, key, value in found:
            if kind not in SHARED:
                kept.append((kind, key, value))
            else:
                self._store.delete(kind, key)  # also definitions that return below, possibly at another position
            if kind == QUEUE and value["id"] not in there and value.get("home", 1) == me.home:
                log.warning(
                    "queue '%s' in vhost '%s' was deleted while this node was away", value["name"], value["vhost"]
                )
                self._store.drop_queue(value["id"])
        for kind, key, value in given:
            self._store.put(kind, key, value)
        return [*kept, *given]


def applied_entry(found: list[Record]) -> int:
    """Return the last entry of the cluster's log that a data directory has applied."""
    return next((value >> PLACE_BITS for kind, _, value in found if kind == APPLIED), 0)


async def recover_cluster(etcd: Etcd, keys: Keys, me: Membership, found: list[Record]) -> None:
    """Recover a cluster that etcd has lost, from this node's definitions. The new log starts far behind the last entry
    applied by any node, so that all nodes start from the snapshot.

    Raises:
        BrokerError: the node was not a member.
        EtcdError: etcd does not answer; the caller should retry.
    """
    if await etcd.get(keys.id) is not None:
        log.info("etcd has cluster '%s': nothing to recover", me.cluster)
        return
    if not me.home:
        raise BrokerError(f"the data directory does not belong to a node of cluster '{me.cluster}': nothing to recover")
    applied = applied_entry(found)
    entry = applied + AHEAD
    topology = Topology("", home=0, shared=True)
    topology.restore(found)
    topology.applied = entry << PLACE_BITS
    homes = max(me.home, *topology.homes, *topology.forgotten)
    head = await write_snapshot(etcd, keys, entry, entry, records_of(topology))
    begins = [
        put(keys.format, FORMAT),
        put(keys.id, me.id),
        put(keys.secret, secrets.token_hex(32)),
        put(keys.homes, str(homes)),
        put(keys.member(me.process), member_value(me.home, me)),
        put(keys.recovered, str(entry)),
        ClusterRecovery(uuid.uuid4().hex, kept_recovery(found), applied).put(keys),
        put(keys.entry(entry), json.dumps({"id": uuid.uuid4().hex, "home": me.home, "changes": []})),
        head.put(keys),
        delete(keys.lost, end_of(keys.lost)),
    ]
    if (await etcd.transaction([absent(keys.id)], begins))[0]:
        log.warning("cluster '%s' was recovered from the definitions of node '%s', up to entry %d of the log",
                    me.cluster, me.node, applied)  # fmt: skip


class SetBack(EtcdError):
    """etcd lacks entries that the node has applied."""


def set_back(cluster: str, entry: int, node: str = "this node") -> str:
    """Return the reason for refusing changes of definitions, and starts of nodes, while a node has more entries than
    etcd.
    """
    missing = f"entry {entry} of the log of cluster '{cluster}'" if entry else f"cluster '{cluster}'"
    return f"etcd lacks {missing}, which {node} has: etcd was restored to an older state, or has lost its data"


def reason_to_refuse(me: Membership, entry: int, recovered: int) -> str | None:
    """Return the reason why a node cannot follow a cluster that was recovered from fewer entries than the node has;
    None if the node can follow.

    Args:
        entry: the node's last entry.
        recovered: the first entry of the recovered log.
    """
    if not recovered - AHEAD < entry < recovered:
        return None
    return (
        f"cluster '{me.cluster}' was recovered from entry {recovered - AHEAD} of its log, and this node has "
        f"entry {entry}: recover the cluster from this node, or start this node with --rejoin-cluster true to take the "
        "cluster's definitions; the node's queues stay, with their messages"
    )


def other_format(found: Value | None) -> str | None:
    """Return the error for a log in a format unknown to this release; None for the known format.

    Args:
        found: the format in etcd.
    """
    said = "none" if found is None else found.value.decode()[:20]
    return None if said == FORMAT else f"the cluster's log is of format {said}, and this release knows format {FORMAT}"


async def resign(etcd: Etcd, keys: Keys, me: Membership) -> None:
    """Remove the membership of a process whose home was removed from etcd.

    Raises:
        EtcdError: etcd does not answer; the caller should retry.
    """
    member = await etcd.get(keys.member(me.process))
    if member is not None and json.loads(member.value)["member"] == me.member:
        gone = [keys.member(me.process), keys.seen(me.process), keys.served(me.process), keys.home(me.home)]
        gone += [keys.led(me.home), keys.wanted(me.home)]
        await etcd.transaction([has(keys.member(me.process), member.value)], [delete(key) for key in gone])


def _advice(me: Membership) -> str:
    if me.worker == 1:
        return "give this node another name with --node"
    return (
        "if that directory is lost, delete this one, start the node with fewer workers, drain the node, stop it, and "
        "forget it; then the node joins again with an empty directory"
    )


def member_value(home: int, me: Membership) -> str:
    """Return the value of a member in etcd."""
    return json.dumps({"home": home, "member": me.member})
