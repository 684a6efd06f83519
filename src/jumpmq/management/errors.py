"""Errors between a client and the management port; the text of an error is one line for the caller."""


class ManagementError(Exception):
    """A request has failed."""


class InvalidRequest(ManagementError):
    """The request is invalid: URL, name or TLS file. Nothing was sent."""


class NoAnswer(ManagementError):
    """No answer, or an incomplete answer.

    Attributes:
        refused: True if no process listens at the address.
    """

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class NotManagement(ManagementError):
    """The answer is not from a management port."""


class Refusal(ManagementError):
    """The broker answered with an error.

    Attributes:
        code: the HTTP status.
        reason: the broker's reason; empty without a reason.
    """

    def __init__(self, text: str, code: int, reason: str) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason

    @property
    def is_down(self) -> bool:
        """True if the resource exists at a node or worker that does not answer."""
        return "is down or inaccessible" in self.reason

    @property
    def is_absent(self) -> bool:
        """True if the resource does not exist."""
        return self.code == 404 and not self.is_down
