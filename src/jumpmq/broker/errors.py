"""The error of a broker that cannot start."""


class BrokerError(Exception):
    """The broker cannot start; the text is one line that says why."""
