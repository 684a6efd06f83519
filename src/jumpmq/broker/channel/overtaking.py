"""Confirms out of order, while the first waiting publish delays later ones.

Publishes to the same sources are answered in order, because sources complete publishes in order. So there is one lane
for each combination of sources, and only the first publish of each lane is checked. As in RabbitMQ
(``rabbit_channel:coalesce_and_send``), answered publishes before the first waiting one have one ``multiple`` ack; each
later publish has its own ack.

Overtaking ends when all publishes that waited at its beginning are answered. Then answers are in order again, with
``multiple`` acks, until another publish delays others. So waiting publishes are sorted at most once.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from jumpmq.amqp import methods as m
from jumpmq.broker.commit.receipts import DONE, PENDING, Part, Receipt

ConfirmMethod = m.BasicAck | m.BasicNack


@dataclass(slots=True)
class PublishedRun:
    """Consecutive publishes with a common receipt, assigned at the end of the event-loop iteration.

    Attributes:
        first_tag, last_tag: tags of the first and the last publish.
        sources: sources of the receipt, as or-ed bits.
        parts: further parts of the receipt, of a message that may be refused alone.
        receipt: None until the end of the event-loop iteration.
    """

    first_tag: int
    last_tag: int
    sources: int
    parts: tuple[Part, ...] = ()
    receipt: Receipt | None = None

    @property
    def tags(self) -> range:
        """Tags of all publishes."""
        return range(self.first_tag, self.last_tag + 1)


class Overtaking:
    """Waiting runs in lanes by source.

    Args:
        runs: waiting publishes at the beginning, in order, each with its receipt.
    """

    def __init__(self, runs: Iterable[PublishedRun]) -> None:
        self._lanes: dict[int, deque[PublishedRun]] = {}  # lanes by sources
        self._until = 0  # tag of the last publish that waited at the beginning
        for run in runs:
            self.add(run)
            self._until = run.last_tag

    def add(self, run: PublishedRun) -> None:
        """Add a run with receipt."""
        self._lanes.setdefault(run.sources, deque()).append(run)

    def answers(self, unassigned: Sequence[PublishedRun]) -> tuple[list[ConfirmMethod], int, int]:
        """Return the due answers, with the numbers of acknowledged and refused publishes.

        Args:
            unassigned: publishes without a receipt, in order.
        """
        done: list[PublishedRun] = []
        refused: list[PublishedRun] = []
        for lane in self._lanes.values():
            while lane and (receipt := lane[0].receipt) is not None and (state := receipt.state) is not PENDING:
                (done if state is DONE else refused).append(lane.popleft())
        before = min((run.first_tag for run in (*self._firsts(), *unassigned[:1], *refused)), default=None)
        found: list[ConfirmMethod] = []
        prefix = [run for run in done if before is None or run.last_tag < before]
        if prefix:
            last = max(run.last_tag for run in prefix)
            found.append(m.BasicAck(last, sum(len(run.tags) for run in prefix) > 1))
        for run in refused:
            found += [m.BasicNack(tag, False, False) for tag in run.tags]
        for run in done:
            if before is not None and run.last_tag >= before:
                found += [m.BasicAck(tag, False) for tag in run.tags]
        return found, sum(len(run.tags) for run in done), sum(len(run.tags) for run in refused)

    @property
    def over(self) -> bool:
        """Return True if all initially waiting runs are answered."""
        return all(run.first_tag > self._until for run in self._firsts())

    @property
    def left(self) -> list[PublishedRun]:
        """Return the waiting runs in order."""
        return sorted((run for lane in self._lanes.values() for run in lane), key=attrgetter("first_tag"))

    def _firsts(self) -> list[PublishedRun]:
        return [lane[0] for lane in self._lanes.values() if lane]
