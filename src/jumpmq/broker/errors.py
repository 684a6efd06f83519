"""Errors of the broker that are none of the protocol."""


class BrokerError(Exception):
    """The broker cannot start; the text is one line that says why."""


class HomeDown(Exception):
    """Another home does not answer.

    Attributes:
        home: its number.
    """

    def __init__(self, home: int, reason: object) -> None:
        super().__init__(f"home {home} does not answer: {reason}")
        self.home = home
