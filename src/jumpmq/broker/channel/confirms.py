"""Publisher confirms (RabbitMQ, "Publisher Confirms"): which publishes of a channel are answered, and when.

A publish is answered when its receipt is no longer pending; one that nothing had to be stored for, at once. Answers go
out in order, so that one ``multiple`` ack can serve all that a commit covers. Neighbours that were given to the same
sources have one receipt; those that were given to others have their own, so that what is complete is acknowledged up to
the first that is not, and what is refused is refused alone.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from jumpmq.amqp import methods as m
from jumpmq.broker.commit.receipts import DONE, NOT_TAKEN, PENDING, Part, Parts, Receipt


@dataclass(slots=True)
class _Run:
    """Neighbouring publishes with one receipt, which comes at the end of their turn.

    Attributes:
        last_tag: tag of the last.
        sources: what they were given to, or-ed bits.
        parts: of a message that may be refused by itself.
        receipt: None until the end of the turn.
    """

    last_tag: int
    sources: int
    parts: tuple[Part, ...] = ()
    receipt: Receipt | None = None


class Confirms:
    """The confirms of one channel.

    Attributes:
        published: tag of the last publish.
        acknowledged: how many were answered with ``basic.ack``.
    """

    def __init__(self) -> None:
        self.published = self.acknowledged = 0
        self._answered = 0  # tag of the last publish that was answered
        self._runs: deque[_Run] = deque()  # what is not answered yet, in order
        self._unsealed: list[_Run] = []  # those of them without a receipt

    def add(self, count: int, sources: int, parts: tuple[Part, ...] = ()) -> None:
        """``count`` more messages were published and taken, and given to these sources (or-ed bits).

        Args:
            parts: of its receipt, beside those of the sources, where one message may be refused by itself.
        """
        self.published += count
        last = self._unsealed[-1] if self._unsealed and self._runs[-1] is self._unsealed[-1] else None
        if last is not None and last.sources == sources and not (parts or last.parts):
            last.last_tag = self.published
        else:
            run = _Run(self.published, sources, parts)
            self._runs.append(run)
            self._unsealed.append(run)

    def refuse(self) -> None:
        """One more message was published and refused by a queue (``x-overflow: reject-publish``)."""
        self.published += 1
        self._runs.append(_Run(self.published, 0, receipt=NOT_TAKEN))

    def seal(self, parts: Mapping[int, Part]) -> None:
        """What was added since the last call has its receipt in these parts, one for each source."""
        for run in self._unsealed:
            part = parts.get(run.sources)
            if part is None or run.parts:
                found = [part for source, part in parts.items() if source & run.sources]
                run.receipt = Parts((*found, *run.parts))
            else:
                run.receipt = part
        self._unsealed.clear()

    @property
    def unanswered(self) -> int:
        """How many publishes wait for their answer."""
        return self.published - self._answered

    @property
    def waiting(self) -> bool:
        """Whether publishes are unanswered."""
        return bool(self._runs)

    @property
    def due(self) -> bool:
        """Whether there are :meth:`answers`."""
        receipt = self._runs[0].receipt if self._runs else None
        return receipt is not None and receipt.state is not PENDING

    def answers(self) -> list[m.BasicAck | m.BasicNack]:
        """The answers that are due."""
        found: list[m.BasicAck | m.BasicNack] = []
        runs, last = self._runs, 0
        while runs and (receipt := runs[0].receipt) is not None:
            state = receipt.state
            if state is PENDING:
                break
            tag = runs.popleft().last_tag
            if state is DONE:
                last = tag
                continue
            if last:
                found.append(self._acknowledge(last))
            last = 0
            found.append(m.BasicNack(tag, self._answer(tag), False))
        if last:
            found.append(self._acknowledge(last))
        return found

    def _acknowledge(self, tag: int) -> m.BasicAck:
        self.acknowledged += tag - self._answered
        return m.BasicAck(tag, self._answer(tag))

    def _answer(self, tag: int) -> bool:
        """Count everything up to the tag as answered; returns whether that is more than one publish."""
        multiple = tag > self._answered + 1
        self._answered = tag
        return multiple
