"""A method without an immediate answer: the connection pauses until woken once.

The function of a method returns a :class:`Waiting` instead of None if the method has to wait. The connection then
leaves later octets of its client unread. :meth:`Waiting.end` wakes the connection, which completes the method in a
separate event-loop iteration.
"""

from collections.abc import Callable, Iterator

from jumpmq.broker.upkeep.upkeep import Upkeep


class Waiting:
    """The wait of a method.

    Args:
        go_on: completes the method; returns a further wait, if any.
    """

    def __init__(self, go_on: "Callable[[], Waiting | None]") -> None:
        self.go_on = go_on
        self._wake: Callable[[], object] | None = None  # the connection's callback; None before :meth:`on_end`
        self._ended = False

    def on_end(self, wake: Callable[[], object]) -> None:
        """Call ``wake`` once, at the end of the wait: now if already over."""
        self._wake = wake
        if self._ended:
            wake()

    def followed_by(self, following: "Callable[[], Waiting | None]") -> "Waiting":
        """Continue with a second step when the wait is over, unless it ends with an error."""
        before = self.go_on

        def go_on() -> Waiting | None:
            more = before()
            return following() if more is None else more.followed_by(following)

        self.go_on = go_on
        return self

    def end(self) -> None:
        """End the wait."""
        if not self._ended:
            self._ended = True
            if self._wake is not None:
                self._wake()


def in_steps(upkeep: Upkeep, subject: str, steps: Iterator[None], go_on: Callable[[], Waiting | None]) -> Waiting:
    """Run steps in maintenance; the wait ends with the last step. Exceptions are raised where the method continues.

    Args:
        subject: description of the work, for the log.
        go_on: completes the method after the steps.
    """
    raised: list[Exception] = []

    def taken() -> Iterator[None]:
        try:
            yield from steps
        except Exception as error:
            raised.append(error)
        finally:
            waiting.end()

    def go_on_or_raise() -> Waiting | None:
        if raised:
            raise raised[0]
        return go_on()

    waiting = Waiting(go_on_or_raise)
    upkeep.work(subject, taken())
    return waiting
