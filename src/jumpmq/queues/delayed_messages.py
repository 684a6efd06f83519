"""Messages ordered by due time: a hierarchical timer wheel whose slots can be paged.

A slot of the wheel, a *window*, is a range of time with the messages due in it, as :class:`ReadyMessages`; messages due
later can therefore be paged while memory is short. Windows have three sizes. A message enters the smallest window that
covers it and begins no later than the end of the current window of the next size. Shortly before a large window begins,
its messages move to smaller windows, in steps. A message thus moves at most twice, and delays of seven weeks need a few
thousand windows at once, most of them small.

Due messages are taken from windows of 16 ms, each when all its messages are due: a message alone in its window is taken
at its exact time, and no message more than 16 ms late.
"""

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from typing import NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.queues import clock
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.leftovers import AllLeftovers
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.priorities import PrioritizedMessages
from jumpmq.queues.ready import ReadyMessages
from jumpmq.queues.runs import body_octets
from jumpmq.queues.tail import PAGED_AT_ONCE

FINE, MIDDLE, COARSE = 4, 16, 22
"""Sizes of windows, as powers of two of milliseconds: 16 ms, 66 s and 70 minutes."""

LEADS = {FINE: 0, MIDDLE: 5_000, COARSE: 60_000}
"""Milliseconds before the start of a window from which on the window is emptied into smaller windows."""

EMPTIED_AT_ONCE = 200
"""Maximum number of messages moved to smaller windows per step."""

_due = attrgetter("expires_at", "seq")


class Window(NamedTuple):
    """A time range: first millisecond since the epoch, and size."""

    start: int
    size: int


