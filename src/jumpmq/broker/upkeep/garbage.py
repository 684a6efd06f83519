"""Short garbage collections.

Python's collector begins one when two thousand more objects were made than went. Where a list of ten thousand queues is
made again while the one before goes, that never comes, and the young, which it is to look through, become tens of
thousands: then a single object more, and all else waits for 30 ms.
"""

import gc

MOST_YOUNG = 4_000
"""Maximum number of objects found by a collection, a matter of a millisecond or two."""


def limit_young_generation() -> None:
    """Collect many young objects; to be called at the end of every slice of long work."""
    if len(gc.get_objects(generation=0)) > MOST_YOUNG:
        gc.collect(1)
