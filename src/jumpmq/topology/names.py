"""Names of queues and exchanges as given by clients."""


def stripped(name: str) -> str:
    """Return the name without carriage returns and line feeds, as RabbitMQ does for declarations, deletions and
    bindings.
    """
    return name.replace("\r", "").replace("\n", "")
