"""A client that changes its mind while it is being logged in."""

import pytest
from pamqp.frame import marshal
from tests.wire import PROTOCOL_HEADER, Connection, Hangup, dial

from jumpmq import RunningBroker


@pytest.mark.parametrize("password", ["guest", "sesame"])
def test_after_a_close_in_mid_login_the_handshake_does_not_go_on(broker: RunningBroker, password: str) -> None:
    with dial(broker.port) as connection:
        connection.send(PROTOCOL_HEADER)
        connection.expect(Connection.Start)
        start_ok = Connection.StartOk({}, "PLAIN", f"\0guest\0{password}", "en_US")
        connection.send(marshal(start_ok, 0) + marshal(Connection.Close(200, "never mind", 0, 0), 0))
        connection.expect(Connection.CloseOk)
        with pytest.raises((TimeoutError, Hangup)) as silence:
            connection.next_event(0, timeout=1.0)
        assert silence.type is TimeoutError  # neither connection.tune nor the end: closing the socket is the client's
