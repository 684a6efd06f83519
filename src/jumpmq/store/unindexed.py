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
        open: batches that may continue in an unread part of the log. The index keeps these batches even without
            unsettled messages, so that later blocks can be assigned to them.
    """

    def __init__(self) -> None:
        self.definitions = Definitions()
        self.new: dict[Batch, None] = {}
        self.changed: dict[Batch, None] = {}
        self.gone: list[int] = []
        self.open: set[Batch] = set()

    def forget(self, batch: Batch) -> None:
        """Record that a batch has no unsettled messages, or was dropped."""
        self.new.pop(batch, None)
        self.changed.pop(batch, None)
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
        left = {batch for batch in new | changed if batch.id < limit and (batch.remaining or batch in self.open)}
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
