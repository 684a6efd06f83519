"""The one error that the store raises."""


class StoreError(Exception):
    """What keeps the store from working, as one line that says what is wrong and what to do."""
