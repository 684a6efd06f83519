"""Names of queues and exchanges as clients give them."""


def stripped(name: str) -> str:
    """The name without carriage returns and line feeds: so RabbitMQ takes one that is declared, deleted or bound."""
    return name.replace("\r", "").replace("\n", "")
