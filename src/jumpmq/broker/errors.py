"""Errors of the broker that are none of the protocol."""


class BrokerError(Exception):
    """The broker cannot start; the text is one line that says why."""
