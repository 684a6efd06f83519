"""The broker's log: logins, refusals and changes, a line per event, as text or JSON."""

import json
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from tests.cli.commands import Serving, serving


def logged(tmp_path: Path, *arguments: str) -> str:
    """The log of a broker with some activity."""
    log = tmp_path / "log"
    with log.open("w") as stderr, serving(tmp_path / "data", *arguments, stderr=stderr) as broker:
        work(broker)
        broker.process.terminate()
        broker.process.wait(60)
    return log.read_text()


def work(broker: Serving) -> None:
    url, guest = f"{broker.http_url.replace('guest:guest@', '')}/api", ("guest", "guest")
    requests.put(f"{url}/users/mallory", json={"password": "top secret", "tags": "management"}, auth=guest)
    none = {"configure": "^$", "write": "", "read": ""}
    requests.put(f"{url}/permissions/%2F/mallory", json=none, auth=guest)
    requests.get(f"{url}/users", auth=("mallory", "top secret"))
    requests.get(f"{url}/overview", auth=("mallory\nroot", "wrong"))
    parameters = pika.URLParameters(broker.amqp_url.replace("guest:guest", "mallory:top%20secret"))
    with pika.BlockingConnection(parameters) as connection, pytest.raises(pika.exceptions.ChannelClosedByBroker):
        connection.channel().queue_declare("line\nbreak")
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("", exclusive=True)
        channel.queue_bind("orders", "amq.direct", "k")
        channel.queue_delete("orders")


def test_json(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in logged(tmp_path, "--log-format", "json").splitlines()]
    audit = [line for line in lines if line["logger"] == "jumpmq.audit"]

    def found(event: str, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(line.get(name) for name in names) for line in audit if line["event"] == event]

    assert ("mallory", "127.0.0.1", "HTTP") in found("login", "user", "address", "mechanism")
    assert ("mallory", "PLAIN") in found("login", "user", "mechanism")
    assert found("login refused", "user", "mechanism", "level") == [("mallory\nroot", "HTTP", "warning")]
    assert ("guest", "mallory", "('management',)") in found("put user", "user", "name", "tags")
    assert ("guest", "mallory", "^$") in found("set permissions", "user", "of_user", "configure")
    assert found("declare queue", "user", "vhost", "name", "durable") == [("guest", "/", "orders", True)]
    assert found("bind", "source", "destination", "key") == [("amq.direct", "orders", "k")]
    assert found("delete queue", "user", "name") == [("guest", "orders")]
    refusals = found("refused", "user", "request", "reason")
    assert ("mallory", "GET /api/users", "Not administrator user") in refusals
    assert any(reason.startswith("configure access to queue 'linebreak'") for _, _, reason in refusals)
    assert "secret" not in json.dumps(audit)
    assert all({"time", "level", "message"} <= set(line) for line in lines)


def test_a_name_makes_no_line_of_text(tmp_path: Path) -> None:
    text = logged(tmp_path)
    assert r"login refused user='mallory\nroot'" in text
    assert all(" jumpmq" in line for line in text.splitlines())
    assert "secret" not in text


def test_levels(tmp_path: Path) -> None:
    text = logged(tmp_path, "--log-level", "error")
    assert text == ""
