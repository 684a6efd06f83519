"""Short garbage collections.

Python's collector begins one when two thousand more objects were made than went. Where a list of ten thousand queues is
made again while the one before goes, that never comes, and the young, which it is to look through, become tens of
thousands: then a single object more, and all else waits for 30 ms.
"""

import gc

MOST_YOUNG = 4_000
"""Maximum number of objects found by a collection, a matter of a millisecond or two."""

MADE_IN_A_SLICE = 1_000
"""Objects that a slice adds to the young generation, at a rough guess. Counting makes a list of the objects: at least
10 us for 2,000. Counts after every slice had 4 to 6 % of a profile's samples while batches were published.
"""


class YoungGeneration:
    """The objects of the process that no garbage collection has seen."""

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
"""Of this process."""
