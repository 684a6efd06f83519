"""Connections to a broker over AMQP, with this package's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from jumpmq.client import AMQPAddress, AMQPConnection, Cancelled, ConnectionLost, RequestRefused
from jumpmq.management import InvalidRequest
from jumpmq.spark.errors import BrokerAway, JumpMQError, NotThere
from jumpmq.spark.options import BrokerAddress

NOT_FOUND = 404


def address_of(broker: BrokerAddress) -> AMQPAddress:
    """Return the address in a URL; option ``vhost`` takes precedence over the URL's virtual host.

    Raises:
        JumpMQError: the URL makes no sense.
    """
    try:
        address = AMQPAddress.parse(broker.url)
    except ValueError as error:
        raise JumpMQError(f"option 'url': {error}") from None
    return address if broker.vhost == "/" else replace(address, vhost=broker.vhost)


def connect(broker: BrokerAddress) -> AMQPConnection:
    """Open a connection.

    Raises:
        BrokerAway: the broker does not answer.
        JumpMQError: user, password or virtual host are refused, or the URL makes no sense.
    """
    address = address_of(broker)
    with converted_errors(address):
        try:
            return AMQPConnection(address, broker.tls.context() if address.tls else None)
        except InvalidRequest as error:
            raise JumpMQError(str(error)) from None


@contextmanager
def converted_errors(address: AMQPAddress) -> Iterator[None]:
    """Convert errors of a connection to errors of the package."""
    try:
        yield
    except ConnectionLost as error:
        raise BrokerAway(str(error)) from None
    except Cancelled as cancelled:  # the queue has moved or was deleted: a retry finds out
        raise BrokerAway(f"{cancelled} (broker at {address})") from None
    except RequestRefused as refused:
        kind = NotThere if refused.code == NOT_FOUND else JumpMQError
        raise kind(f"{refused} (broker at {address})") from None
