"""The errors that the store raises."""


class StoreError(Exception):
    """What keeps the store from working, as one line that says what is wrong and what to do."""


class DirectoryInUse(StoreError):
    """Another process has the data directory."""


class Unsynced(StoreError):
    """Files of streams that were written may not be on disk, nor get there: only a start can write them again."""


class Unreadable(StoreError):
    """The disk does not give what it has: it may later, so nothing is given up for that.

    Attributes:
        reason: what the system says, without the name of the file.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class Damaged(StoreError):
    """A file that cannot be trusted."""
