"""Errors raised by the store."""


class StoreError(Exception):
    """An error preventing the store from working, as one line with the problem and the remedy."""


class DirectoryInUse(StoreError):
    """A different process uses the data directory."""


class Unsynced(StoreError):
    """Written octets may not be on disk, and may never be, though later syncs succeed: only a start can write them
    again.
    """


class Unreadable(StoreError):
    """The disk cannot return stored data: a later read may succeed, so nothing is given up.

    Attributes:
        reason: what the system says, without the name of the file.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class Damaged(StoreError):
    """An untrustworthy file."""
