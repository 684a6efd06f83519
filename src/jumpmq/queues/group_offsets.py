"""Offsets of consumer groups in a stream: settled, held and next messages.

A group's *offset* is its lowest unsettled offset. The process knows which later messages are settled; the store has
only the offset, and the end of the delivered messages::

    settled | held, or to come again | settled | held | not delivered yet
            ^ offset                                  ^ next
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import count

from jumpmq.queues.consumer import SubscribedGroup

HIGHEST_NUMBER = 65535
"""Largest group number, stored in 16 bits of a message."""

WRITE_INTERVAL = 1.0
"""Maximum seconds before changed offsets are given to the store, for all streams together."""

MAX_GROUPS = 1000
"""Maximum number of groups with an offset per stream; offsets stay until deleted."""


class GroupOffset:
    """Offset of a group in a stream.

    Attributes:
        group: name of the group.
        number: number in the group's deliveries; replaced when the offset is set, so that earlier deliveries no longer
            count.
        next: offset after the last delivered message.
        delivered: messages below this offset may have been delivered before.
        skipped: number of messages lost before the group received them.
    """

    __slots__ = ("_back", "_open", "delivered", "group", "next", "number", "skipped")

    def __init__(self, group: str, number: int, offset: int, delivered: int = 0, skipped: int = 0) -> None:
        self.group = group
        self.number = number
        self.next = offset
        self.delivered = delivered
        self.skipped = skipped
        # Delivered, unsettled offsets, ascending; True for an offset that has to be delivered again.
        self._open: OrderedDict[int, bool] = OrderedDict()
        # Offsets that have to be delivered again, ascending.
        self._back: list[int] = []

    @property
    def offset(self) -> int:
        """The lowest unsettled offset."""
        return next(iter(self._open), self.next)

    @property
    def unacknowledged(self) -> int:
        """Number of unsettled messages held by members."""
        return len(self._open) - len(self._back)

    def ready(self, end: int) -> int:
        """Return the number of messages not held by members.

        Args:
            end: end of the stream.
        """
        return len(self._back) + max(0, end - self.next)

    def wanted(self, most: int) -> tuple[int, int]:
        """Return the first offset to deliver, and the count from there, at most ``most``; redeliveries come first."""
        back = self._back
        if not back:
            return self.next, most
        length = 1
        while length < min(most, len(back)) and back[length] == back[0] + length:
            length += 1
        return back[0], length

    def take(self, first: int, length: int) -> int:
        """Assign wanted messages to a member; return the number of first ones that may have been delivered before."""
        again = min(max(self.delivered - first, 0), length)
        end = first + length
        if self._back:
            del self._back[:length]
        else:
            self.next = end
        self._open.update(dict.fromkeys(range(first, end), False))
        self.delivered = max(self.delivered, end)
        return again

    def settle(self, offsets: Iterable[int], *, back: bool) -> None:
        """Settle messages of members, or (``back``) schedule them for redelivery."""
        opened = self._open
        for offset in offsets:
            if opened.get(offset, True):
                continue  # not a delivery of this group
            if back:
                opened[offset] = True
                insort(self._back, offset)
            else:
                del opened[offset]

    def skip_to(self, first: int) -> bool:
        """Drop unassigned messages below ``first``; return True if there were any."""
        gone = bisect_left(self._back, first)
        for offset in self._back[:gone]:
            del self._open[offset]
        del self._back[:gone]
        if self.next < first:
            gone += first - self.next
            self.next = first
        self.skipped += gone
        return gone > 0

    def state_of(self, offset: int) -> str:
        """Describe the state of a message below :attr:`next`, as a predicate of the group."""
        back = self._open.get(offset)
        if back is None:
            return "has settled it, or was set to go on behind it"
        return "gets it again next" if back else "has it at a member, which has not settled it"

    def record(self) -> dict[str, int]:
        """Return the record for the store."""
        return {"offset": self.offset, "delivered": self.delivered, "skipped": self.skipped}


class GroupOffsets:
    """Groups with an offset in a stream.

    Attributes:
        members: groups that have members now, by name.
        changed: groups whose offsets the store does not have yet.
    """

    def __init__(self) -> None:
        self.members: dict[str, SubscribedGroup] = {}
        self.changed: set[GroupOffset] = set()
        self._by_group: dict[str, GroupOffset] = {}
        self._by_number: dict[int, GroupOffset] = {}
        self._last = 0  # last assigned number

    def __iter__(self) -> Iterator[GroupOffset]:
        return iter(self._by_group.values())

    def __len__(self) -> int:
        return len(self._by_group)

    def get(self, group: str) -> GroupOffset | None:
        """Return a group's offset; None without an offset."""
        return self._by_group.get(group)

    def of(self, number: int) -> GroupOffset | None:
        """Return the offset with this number; None if no longer valid."""
        return self._by_number.get(number)

    def set(self, group: str, offset: int, delivered: int = 0, skipped: int = 0) -> GroupOffset:
        """Set a group's offset, replacing previous state."""
        before = self.delete(group)
        if before is not None:
            # The new offset may be lower: messages in between may have been delivered before.
            delivered, skipped = max(delivered, before.delivered), max(skipped, before.skipped)
        self._last = next(number for number in _numbers_after(self._last) if number not in self._by_number)
        found = GroupOffset(group, self._last, offset, delivered, skipped)
        self._by_group[group] = self._by_number[found.number] = found
        self.changed.add(found)
        return found

    def delete(self, group: str) -> GroupOffset | None:
        """Delete a group's offset and return it."""
        found = self._by_group.pop(group, None)
        if found is not None:
            del self._by_number[found.number]
            self.changed.discard(found)
        return found


def _numbers_after(last: int) -> Iterator[int]:
    """Yield numbers in order of assignment, without 0."""
    return (number % HIGHEST_NUMBER + 1 for number in count(last))
