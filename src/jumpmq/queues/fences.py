"""Ordering barriers: messages of a moved key wait until the key's previous queue has no older ones.

When a hash exchange gets or loses a queue, keys move from one queue to another. Messages of these keys in the old queue
have to be handled before new messages in the new queue. The change therefore places a *marker* at each old queue with
messages: the queue's highest number at that time, and the number of messages up to it, ready or taken. In the queues
that got keys, the change places *fences*. A message that arrives there waits for the queue that the previous ring would
have chosen, until no message is left before that queue's marker.

A message waits for each pending ring change that moved its key to this queue. All messages with the same set of fences
are in one list, so that the waiting messages of a key are always in one list. When all fences of a list are open, its
messages return to the other ready messages, by their numbers, in chunks and in order; messages that arrive for the list
meanwhile go to its end. Messages of a key thus never change their order. A message waits only for messages older than
the ring change. Waiting is therefore free of cycles.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple, Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues.any_ready import NO_SEQ, AnyReady, DividedMessages, each
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.head import RUN
from jumpmq.queues.leftovers import AllLeftovers
from jumpmq.queues.marks import Mark
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.ready import ReadyMessages
from jumpmq.queues.runs import body_octets
from jumpmq.queues.slots import SlottedMessages
from jumpmq.queues.tail import PAGED_AT_ONCE
from jumpmq.store import Batch

RELEASED_OCTETS = 4 << 20
"""Maximum octets released per step from a list whose barriers are gone; the last message may exceed the limit."""


class FencingChange(Protocol):
    """A ring change, as seen by queues.

    Attributes:
        number: number of the change, in the order of changes.
        exchange: name of the exchange.
        since: time of the change, in seconds since the epoch.
        names: queues and exchanges of the previous ring, in the order of the indexes of :meth:`places`.
        marks: markers of those queues that had messages, by name.
    """

    number: int
    exchange: str
    since: float
    marks: dict[str, Mark]

    @property
    def names(self) -> list[str]: ...

    def places(self, messages: list[Message]) -> list[int]:
        """Return the destinations under the previous ring, as indexes into ``names``; -1 for none."""

    def place(self, key: bytes) -> int:
        """Return the destination of a key under the previous ring."""

    def may_pass(self, message: Message) -> bool:
        """Return True if a message may have come through the exchange."""


class Fence:
    """A barrier before messages, until its marker is passed or an operator lifts the barrier.

    Attributes:
        change: the ring change.
        mark: the awaited marker.
        lifted: True if an operator has lifted the fence.
    """

    __slots__ = ("change", "lifted", "mark")

    def __init__(self, change: FencingChange, mark: Mark, lifted: bool = False) -> None:
        self.change = change
        self.mark = mark
        self.lifted = lifted

    @property
    def closed(self) -> bool:
        """True while messages wait."""
        return self.mark.left > 0 and not self.lifted


class FenceFigures(NamedTuple):
    """Statistics of an ordering barrier.

    Attributes:
        exchange: exchange whose ring has changed.
        source: the awaited queue.
        remaining: number of awaited messages in that queue.
        held: number of messages that wait for it, and possibly for further queues.
        since: time of the change of the ring, in seconds since the epoch.
    """

    exchange: str
    source: str
    remaining: int
    held: int
    since: float

    def shown(self) -> dict[str, Any]:
        """Return the statistics as JSON."""
        return {
            "exchange": self.exchange,
            "source": self.source,
            "remaining": self.remaining,
            "messages_held": self.held,
            "since": round(self.since, 3),
            "seconds": round(max(0.0, time.time() - self.since), 3),
        }


class _Past:
    """A ring change at one queue: messages from ``first_seq`` on may wait, according to the previous ring."""

    __slots__ = ("change", "fences", "first_seq")

    def __init__(self, change: FencingChange, first_seq: int, fences: list[Fence | None]) -> None:
        self.change = change
        self.first_seq = first_seq
        self.fences = fences


Waits = tuple[Fence, ...]
"""The fences of a waiting message, in the order of changes."""


class FencedMessages(DividedMessages):
    """Ready messages of a queue with ordering barriers: waiting messages in lists, the rest in ``inner``. Only messages
    of ``inner`` are taken, except the oldest and the expired ones.

    Args:
        inner: the ready messages of the queue without fences.
        reader, prepare, account, arrived: as for ``ReadyMessages``.
    """

    def __init__(
        self,
        inner: AnyReady,
        reader: BatchReader | None,
        prepare: Callable[[list[Message]], None],
        account: MemoryAccount,
        arrived: Callable[[], None],
    ) -> None:
        self.inner = inner
        self._reader = reader
        self._prepare = prepare
        self._account = account
        self._arrived = arrived
        self._pasts: list[_Past] = []
        self._lists: dict[Waits, ReadyMessages] = {}

    def __len__(self) -> int:
        return len(self.inner) + self.held

    @property
    def held(self) -> int:
        """Number of waiting messages."""
        return sum([len(one) for one in self._lists.values()])

    @property
    def size(self) -> int:
        return self.inner.size + sum([one.size for one in self._lists.values()])

    @property
    def memory(self) -> int:
        return self.inner.memory + sum([one.memory for one in self._lists.values()])

    @property
    def _parts(self) -> list[AnyReady]:
        return [self.inner, *self._lists.values()]

    # --- fences ---

    def add(self, change: FencingChange, first_seq: int, own: str, lifted: Iterable[str] = ()) -> None:
        """Hold messages from ``first_seq`` on that the previous ring would have sent to a different queue.

        Args:
            own: name of this queue in the previous ring; messages of keys that this queue had before do not wait.
            lifted: sources of the lifted fences.
        """
        if any(past.change is change for past in self._pasts):
            return
        fences: list[Fence | None] = []
        for name in change.names:
            mark = change.marks.get(name) if name != own else None
            fences.append(None if mark is None or not mark.left else Fence(change, mark, mark.source in lifted))
        self._pasts.append(_Past(change, first_seq, fences))
        self._pasts.sort(key=lambda past: past.change.number)

    def lift(self, source: str) -> list[FencingChange]:
        """Stop waiting for this source; return the affected ring changes."""
        found = []
        for fence in self._fences():
            if fence.closed and fence.mark.source == source:
                fence.lifted = True
                found.append(fence.change)
        return found

    def _fences(self) -> Iterator[Fence]:
        for past in self._pasts:
            yield from [fence for fence in past.fences if fence is not None]

    @property
    def over(self) -> bool:
        """True if all barriers are gone and all messages released."""
        return not self._pasts

    def release(self) -> bool:
        """Release a chunk of every list without barriers; return True if more is left in memory."""
        more = False
        for waits, ready in list(self._lists.items()):
            if any(fence.closed for fence in waits):
                continue
            if found := ready.take_octets(PAGED_AT_ONCE, RELEASED_OCTETS):
                self._back(found)
            if not len(ready):
                ready.close()
                del self._lists[waits]
            else:
                more = more or bool(found)
        self._forget_fences()
        return more

    def _back(self, messages: list[Message]) -> None:
        # Waiting messages have no slots yet.
        if isinstance(self.inner, SlottedMessages):
            self.inner.set_slots(messages)
        self.inner.put_back(messages)

    def _forget_fences(self) -> None:
        # A fence stays while messages wait in its list: later messages of these keys must not overtake them.
        waited = {fence for waits in self._lists for fence in waits}
        for past in self._pasts:
            past.fences = [
                fence if fence is not None and (fence.closed or fence in waited) else None for fence in past.fences
            ]
        self._pasts = [past for past in self._pasts if any(past.fences)]

    def waits_for(self, key: bytes) -> list[Fence]:
        """Return the barriers that a new message of this key would wait for."""
        found = [past.fences[past.change.place(key)] for past in self._pasts if past.change.names]
        return [fence for fence in found if fence is not None and fence.closed]

    def figures(self) -> list[FenceFigures]:
        """Return statistics of the closed barriers."""
        found = []
        for fence in self._fences():
            if fence.closed:
                held = sum([len(ready) for waits, ready in self._lists.items() if fence in waits])
                mark, change = fence.mark, fence.change
                found.append(FenceFigures(change.exchange, mark.source, mark.left, held, change.since))
        return found

    def _sorted(self, messages: list[Message]) -> tuple[list[Message], dict[Waits, list[Message]]]:
        """Split messages into free messages, and waiting messages by barrier."""
        found: list[Waits] = [()] * len(messages)
        for past in self._pasts:
            change, first = past.change, past.first_seq
            which = [place for place, one in enumerate(messages) if one.seq >= first and change.may_pass(one)]
            chosen = change.places([messages[place] for place in which]) if which else []
            for place, index in zip(which, chosen, strict=True):
                fence = past.fences[index] if index >= 0 else None
                if fence is not None:
                    found[place] += (fence,)
        own: list[Message] = []
        held: dict[Waits, list[Message]] = {}
        for message, waits in zip(messages, found, strict=True):
            # Earlier messages of the same keys may still be in the list, even if the fences are open by now.
            if waits and (waits in held or waits in self._lists or any(fence.closed for fence in waits)):
                held.setdefault(waits, []).append(message)
            else:
                own.append(message)
        return own, held

    # --- coming ---

    def restore(self, batch: Batch, delivered_seq: int) -> None:
        if all(batch.last_seq < past.first_seq for past in self._pasts):
            self.inner.restore(batch, delivered_seq)
        else:  # some of its messages may wait
            super().restore(batch, delivered_seq)

    def extend(self, messages: list[Message], size: int) -> None:
        own, held = self._sorted(messages)
        for waits, group in held.items():
            ready = self._lists.get(waits)
            if ready is None:
                ready = self._lists[waits] = ReadyMessages(self._reader, self._prepare, self._account, self._arrived)
            ready.extend(group, body_octets(group))
        if own:
            self.inner.extend(own, body_octets(own) if held else size)

    def put_back(self, messages: list[Message]) -> None:
        # Returned messages have passed their fences before their delivery.
        self.inner.put_back(messages)

    # --- taking ---

    def take(self, count: int) -> list[Message]:
        return self.inner.take(count)

    def take_octets(self, count: int, most: int) -> list[Message]:
        return self.inner.take_octets(count, most)

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        return self.inner.take_range(first_seq, last_seq, count) if len(self.inner) else []

    def take_oldest(self, count: int, last_seq: int = NO_SEQ) -> list[Message]:
        # Waiting messages, too.
        taken: list[Message] = []
        while len(taken) < count and (parts := [part for part in self._parts if len(part)]):
            parts.sort(key=lambda part: part.first_seq())
            if parts[0].first_seq() > last_seq:
                break
            upto = parts[1].first_seq() - 1 if len(parts) > 1 else NO_SEQ
            taken += parts[0].take_oldest(count - len(taken), min(upto, last_seq))
        return taken

    def take_expired(self, now: float, count: int) -> list[Message]:
        taken: list[Message] = []
        for part in self._parts:
            taken += part.take_expired(now, count - len(taken))
        return taken

    # --- looking ---

    def first_expiry(self) -> float:
        return min((at for part in self._parts if len(part) and (at := part.first_expiry())), default=0.0)

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        merged = merge(*(each(part, first_seq, last_seq) for part in self._parts if len(part)), key=lambda one: one.seq)
        return iter(lambda: list(islice(merged, RUN)), [])

    def front(self) -> Message | None:
        return self.inner.front()

    # --- leaving, and memory ---

    def leave(self) -> AllLeftovers:
        left = super().leave()
        for ready in self._lists.values():
            ready.close()
        self._lists.clear()
        self._forget_fences()
        return left

    def close(self) -> None:
        super().close()
        self._pasts.clear()

    def page_out(self, kept: int) -> int:
        # Waiting messages are paged completely.
        done = 0
        for ready in self._lists.values():
            done += ready.page_out(0)
            if done >= PAGED_AT_ONCE:
                return done
        return done + self.inner.page_out(kept)
