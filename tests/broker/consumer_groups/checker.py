"""The guarantees of consumer groups, checked on the log of publishers and consumers."""

from collections import defaultdict
from dataclasses import dataclass, field

Tag = tuple[str, int]
"""A consumer and the tag of a delivery."""


@dataclass
class Checker:
    """Receives the events of clients in order, and records violations of the guarantees.

    A client reports a settlement before the send, and a delivery after the receipt, so that the broker may have
    seen the events in the common order.

    Attributes:
        faults: descriptions of violations.
        settled: numbers of acknowledged messages, by key.
    """

    faults: list[str] = field(default_factory=list)
    published: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    settled: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _mortal: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _epochs: dict[str, tuple[int, str]] = field(default_factory=dict)  # last epoch and consumer of each key
    _gone: set[str] = field(default_factory=set)
    _open: dict[Tag, tuple[str, int]] = field(default_factory=dict)
    _late: dict[Tag, tuple[str, int]] = field(default_factory=dict)  # deliveries of ended consumers

    def publish(self, key: str) -> int:
        """Return the number of a new message of a key, from 1, and count the message as published."""
        self.published[key] += 1
        return self.published[key]

    def may_go(self, key: str, number: int) -> None:
        """A message may leave its queue undelivered: it expires, or is purged."""
        self._mortal[key].add(number)

    def delivered(
        self, consumer: str, tag: int, key: str, number: int, redelivered: bool, epoch: int | None = None
    ) -> None:
        """A consumer has got a message, under an epoch."""
        if epoch is not None and consumer not in self._gone:
            highest, owner = self._epochs.get(key, (0, consumer))
            if epoch < highest or (epoch == highest and owner != consumer):
                self.faults.append(
                    f"{key} {number} came to {consumer} under {epoch}, to {owner} under {highest} before"
                )
            else:
                self._epochs[key] = epoch, consumer
        others = {one for (one, _), (other, _) in self._open.items() if other == key and one != consumer}
        if others and consumer not in self._gone:
            self.faults.append(f"{key} {number} came to {consumer} while {others} had messages of that key")
        if number <= self._seen[key]:
            if not redelivered and consumer not in self._gone:  # possibly in transit to the former consumer
                self.faults.append(f"{key} {number} came to {consumer} after {self._seen[key]}, not redelivered")
        elif any(missed not in self._mortal[key] for missed in range(self._seen[key] + 1, number)):
            self.faults.append(f"{key} {number} came to {consumer} after {self._seen[key]}")
        self._seen[key] = max(self._seen[key], number)
        (self._late if consumer in self._gone else self._open)[consumer, tag] = key, number

    def acknowledge(self, consumer: str, tag: int) -> None:
        """A consumer is about to acknowledge."""
        place = consumer, tag
        if (found := self._open.pop(place, None) or self._late.pop(place, None)) is not None:
            key, number = found
            self.settled[key].add(number)

    def requeue(self, consumer: str, tag: int) -> None:
        """A consumer is about to give a delivery back."""
        self._open.pop((consumer, tag), None)

    def gone(self, consumer: str) -> None:
        """A consumer is about to end, or to lose its deliveries: from now on, other consumers may have them."""
        self._gone.add(consumer)
        for tag in [tag for tag in self._open if tag[0] == consumer]:
            self._late[tag] = self._open.pop(tag)

    @property
    def left(self) -> int:
        """Return the unacknowledged messages."""
        return sum(count - len(self.settled[key] | self._mortal[key]) for key, count in self.published.items())

    def check(self) -> None:
        """Raise if a guarantee was violated, or if a message is missing at the end."""
        assert not self.faults, self.faults[:5]
        assert self.left == 0, {key: count - len(self.settled[key]) for key, count in self.published.items()}
