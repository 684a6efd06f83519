"""What goes wrong between Spark and a broker; each text is a sentence that says what to do."""


class JumpMQError(Exception):
    """A wrong option, or a broker that cannot do what was asked; the text says which and what to do."""


class NotThere(JumpMQError):
    """The broker knows no such virtual host, exchange, queue or group."""


class Gone(JumpMQError):
    """What was reserved is not there any more."""


class GroupInUse(JumpMQError):
    """Another query reads for the group."""


class QueueInUse(JumpMQError):
    """A query of another group, or another source of the query, reads the queue."""


class NoSession(JumpMQError):
    """The broker has forgotten the query's session."""


class BrokerAway(JumpMQError):
    """Nobody answers, or the answer broke off."""


class TooLarge(JumpMQError):
    """What was sent is too much for one request; part of it may be sent."""
