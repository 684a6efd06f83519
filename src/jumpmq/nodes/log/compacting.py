"""Compaction of a cluster's log, in a separate process: a new snapshot replaces entries.

``python -m jumpmq.nodes.log.compacting`` reads the settings from standard input. It loads the current snapshot, applies
the entries after it, as any node does, and stores the resulting definitions as the new snapshot. A node that lacks
removed entries starts from the snapshot.
"""

import asyncio
import json
import sys
from dataclasses import asdict

from jumpmq._child_processes import run_module
from jumpmq.nodes.etcd.client import Etcd, EtcdError, delete, end_of, has
from jumpmq.nodes.etcd.keys import Keys, number_of
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.log.cluster_log import ClusterLog
from jumpmq.nodes.log.snapshots import SnapshotHead, read_snapshot, write_snapshot
from jumpmq.topology import Topology
from jumpmq.topology.snapshot import records_of

MODULE = "jumpmq.nodes.log.compacting"
"""Module run by the separate process: this module."""

KEPT = 1000
"""Number of entries kept before the snapshot's position, for nodes that were down for a while."""

PART = 500
"""Number of entries read together."""


async def compact(etcd: Etcd, keys: Keys, kept: int = KEPT) -> SnapshotHead:
    """Make a snapshot of the log's current state. Return the snapshot that etcd has afterwards; another node's, if that
    node was faster.

    Raises:
        EtcdError: etcd does not answer, or has no snapshot.
    """
    found = await etcd.get(keys.snapshot_head)
    if found is None:
        raise EtcdError("no snapshot to begin with")
    before = SnapshotHead.read(found.value)
    topology = Topology("", home=0, shared=True)
    topology.restore(await read_snapshot(etcd, keys, before))
    log = ClusterLog(topology, 0, "", lambda: ())
    topology.order_by(log)
    while True:
        entries = (await etcd.range(keys.entry(log.entry + 1), end_of(keys.log), PART)).values
        if entries and number_of(entries[0].key) > log.entry + 1:  # another node was faster
            return await compact(etcd, keys, kept)
        for entry in entries:
            log.receive(number_of(entry.key), json.loads(entry.value))
        if len(entries) < PART:
            break
    if log.entry == before.entry:
        return before
    floor = max(before.floor, log.entry + 1 - kept)
    head = await write_snapshot(etcd, keys, log.entry, floor, records_of(topology))
    replace = [
        head.put(keys),
        delete(keys.log, keys.entry(floor)),
        delete(keys.snapshots, keys.snapshot(head.folder)),  # also the rest of an interrupted compaction
    ]
    # One transaction: a node that reads meanwhile finds a snapshot with all entries behind it.
    done, _ = await etcd.transaction([has(keys.snapshot_head, found.value)], replace)
    if done:
        return head
    folder = keys.snapshot(head.folder)  # another node was faster
    await etcd.transaction([], [delete(folder, end_of(folder))])
    return await compact(etcd, keys, kept)


async def compact_aside(settings: EtcdSettings) -> None:
    """Compact the log in a separate process.

    Raises:
        EtcdError: the compaction failed.
    """
    status, errors = await run_module(MODULE, json.dumps(asdict(settings)).encode())
    if status:
        raise EtcdError(f"the log was not compacted: {errors.decode(errors='replace').strip()[-500:]}")


async def _main() -> None:
    settings = EtcdSettings(**json.load(sys.stdin))
    etcd = settings.client()
    try:
        await compact(etcd, Keys(settings.cluster))
    finally:
        await etcd.close()


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except EtcdError as error:
        sys.exit(str(error))
