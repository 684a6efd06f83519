"""SASL mechanisms PLAIN and AMQPLAIN: reading of credentials, and the refusal of a login."""

from jumpmq.amqp.errors import AccessRefused, AMQPError
from jumpmq.amqp.fields import read_table

MECHANISMS = "AMQPLAIN PLAIN"


def read_credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """Return user and password from the response in ``connection.start-ok``.

    Raises:
        AccessRefused: the mechanism is unknown or the response malformed.
    """
    try:
        if mechanism == "PLAIN":
            _, user, password = response.split(b"\0")
            return user.decode(), password.decode()
        if mechanism == "AMQPLAIN":
            fields, _ = read_table(len(response).to_bytes(4) + response)
            values = {field.name: field.value for field in fields}
            user, password = values["LOGIN"], values["PASSWORD"]
            if isinstance(user, str) and isinstance(password, str):
                return user, password
    except (ValueError, KeyError, AMQPError):
        pass
    raise refusal(mechanism)


def refusal(mechanism: str) -> AccessRefused:
    """Return RabbitMQ's answer to a failed login, without the reason."""
    return AccessRefused(
        f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
    )
