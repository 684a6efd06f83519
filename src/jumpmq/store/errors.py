"""The errors that the store raises."""


class StoreError(Exception):
    """What keeps the store from working, as one line that says what is wrong and what to do."""


class DirectoryInUse(StoreError):
    """Another process has the data directory."""


class Damaged(StoreError):
    """A file that cannot be trusted."""
