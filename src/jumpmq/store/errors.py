"""Errors raised by the store."""


class StoreError(Exception):
    """A failure of the store, as one line of text with the problem and the remedy."""


class DirectoryInUse(StoreError):
    """A different process uses the data directory."""


class Unsynced(StoreError):
    """A sync failed: written octets may be missing on disk even if later syncs succeed. Only the next start writes the
    octets again.
    """


class Unreadable(StoreError):
    """The disk cannot return stored data. A later read may succeed, so the data does not count as lost.

    Attributes:
        reason: the system's error message, without the name of the file.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class Damaged(StoreError):
    """A file's content does not match its checksums or format."""
