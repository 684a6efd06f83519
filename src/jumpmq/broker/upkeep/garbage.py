"""Short garbage collections.

Python begins a collection when the number of new objects exceeds the number of freed objects by two thousand. If a list
of ten thousand queues is made again while the previous list is freed, this condition does not occur, and the young
generation grows to tens of thousands of objects: the collection after one further object then stops all other work for
30 ms.
"""

import gc

MOST_YOUNG = 4_000
"""Maximum number of objects for a collection, which takes one or two milliseconds."""

MADE_IN_A_SLICE = 1_000
"""Estimated number of objects that a time slice adds to the young generation. Counting makes a list of the objects: at
least 10 us for 2,000. Counts after every slice had 4 to 6 % of a profile's samples while batches were published.
"""


class YoungGeneration:
    """The objects of the process since the last garbage collection."""

    def __init__(self) -> None:
        self._uncounted = 0  # slices before the next count

    def limit(self) -> None:
        """Collect many young objects; to be called at the end of every slice of long work."""
        if self._uncounted:
            self._uncounted -= 1
            return
        young = len(gc.get_objects(generation=0))
        if young > MOST_YOUNG:
            gc.collect(1)
            young = 0
        self._uncounted = (MOST_YOUNG - young) // MADE_IN_A_SLICE


young_generation = YoungGeneration()
"""The young generation of this process."""