class DelayedMessages(PrioritizedMessages):
    """Ready messages due at ``expires_at``, earliest first.

    Only :meth:`take_expired` is restricted to due messages.
    """

    def __init__(
        self,
        reader: BatchReader | None,
        prepare: Callable[[list[Message]], None],
        account: MemoryAccount,
        arrived: Callable[[], None],
    ) -> None:
        super().__init__(reader, prepare, account, arrived, 0)
        self._windows: dict[Window, ReadyMessages] = {}
        self._latest: dict[Window, float] = {}  # due time of the last message of a small window
        self._alarms: list[tuple[float, Window]] = []  # times at which windows need work: a heap
        self._count = 0  # number of messages in all windows
        self._is_sorted = True  # True if the windows are in order

    def __len__(self) -> int:
        return self._count

    @property
    def _levels(self) -> dict[int, ReadyMessages]:
        """The windows in order, for the base class."""
        if not self._is_sorted:
            self._windows = dict(sorted(self._windows.items()))
            self._is_sorted = True
        return self._windows  # type: ignore[return-value]

    @_levels.setter
    def _levels(self, empty: dict[int, ReadyMessages]) -> None:
        """The base class begins without any."""

    def first_expiry(self) -> float:
        # Time at which a window needs work.
        return self._alarms[0][0] if self._alarms else 0.0

    # --- coming ---

    def extend(self, messages: list[Message], size: int) -> None:
        for window, group in self._by_window(messages).items():
            self._window(window, group).extend(group, body_octets(group))
            self._count += len(group)

    def put_back(self, messages: list[Message]) -> None:
        for window, group in self._by_window(messages).items():
            self._window(window, group).put_back(group)
            self._count += len(group)

    def _by_window(self, messages: list[Message]) -> dict[Window, list[Message]]:
        now = int(clock.now() * 1000)
        found: dict[Window, list[Message]] = {}
        for message in messages:
            found.setdefault(_window_of(int(message.expires_at * 1000), now), []).append(message)
        return found

    def _window(self, window: Window, coming: list[Message]) -> ReadyMessages:
        """Return the messages of a window, for messages to be added."""
        held = self._windows.get(window)
        if held is None:
            held = self._windows[window] = ReadyMessages(self._reader, self._prepare, self._account, self._arrived)
            self._is_sorted = False
            begins = min(message.expires_at for message in coming)
            at = begins if window.size == FINE else (window.start - LEADS[window.size]) / 1000
            heappush(self._alarms, (at, window))
        if window.size == FINE:
            latest = max(message.expires_at for message in coming)
            self._latest[window] = max(latest, self._latest.get(window, 0.0))
        return held

    # --- going ---

    def take_expired(self, now: float, count: int) -> list[Message]:
        """Take up to ``count`` due messages, earliest first; windows that begin soon are emptied into smaller windows
        on the way, by one step."""
        taken: list[Message] = []
        left = EMPTIED_AT_ONCE
        while self._alarms and self._alarms[0][0] <= now and len(taken) < count and left > 0:
            window = self._alarms[0][1]
            held = self._windows.get(window)
            if held is None or not len(held):
                heappop(self._alarms)
                self._close(window)
            elif window.size != FINE:
                left -= self._empty(held, int(now * 1000))
            # A small window waits for its last message, so that its messages leave in the order of their due times.
            elif self._latest[window] > now:
                heapreplace(self._alarms, (self._latest[window], window))
            else:
                taken += sorted(self._from(held, partial(held.take, count - len(taken))), key=_due)
        return taken

    def _empty(self, held: ReadyMessages, now: int) -> int:
        """Move some messages of a window to smaller ones, in milliseconds since the epoch; returns how many."""
        messages = self._from(held, partial(held.take, EMPTIED_AT_ONCE))
        groups: dict[Window, list[Message]] = {}
        for message in messages:
            groups.setdefault(_window_of(int(message.expires_at * 1000), now), []).append(message)
        for window, group in groups.items():
            self._window(window, group).put_back(group)  # in its order: later ones may be there already
            self._count += len(group)
        # A step with unreadable messages alone has to count, too.
        return max(len(messages), 1)

    def _from(self, held: ReadyMessages, take: Callable[[], list[Message]]) -> list[Message]:
        before = len(held)
        messages = take()
        self._count += len(held) - before
        return messages

    def _close(self, window: Window) -> None:
        if (held := self._windows.pop(window, None)) is not None:
            held.close()
        self._latest.pop(window, None)

    def _take(self, count: int, take: Callable[[ReadyMessages, int], list[Message]]) -> list[Message]:
        taken: list[Message] = []
        for held in list(self._levels.values()):
            if len(taken) >= count:
                break
            if len(held):
                left = count - len(taken)
                taken += self._from(held, partial(take, held, left))
        return taken

    def take_octets(self, count: int, most: int) -> list[Message]:
        taken: list[Message] = []
        for held in list(self._levels.values()):
            if len(taken) >= count or most <= 0:
                break
            if len(held):
                more = self._from(held, partial(held.take_octets, count - len(taken), most))
                most -= body_octets(more)
                taken += more
                if len(held):
                    break  # what is left of it is being read, and comes first
        return taken

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        for held in list(self._levels.values()):
            yield from held.between(first_seq, last_seq)

    # --- leaving, and memory ---

    def leave(self) -> AllLeftovers:
        left = super().leave()
        for window in list(self._windows):
            self._close(window)
        self._alarms.clear()
        self._count = 0
        return left

    def page_out(self, kept: int) -> int:
        # The latest due messages first. Messages due soon may stay.
        done = 0
        for window, held in reversed(list(self._windows_in_order())):
            done += held.page_out(kept if window.size == FINE else 0)
            if done >= PAGED_AT_ONCE:
                break
        return done

    def _windows_in_order(self) -> list[tuple[Window, ReadyMessages]]:
        return sorted(self._windows.items())


def _window_of(due: int, now: int) -> Window:
    """Return the window for a new message.

    Args:
        due, now: milliseconds since the epoch.
    """
    for size, larger in ((FINE, MIDDLE), (MIDDLE, COARSE)):
        if due >> larger <= now + LEADS[larger] >> larger:  # the larger window has begun, or is emptied by now
            return Window(due >> size << size, size)
    return Window(due >> COARSE << COARSE, COARSE)
