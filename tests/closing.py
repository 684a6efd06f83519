"""Common parts of the closing tests: the close, and the state of the socket afterwards."""

import pytest
from tests.wire import Basic, Connection, ConnectionClosed, WireConnection

CLOSE = Connection.Close(200, "bye", 0, 0)


def is_open(connection: WireConnection) -> bool:
    """Return true if the broker has neither closed nor reset the socket."""
    try:
        return bool(connection.read_octets(0.3))
    except TimeoutError:
        return True


def hear_a_close_by_the_broker(connection: WireConnection, queue: str, load: int) -> None:
    """Publish a message, cause an error, continue with ``count`` messages of 4,000 octets, and receive the error."""
    publisher = connection.channel()
    publisher.confirm_select()
    publisher.publish("", queue, b"before")
    publisher.wait_for_confirms()
    publisher.send(Basic.Qos(prefetch_size=10))  # not implemented
    connection.send(publisher.publication("", queue, bytes(4000)) * load)
    with pytest.raises(ConnectionClosed) as closed:
        publisher.next()
    assert closed.value.code == 540
