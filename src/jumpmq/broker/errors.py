"""Errors of the broker that are none of the protocol."""


class BrokerError(Exception):
    """The broker cannot start; the text is one line that says why."""


class NotYet(Exception):
    """What a method asks for cannot be told while something is done in steps: it is to be acted on again, soon."""
