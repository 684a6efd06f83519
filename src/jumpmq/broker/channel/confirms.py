"""Publisher confirms of a channel (RabbitMQ, "Publisher Confirms").

A publish is answered when its receipt is no longer pending; a publish that needs no storage is answered at once.
Answers are in order, so that one ``multiple`` ack covers all publishes of a commit. Consecutive publishes to the same
sources share a receipt; publishes to other sources have their own. So complete publishes are acknowledged up to the
first incomplete one, and each refused publish has its own nack.

If the first publish waits long (for a home that hangs, or a full disk), answers of publishes to other sources overtake
its answer: see :mod:`~jumpmq.broker.channel.overtaking`.
"""

from collections import deque
from collections.abc import Mapping

from jumpmq.amqp import methods as m
from jumpmq.broker.channel.overtaking import ConfirmMethod, Overtaking, PublishedRun
from jumpmq.broker.commit.receipts import DONE, NOT_TAKEN, PENDING, Part, ReceiptParts


class Confirms:
    """Publisher confirms of a channel.

    Attributes:
        published: tag of the last publish.
        answered: number of answered publishes.
        acknowledged: number of publishes answered with ``basic.ack``.
    """

    def __init__(self) -> None:
        self.published = self.answered = self.acknowledged = 0
        # unanswered publishes, in order; empty while publishes are overtaken
        self._runs: deque[PublishedRun] = deque()
        self._unassigned: list[PublishedRun] = []  # publishes without a receipt, in order
        self._last: PublishedRun | None = None  # the last publishes, while the next ones may share their receipt
        self._mixed = False  # True if some of the runs have other sources than the first run
        self._seen = 0  # tag of the first unanswered publish at the last call of :meth:`look`
        self._overtaking: Overtaking | None = None  # unanswered publishes, while publishes are overtaken

    def add(self, count: int, sources: int, parts: tuple[Part, ...] = ()) -> None:
        """Add ``count`` accepted publishes to the given sources (or-ed bits).

        Args:
            parts: parts of the receipt in addition to those of the sources, of a message that may be refused alone.
        """
        first, self.published = self.published + 1, self.published + count
        last = self._last
        if last is not None and last.sources == sources and not (parts or last.parts):
            last.last_tag = self.published
        else:
            self._last = run = PublishedRun(first, self.published, sources, parts)
            self._unassigned.append(run)
            if self._overtaking is None:
                self._runs.append(run)

    def refuse(self) -> None:
        """Add a publish refused by a queue (``x-overflow: reject-publish``)."""
        self.published += 1
        # A refused publish is answered alone, so the run before ends.
        self._last, self._mixed = None, True
        run = PublishedRun(self.published, self.published, 0, receipt=NOT_TAKEN)
        if self._overtaking is None:
            self._runs.append(run)
        else:
            self._overtaking.add(run)

    def assign_receipts(self, parts: Mapping[int, Part]) -> None:
        """Assign receipts, by source, to the publishes added since the last call."""
        first = self._runs[0].sources if self._runs else None
        for run in self._unassigned:
            part = parts.get(run.sources)
            if part is None or run.parts:
                found = [part for source, part in parts.items() if source & run.sources]
                run.receipt = ReceiptParts((*found, *run.parts))
            else:
                run.receipt = part
            # Sources complete independently: a run of one source may hold up later runs of others.
            if run.sources != first:
                self._mixed = True
        if self._overtaking is not None:
            for run in self._unassigned:
                self._overtaking.add(run)
        self._unassigned.clear()
        # Later publishes get another receipt, and begin another run.
        self._last = None

    @property
    def unanswered(self) -> int:
        """Number of unanswered publishes."""
        return self.published - self.answered

    @property
    def waiting(self) -> bool:
        """True if publishes are unanswered."""
        return self.answered < self.published

    @property
    def due(self) -> bool:
        """True if :meth:`answers` may return answers."""
        receipt = self._runs[0].receipt if self._runs else None
        return (receipt is not None and receipt.state is not PENDING) or self._overtaking is not None

    @property
    def may_hold_up(self) -> bool:
        """True if the first waiting publish may delay later ones: then :meth:`look` must be called at intervals."""
        return self._mixed and bool(self._runs)

    def look(self) -> None:
        """Check for a publish that delays later publishes. If found by two checks in a row, the publish is overtaken
        from now on.
        """
        seen, self._seen = self._seen, self._runs[0].first_tag if self._runs else 0
        if self._mixed and self._runs and seen == self._seen:
            self._overtaking = Overtaking(run for run in self._runs if run.receipt is not None)
            self._runs.clear()

    def answers(self) -> list[ConfirmMethod]:
        """Return the due answers."""
        if self._overtaking is not None:
            return self._overtake(self._overtaking)
        found: list[ConfirmMethod] = []
        runs = self._runs
        first = last = 0  # tags of the publishes to acknowledge
        while runs and (receipt := runs[0].receipt) is not None:
            state = receipt.state
            if state is PENDING:
                break
            run = runs.popleft()
            count = run.last_tag - run.first_tag + 1
            self.answered += count
            if state is DONE:
                first, last = first or run.first_tag, run.last_tag
                self.acknowledged += count
                continue
            # An ack with `multiple` covers all lower tags, so it precedes the nack of a higher tag.
            if last:
                found.append(m.BasicAck(last, last > first))
            first = last = 0
            found.append(m.BasicNack(run.last_tag, count > 1, False))
        if last:
            found.append(m.BasicAck(last, last > first))
        if not runs:
            self._mixed = False
        return found

    def _overtake(self, overtaking: Overtaking) -> list[ConfirmMethod]:
        """Return the due answers, overtaking waiting publishes."""
        found, acknowledged, refused = overtaking.answers(self._unassigned)
        self.answered += acknowledged + refused
        self.acknowledged += acknowledged
        if overtaking.over:
            self._overtaking = None
            self._runs.extend(overtaking.left)
            self._runs.extend(self._unassigned)
            self._mixed = bool(self._runs)
        return found
