"""Proposed changes: validated, applied as a whole, and answered, in order.

A proposal waits for earlier proposals, some of which take effect in steps, with clients served in between. The proposer
gets a :class:`Pending`. It is decided at once if no other proposal waits and the change takes few steps; otherwise it
calls back once. With one process the order is that of the proposals; with several, :mod:`~jumpmq.topology.log` defines
it.
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
"""Steps of changes, such as the shards of a policy, taken before the event loop serves clients."""


@dataclass(frozen=True, slots=True)
class ChangePrincipal:
    """Principal of a change, shown to operators; not used for decisions.

    Attributes:
        user: name of the user; "" for the broker itself.
        connection: name of the AMQP connection; "" without one.
        address: address of the connection or request; "" for the broker itself.
    """

    user: str = ""
    connection: str = ""
    address: str = ""


THE_BROKER = ChangePrincipal()
"""Principal of changes made by queues, and at the start."""


class Pending:
    """A proposed change and its outcome.

    Attributes:
        change: the proposed change.
        principal: principal of the change.
        decided: True once accepted or refused; see also :meth:`then`.
        effects: after acceptance, the change as it took effect, and the changes that followed from it.
        number: number of decided changes including this one, or the number assigned by a shared log; 0 before.
        limited: True if the proposer waits for a limited time while the shared log is stalled.
    """

    __slots__ = ("_callbacks", "_error", "change", "decided", "effects", "limited", "number", "principal")

    def __init__(self, change: Change, principal: ChangePrincipal) -> None:
        self.change = change
        self.principal = principal
        self.decided = False
        self.effects: list[Change] = []
        self.number = 0
        self.limited = False
        self._error: Exception | None = None  # reason of a refusal
        self._callbacks: list[Callable[[], None]] = []  # callbacks for the decision

    def result(self) -> None:
        """Return if the change was accepted. Call this after the decision.

        Raises:
            AMQPError: the change was refused, and nothing has changed.
        """
        assert self.decided
        if self._error is not None:
            raise self._error

    def then(self, callback: Callable[[], None]) -> None:
        """Call a function once the change is decided; at once if it is decided already."""
        if self.decided:
            callback()
        else:
            self._callbacks.append(callback)

    def accept(self, effects: list[Change]) -> None:
        """Note that the change has taken effect."""
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
        take: validates the change of a proposal and applies it, in steps; returns the effects.
        later: runs remaining steps later, after many steps.
    """

    def __init__(self, take: Callable[[Pending], Iterator[None]], later: Later) -> None:
        self._take = take  # decides one proposal
        self._later = later  # runs remaining steps
        self._waiting: deque[Pending] = deque()  # proposals not begun yet
        self._under_way: Iterator[None] | None = None  # steps of all waiting proposals; None without any

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
        """Decide all proposals now. Listeners of changes may only add proposals, not call this."""
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
