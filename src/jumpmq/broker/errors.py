"""Errors of the broker that are none of the protocol."""


class BrokerError(Exception):
    """The broker cannot start; the text is one line that says why."""


class HomeLeft(BrokerError):
    """All that was at this home is at others, and it is no part of the broker any more."""


class NotCommitted(Exception):
    """What was changed is not on disk, and it is not known when it will be; the text says why. It may be later."""


class HomeUnreachable(Exception):
    """Another home does not answer.

    Attributes:
        home: its number.
    """

    def __init__(self, home: int, reason: object) -> None:
        super().__init__(f"home {home} does not answer: {reason}")
        self.home = home
