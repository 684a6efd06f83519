"""Proposed changes: validated, applied as a whole, and answered, in sequence.

A proposal waits for those before it, some of which may take effect in steps with others served between. The asker
gets a :class:`Pending`, which is decided at once where nothing is before it and it takes few steps, and else calls back
once. The order is that in which this process asks; with several processes that of :mod:`~jumpmq.topology.log`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jumpmq.amqp.errors import AMQPError
from jumpmq.topology.changes.base import Change
from jumpmq.topology.state import Later

log = logging.getLogger(__name__)

STEPS_AT_ONCE = 200
"""Steps of changes, such as a policy's shards, taken before the event loop serves further clients."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Author of a change, shown to operators; not used for decisions.

    Attributes:
        user: the name; "" where it is the broker itself.
        connection: the name of the AMQP connection; "" where it is none.
        address: where the connection or request comes from; "" where it is the broker itself.
    """

    user: str = ""
    connection: str = ""
    address: str = ""


THE_BROKER = Asker()
"""Author of changes by queues and by the start."""


class Pending:
    """A proposed change and the outcome.

    Attributes:
        change: as it was proposed.
        asker: principal of the change.
        decided: whether it was accepted or refused; if not yet, see :meth:`then`.
        effects: once it was accepted, the change as it took effect, and the changes that followed from it.
        number: how many changes were decided with it; before, 0, or the number that a common log has given it.
        limited: whether the asker waits for a limited time while the common log stands still.
    """

    __slots__ = ("_callbacks", "_error", "asker", "change", "decided", "effects", "limited", "number")

    def __init__(self, change: Change, asker: Asker) -> None:
        self.change = change
        self.asker = asker
        self.decided = False
        self.effects: list[Change] = []
        self.number = 0
        self.limited = False
        self._error: Exception | None = None  # reason of a refusal
        self._callbacks: list[Callable[[], None]] = []  # who waits for the decision

    def result(self) -> None:
        """Return if the change was accepted; to be called when it is decided.

        Raises:
            AMQPError: it was refused, and nothing has changed.
        """
        assert self.decided
        if self._error is not None:
            raise self._error

    def then(self, callback: Callable[[], None]) -> None:
        """Call a function once the change is decided: now if it is."""
        if self.decided:
            callback()
        else:
            self._callbacks.append(callback)

    def accept(self, effects: list[Change]) -> None:
        """The change has taken effect."""
        self.effects = effects
        self._decide()

    def refuse(self, error: Exception) -> None:
        """Refuse the change, or stop waiting for it; the later outcome is not reported."""
        if not self.decided:
            self._error = error
        self._decide()

    def _decide(self) -> None:
        if self.decided:
            return
        self.decided = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("answering %s failed", type(self.change).__name__)


class Proposals:
    """Decides proposals in order.

    Args:
        take: judges the change of a proposal and lets it take effect, step by step; returns the effects.
        later: takes the steps that are left when many were taken.
    """

    def __init__(self, take: Callable[[Pending], Iterator[None]], later: Later) -> None:
        self._take = take  # decides one
        self._later = later  # takes the steps that are left
        self._waiting: deque[Pending] = deque()  # not yet begun
        self._under_way: Iterator[None] | None = None  # the steps of all; None where none waits

    def add(self, pending: Pending) -> None:
        """Decide a proposal after all earlier ones; at once if possible."""
        self._waiting.append(pending)
        if self._under_way is None:
            steps = self._under_way = self._decide_all()
            for count, _ in enumerate(steps, 1):
                if count == STEPS_AT_ONCE:
                    self._later("changing definitions", steps)
                    break

    def finish(self) -> None:
        """Decide all proposals now. Not for listeners of changes, which may only add proposals."""
        for _ in self._under_way or ():
            pass

    def _decide_all(self) -> Iterator[None]:
        while self._waiting:
            pending = self._waiting.popleft()
            try:
                yield from self._take(pending)
            except AMQPError as error:
                pending.refuse(error)
            except Exception as error:
                log.exception("%s failed", type(pending.change).__name__)
                pending.refuse(error)
            if self._waiting:
                yield
        self._under_way = None
