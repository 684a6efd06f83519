"""The one error of this floor."""


class JumpMQError(Exception):
    """A wrong option, or a broker that cannot do what was asked; the text says which and what to do."""


class NotThere(JumpMQError):
    """The broker knows no such virtual host, exchange, queue or group."""
