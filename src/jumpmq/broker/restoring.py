"""Restores the contents of queues from the records and messages kept by the store."""

from jumpmq.broker.opening import Record
from jumpmq.queues import Queue
from jumpmq.queues.records import QueueRecords, owner_epoch, records_of_queues
from jumpmq.store import Batch, Store
from jumpmq.store.definitions import BEHIND, numbered
from jumpmq.store.kinds import ATTEMPTS, RETRY
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import Topology


def queues_of(topology: Topology) -> list[Queue]:
    """Return all contents of queues, including moving queues."""
    hosts = topology.vhosts.values()
    found = [queue for host in hosts for one in (host.queues, host.departed) for queue in one.values()]
    return [*found, *(queue.behind for queue in found if queue.behind is not None)]


def restore_contents(
    topology: Topology,
    store: Store,
    streams: StreamFiles,
    definitions: list[Record],
    batches: dict[int, list[Batch]],
) -> None:
    """Restore the contents of queues with restored definitions.

    Args:
        batches: kept messages, by the number of their queue.
    """
    for queue in queues_of(topology):
        waits = not queue.id & BEHIND and queue.id | BEHIND in batches
        if waits and queue.behind is None:  # all has come from where it was, and this had not entered yet
            definition = topology.vhosts[queue.vhost].definition(queue)
            queue.put_behind(topology.make_behind(definition, queue.id))
    records = records_of_queues(definitions, clean=store.clean)
    topology.epochs.restore(owner_epoch(definitions))
    topology.fences.restore(definitions)
    for queue in queues_of(topology):
        queue.restore(batches.get(queue.id, []), records.get(queue.id, QueueRecords(store.clean)))
    topology.fences.count_restored()
    known = {queue.id for queue in queues_of(topology)}
    for number, lost in batches.items():
        if number not in known:
            count = sum(batch.remaining for batch in lost)
            store.losses.add(f"the definition of {numbered(number)} is lost, and with it {count} messages")
    for number in records.keys() - known - batches.keys():  # a kill interrupted its deletion
        for kind, seqs in ((RETRY, records[number].retries), (ATTEMPTS, records[number].attempts)):
            for seq in seqs:
                store.delete(kind, f"{number} {seq}")
    store.streams_opened()
    if store.whole:  # else one of them may be a stream whose definition was lost
        streams.set_unclaimed_aside()
