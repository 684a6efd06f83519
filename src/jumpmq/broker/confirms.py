"""Publisher confirms (RabbitMQ, "Publisher Confirms"): which publishes of a channel are answered, and when.

A publish is answered when the commit that holds its messages is on disk; one that nothing had to be stored for, at
once. Answers go out in order, so that one ``multiple`` ack can serve all that a commit settled.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from jumpmq.amqp import methods as m


class _Run(NamedTuple):
    """Neighbouring publishes with one fate: the last tag, the commit they wait for, whether they are refused."""

    last_tag: int
    commit: int
    refused: bool


class Confirms:
    """The confirms of one channel.

    Attributes:
        published: tag of the last publish.
    """

    def __init__(self) -> None:
        self.published = 0
        self._answered = 0
        self._open = 0
        self._runs: deque[_Run] = deque()

    def add(self, count: int) -> None:
        """``count`` more messages were published and taken."""
        self.published += count
        self._open += count

    def refuse(self) -> None:
        """One more message was published and refused by a queue (``x-overflow: reject-publish``)."""
        self.seal(0)
        self.published += 1
        self._runs.append(_Run(self.published, 0, True))

    def seal(self, commit: int) -> None:
        """What was added since the last call waits for ``commit``."""
        if self._open:
            self._open = 0
            self._runs.append(_Run(self.published, commit, False))

    @property
    def waiting(self) -> bool:
        """Whether publishes are unanswered."""
        return bool(self._runs)

    def answers(self, committed: int) -> Iterator[m.BasicAck | m.BasicNack]:
        """The answers that are due when commit ``committed`` is on disk."""
        last = 0
        while self._runs and self._runs[0].commit <= committed:
            run = self._runs.popleft()
            if not run.refused:
                last = run.last_tag
                continue
            if last:
                yield self._ack(last)
            last = 0
            self._answered = run.last_tag
            yield m.BasicNack(run.last_tag, False, False)
        if last:
            yield self._ack(last)

    def _ack(self, tag: int) -> m.BasicAck:
        multiple = tag > self._answered + 1
        self._answered = tag
        return m.BasicAck(tag, multiple)
