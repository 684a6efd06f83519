"""Checks of the consumers' log: no loss, messages of a key in order, and one consumer per key at a time."""

import threading
import time
from collections import defaultdict
from typing import NamedTuple


class Event(NamedTuple):
    """An event of a message at a consumer, by a shared clock."""

    at: float
    kind: str
    consumer: str
    key: str
    number: int
    redelivered: bool


class Ordering:
    """The log of all consumers; numbers of a key rise in the order of publishing.

    A consumer notes a delivery before acting on it, and its outcome (``settled``) before the broker hears of
    it. A consumer without connection holds nothing any more (``gone``), noted when the broker may know of it.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def delivered(self, consumer: str, key: str, number: int, redelivered: bool) -> None:
        self._note("delivered", consumer, key, number, redelivered)

    def acknowledged(self, consumer: str, key: str, number: int) -> None:
        self._note("acknowledged", consumer, key, number)

    def returned(self, consumer: str, key: str, number: int) -> None:
        self._note("returned", consumer, key, number)

    def gone(self, consumer: str) -> None:
        """All messages held by the consumer return to the broker."""
        self._note("gone", consumer, "", 0)

    def _note(self, kind: str, consumer: str, key: str, number: int, redelivered: bool = False) -> None:
        with self._lock:
            self._events.append(Event(time.monotonic(), kind, consumer, key, number, redelivered))

    @property
    def done(self) -> set[tuple[str, int]]:
        """Return key and number of acknowledged messages."""
        with self._lock:
            return {(one.key, one.number) for one in self._events if one.kind == "acknowledged"}

    def problems(self, published: dict[str, int], *, alone: bool = True) -> list[str]:
        """Return the violations found in the log.

        Args:
            published: number of published messages by key, numbered from 0.
            alone: True if a key may have only one unacknowledged message, at one consumer.
        """
        found: list[str] = []
        holders: dict[str, dict[int, str]] = defaultdict(dict)
        latest: dict[str, int] = defaultdict(lambda: -1)
        for event in self._events:
            held = holders[event.key]
            if event.kind == "gone":
                for each in holders.values():
                    for number in [number for number, consumer in each.items() if consumer == event.consumer]:
                        del each[number]
            elif event.kind != "delivered":
                held.pop(event.number, None)
            else:
                if alone and held:
                    found.append(f"{event} while others hold {held}")
                if event.number > latest[event.key] + 1:
                    found.append(f"{event} overtakes {latest[event.key] + 1}")
                if event.number <= latest[event.key] and not event.redelivered:
                    found.append(f"{event} again, and not marked")
                latest[event.key] = max(latest[event.key], event.number)
                held[event.number] = event.consumer
        lost = {(key, number) for key, count in published.items() for number in range(count)} - self.done
        return found + [f"lost: {sorted(lost)[:10]} of {len(lost)}"] * bool(lost)
