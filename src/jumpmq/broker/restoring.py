"""Contents of queues, restored from the records and messages that the store has kept."""

from typing import Any

from jumpmq.broker.opening import Record
from jumpmq.queues import Queue, group_offsets, resting
from jumpmq.queues.base import ENTERED
from jumpmq.queues.epochs import CEILING
from jumpmq.queues.priorities import PRIORITIES
from jumpmq.store import Batch, Store
from jumpmq.store.definitions import BEHIND, numbered
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import Topology


def queues_of(topology: Topology) -> list[Queue]:
    """Return all contents of queues, including queues under migration."""
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
    next_seqs = {key: value for kind, key, value in definitions if kind == "sequence"}
    delivered = {key: value for kind, key, value in definitions if kind == "delivered"}
    with_priorities = {key for kind, key, _ in definitions if kind == PRIORITIES}
    attempts: dict[int, dict[int, int]] = {}
    for kind, key, value in definitions:
        if kind == "attempts":
            queue_id, seq = map(int, key.split())
            attempts.setdefault(queue_id, {})[seq] = value
    offsets: dict[int, dict[str, Any]] = {}
    for kind, key, value in definitions:
        if kind == group_offsets.KIND:
            queue_number, _, group = key.partition(" ")
            offsets.setdefault(int(queue_number), {})[group] = value
    topology.epochs.restore(max((value for kind, _, value in definitions if kind == CEILING), default=0))
    retries: dict[int, dict[int, list[Any]]] = {}
    for kind, key, value in definitions:
        if kind == resting.KIND:
            queue_id, seq = map(int, key.split())
            retries.setdefault(queue_id, {})[seq] = value
    entered = {key: value for kind, key, value in definitions if kind == ENTERED}
    topology.fences.restore(definitions)
    for queue in queues_of(topology):
        if queue.append_only and (offset := entered.get(str(queue.id))) is not None:
            queue.restore_entered(offset)
        delivered_seq = delivered.get(str(queue.id), 0) if store.clean else None
        next_seq = next_seqs.get(str(queue.id), 1)
        if str(queue.id) in with_priorities:
            queue.expect_priorities()
        if queue.id in retries:
            queue.restore_retries(retries[queue.id])
        queue.restore(batches.get(queue.id, []), next_seq, delivered_seq, attempts.get(queue.id, {}))
        if queue.offsets is not None:
            queue.restore_offsets(offsets.get(queue.id, {}), clean=store.clean)
    topology.fences.count_restored()
    known = {queue.id for queue in queues_of(topology)}
    for number, lost in batches.items():
        if number not in known:
            count = sum(batch.remaining for batch in lost)
            store.losses.add(f"the definition of {numbered(number)} is lost, and with it {count} messages")
    if store.whole:  # else one of them may be a stream whose definition was lost
        streams.set_unclaimed_aside()
