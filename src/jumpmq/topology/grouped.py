"""Tables of groups, such as queues by owning connection."""

from typing import Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")


def discard(groups: dict[K, dict[T, Any]], group: K, item: T) -> None:
    """Remove an item from its group, and the group when empty."""
    del groups[group][item]
    if not groups[group]:
        del groups[group]
    if not groups:  # an emptied table would keep its size
        groups.clear()
