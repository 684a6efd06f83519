"""Errors of the broker outside the protocol."""


class BrokerError(Exception):
    """The broker cannot start; the text is one line with the reason."""


class HomeLeft(BrokerError):
    """Everything at this home has moved to other homes, and the home was removed from the broker."""


class NotCommitted(Exception):
    """A change is not on disk, with unknown time of completion; the text has the reason. The change may still complete
    later.
    """


class HomeUnreachable(Exception):
    """Another home does not answer.

    Attributes:
        home: number of the home.
    """

    def __init__(self, home: int, reason: object) -> None:
        super().__init__(f"home {home} does not answer: {reason}")
        self.home = home
