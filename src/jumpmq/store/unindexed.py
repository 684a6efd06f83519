"""Changes of the log since the last update of the index, and the next update.

A leading or single process collects the changes from its commits; a start and a follower read them from the log.
"""

from jumpmq.store.batch import Batch
from jumpmq.store.changes import Definitions
from jumpmq.store.index import Update, places_of, summary_of
from jumpmq.store.log import OFFSET_BITS


class Unindexed:
    """Changes that are neither in the index nor in a pending update.

    Attributes:
        definitions: changes of definitions.
        new: batches with new blocks.
        changed: batches with new settlements.
        gone: ids of batches without unsettled messages.
        ended: batches without unsettled messages, with blocks in several segments. The index keeps a batch whose last
            block is in the log that a start reads: a start would otherwise assign the block to an earlier batch of the
            queue, and its settlements to messages of that batch.
        open: batches that may continue in an unread part of the log. The index keeps these batches even without
            unsettled messages, so that later blocks can be assigned to them.
    """

    def __init__(self) -> None:
        self.definitions = Definitions()
        self.new: dict[Batch, None] = {}
        self.changed: dict[Batch, None] = {}
        self.gone: list[int] = []
        self.ended: set[Batch] = set()
        self.open: set[Batch] = set()

    def forget(self, batch: Batch) -> None:
        """Record that a batch has no unsettled messages, or was dropped."""
        self.new.pop(batch, None)
        self.changed.pop(batch, None)
        if batch.positions and batch.id >> OFFSET_BITS < batch.positions[-1] >> OFFSET_BITS:
            self.ended.add(batch)
        else:
            self.gone.append(batch.id)

    def take(self, segment: int, commit: int = 0) -> Update:
        """Return the update that covers the log before a segment. Changes of later segments stay for the next update.

        Args:
            commit: number of the commit that marks a stop as clean; else 0.
        """
        limit = segment << OFFSET_BITS
        new, changed = self.new, self.changed
        self.new = {batch: None for batch in new if batch.id >= limit}
        self.changed = {batch: None for batch in changed if batch.id >= limit}
        ended, self.ended = self.ended, {batch for batch in self.ended if _continues(batch, limit)}
        self.gone += [batch.id for batch in ended - self.ended]
        new, changed = new | dict.fromkeys(self.ended), changed | dict.fromkeys(self.ended)
        left = {
            batch
            for batch in new | changed
            if batch.id < limit and (batch.remaining or batch in self.open or _continues(batch, limit))
        }
        batches = [(summary_of(batch), places_of(batch)) for batch in new if batch in left]
        settled = [  # new batches included: messages settled before the write were left out of the log
            (batch.id, batch.settled.encode())
            for batch in new | changed
            if batch in left and (batch in changed or batch.settled.count)
        ]
        # Uncommitted settlements are included: they will be committed before the update is written.
        self.gone += [batch.id for batch in new | changed if batch.id < limit and batch not in left]
        update = Update(segment, commit, self.definitions, batches, settled, self.gone)
        self.definitions, self.gone = Definitions(), []
        return update


def _continues(batch: Batch, limit: int) -> bool:
    """Return True if a batch began before a position, and has a block behind it."""
    return bool(batch.positions) and batch.id < limit <= batch.positions[-1]
