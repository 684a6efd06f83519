"""Leases, expiry and logins with tokens under a faster clock."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from tests.broker.security.tokens import ALL, KEY_SET, token
from tests.http.api import API
from tests.waiting import until
from tests.wire import Basic, login

from jumpmq.testing import JumpMQ

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
FASTER = 150
"""A higher factor would leave no time between the timed steps."""
LONG = 600
"""Seconds, four of the test's."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JumpMQ]:
    monkeypatch.setenv("LD_PRELOAD", str(LIBRARY))
    monkeypatch.setenv("FAKETIME", f"+0 x{FASTER}")
    (tmp_path / "keys").write_text(json.dumps(KEY_SET))
    with JumpMQ(
        tmp_path / "data", arguments=["--oauth-resource", "rabbit", "--oauth-keys", str(tmp_path / "keys")]
    ) as running:
        monkeypatch.delenv("LD_PRELOAD")
        yield running


def test_many_minutes_of_leases_and_expiry(broker: JumpMQ) -> None:
    api = API(f"http://guest:guest@127.0.0.1:{broker.http_port}")

    def ask(action: str, **body: object) -> dict[str, object]:
        answer: dict[str, object] = api.post("readers", "/", "g", action, body=body)
        return answer

    with login(broker.port) as connection:
        channel = connection.channel()
        for name, arguments in (
            ("read", {}),
            ("brief", {"x-message-ttl": LONG * 1000}),
            ("unused", {"x-expires": LONG * 1000}),
        ):
            channel.queue(name, durable=True, exclusive=False, arguments=arguments)
        for name in ("read", "read", "brief"):
            channel.publish("", name, b"1", Basic.Properties(delivery_mode=2))
        assert channel.ready("brief") == 1
        began = time.monotonic()
        session = ask("open", query="one", lease=LONG)["session"]
        ask("reserve", queues={"read": None}, session=session, lease=LONG)
        while time.monotonic() < began + 1.5 * LONG / FASTER:  # renewed for longer than a lease lasts
            ask("renew", session=session)
            time.sleep(LONG / FASTER / 20)
        assert api.counts("read") == (0, 2)
        assert channel.ready("brief") == 0
        until(lambda: api.request("GET", "queues", "/", "unused").status_code == 404)
        silent = time.monotonic()
        until(lambda: api.counts("read") == (2, 0))  # the lease has ended
        assert time.monotonic() > silent + LONG / FASTER / 3
        assert ask("open", query="two", lease=LONG)["session"]


def test_a_token_of_many_minutes_ends(broker: JumpMQ) -> None:
    credentials = pika.PlainCredentials("", token(*ALL, exp=time.time() + 2 * LONG))
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare("mine", exclusive=True)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="have expired"):
            connection.process_data_events(time_limit=60)
