"""Return of a node to its cluster from a different recovery of the cluster.

After etcd has lost a cluster, an operator recovers the cluster from the definitions of one node. After a recovery from
the wrong node, the operator deletes etcd's state, and recovers the cluster from another node. The first node, and all
nodes that followed the first recovery, then have data of a log that no longer exists. Each recovery therefore has an
identity, stored in etcd and in the data directories of all following nodes.

A node of another recovery takes the definitions of the cluster. Before that, the cluster declares the node's missing
queues, with the ids in the node's data directory, so that the queues' messages stay reachable.
"""

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.etcd.client import Etcd, absent, has, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.log.compacting import compact
from jumpmq.nodes.log.shared_log import Record
from jumpmq.nodes.log.snapshots import read_snapshot
from jumpmq.store.kinds import QUEUE, RECOVERY
from jumpmq.topology import DeclareQueue
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.json_form import to_json
from jumpmq.topology.proposals import THE_BROKER
from jumpmq.topology.records import read_queue

log = logging.getLogger(__name__)

PART = 100
"""Number of queues declared per entry of the log."""

NAMED = 5
"""Number of queues named in an error."""


@dataclass(frozen=True, slots=True)
class ClusterRecovery:
    """A recovery of a cluster.

    Attributes:
        id: identity of the recovery.
        before: identity of the recovery that the recovering node followed before; "" for none.
        entry: last entry applied by the recovering node before the recovery.
    """

    id: str
    before: str
    entry: int

    @classmethod
    def read(cls, value: bytes) -> "ClusterRecovery":
        """Return the recovery stored in etcd."""
        found = json.loads(value)
        return cls(found["id"], found["before"], int(found["entry"]))

    def put(self, keys: Keys) -> dict[str, Any]:
        """Return the operation for storing the recovery in etcd."""
        return put(keys.recovery, to_text(self))

    def has_all_of(self, recovery: str, applied: int) -> bool:
        """Return True if this recovery includes all entries of a node.

        Args:
            recovery: recovery followed by the node; "" for none.
            applied: last entry applied by the node.
        """
        return recovery == self.id or (recovery == self.before and applied <= self.entry)


def to_text(recovery: ClusterRecovery) -> str:
    """Return the JSON form of a recovery for etcd."""
    return json.dumps({"id": recovery.id, "before": recovery.before, "entry": recovery.entry})


def kept_recovery(records: list[Record]) -> str:
    """Return the recovery followed by a data directory; "" if no recovery is followed."""
    return next((str(value) for kind, key, value in records if (kind, key) == RECOVERY), "")


def strayed(node: str, cluster: str) -> str:
    """Return the reason for refusing a node that has followed an abandoned recovery of the cluster."""
    return (
        f"{node} has followed a recovery of cluster '{cluster}' that was given up: start the node with "
        "--rejoin-cluster true to take the cluster's definitions; the node's queues stay, with their messages"
    )


async def bring_queues(etcd: Etcd, keys: Keys, home: int, found: list[Record]) -> None:
    """Declare all queues of a home's disk in the cluster, in the snapshot from which the home's node will start.

    Args:
        found: the records in the data directory.

    Raises:
        BrokerError: some queues cannot be declared.
        EtcdError: etcd does not answer; the caller should retry.
    """
    here = [read_queue(value) for kind, _, value in found if kind == QUEUE and value.get("home", 1) == home]
    here = [queue for queue in here if queue.is_kept]
    missing = await _missing(etcd, keys, here)
    for begin in range(0, len(missing), PART):
        await _declare(etcd, keys, home, missing[begin : begin + PART])
    for queue in missing:
        log.warning("queue '%s' in vhost '%s' is declared in the cluster again, without bindings",
                    queue.name, queue.vhost)  # fmt: skip
    # The cluster may refuse an entry when it is applied: only a second look shows that the queues exist.
    if missing and (missing := await _missing(etcd, keys, here)):
        names = ", ".join(f"'{one.name}' in vhost '{one.vhost}'" for one in missing[:NAMED])
        more = f", and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        raise BrokerError(
            f"the cluster cannot declare queues of this node: {names}{more}. Either the cluster has other queues of "
            "these names, or refuses these. Create their virtual hosts in the cluster, delete or move the cluster's "
            "queues of these names, and start again"
        )


async def _missing(etcd: Etcd, keys: Keys, queues: list[QueueDefinition]) -> list[QueueDefinition]:
    """Return the queues that the cluster lacks, or has with other ids."""
    records = await read_snapshot(etcd, keys, await compact(etcd, keys))
    known = {(value["vhost"], value["name"], value["id"]) for kind, _, value in records if kind == QUEUE}
    return [one for one in queues if (one.vhost, one.name, one.id) not in known]


async def _declare(etcd: Etcd, keys: Keys, home: int, queues: Sequence[QueueDefinition]) -> None:
    """Append an entry declaring queues with existing numbers."""
    principal = to_json(THE_BROKER)
    changes = [[DeclareQueue(replace(one, before=0)).to_json(), principal] for one in queues]
    value = json.dumps({"id": uuid.uuid4().hex, "home": home, "changes": changes}, separators=(",", ":"))
    identity = await etcd.get(keys.id)
    assert identity is not None
    while True:
        entry = keys.entry((await compact(etcd, keys)).entry + 1)
        # Other nodes append entries meanwhile: a taken number is tried again with the next one.
        if (await etcd.transaction([absent(entry), has(keys.id, identity.value)], [put(entry, value)]))[0]:
            return
