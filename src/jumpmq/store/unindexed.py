"""Changes of the log behind the last update of the index, and the next update.

A leader gathers them from its commits, a start and a follower from the log.
"""

from jumpmq.store.batch import Batch
from jumpmq.store.changes import Definitions
from jumpmq.store.index import Update, places_of, summary_of
from jumpmq.store.log import OFFSET_BITS


class Unindexed:
    """Changes not in the index, nor in an update that is to be written.

    Attributes:
        definitions: what was declared and deleted.
        new: batches with blocks that the index does not have.
        changed: batches of which more is settled.
        gone: ids of batches of which nothing is left.
        open: batches that the log may go on with, where it was not read to its end. The index has them even when
            nothing is left of them, so that what follows is known to be theirs.
    """

    def __init__(self) -> None:
        self.definitions = Definitions()
        self.new: dict[Batch, None] = {}
        self.changed: dict[Batch, None] = {}
        self.gone: list[int] = []
        self.open: set[Batch] = set()

    def forget(self, batch: Batch) -> None:
        """Nothing of a batch is left, which the index may not know."""
        self.new.pop(batch, None)
        self.changed.pop(batch, None)
        self.gone.append(batch.id)

    def take(self, segment: int, commit: int = 0) -> Update:
        """Return the update that covers the log before a segment; what belongs to later segments stays.

        Args:
            commit: the number of the commit that marks a stop as clean, else 0.
        """
        limit = segment << OFFSET_BITS
        new, changed = self.new, self.changed
        self.new = {batch: None for batch in new if batch.id >= limit}
        self.changed = {batch: None for batch in changed if batch.id >= limit}
        left = {batch for batch in new | changed if batch.id < limit and (batch.remaining or batch in self.open)}
        batches = [(summary_of(batch), places_of(batch)) for batch in new if batch in left]
        settled = [  # of new ones too: some of it may have been left out before they were written
            (batch.id, batch.settled.encode())
            for batch in new | changed
            if batch in left and (batch in changed or batch.settled.count)
        ]
        # What is settled whole, though not committed yet, will be by the time this is written.
        self.gone += [batch.id for batch in new | changed if batch.id < limit and batch not in left]
        update = Update(segment, commit, self.definitions, batches, settled, self.gone)
        self.definitions, self.gone = Definitions(), []
        return update
