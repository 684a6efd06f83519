"""Users without permission do not affect other readers of a queue; a removed user does not return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.http.api import API
from tests.waiting import until
from tests.wire import (
    PROTOCOL_HEADER,
    Basic,
    ChannelClosed,
    Connection,
    Exchange,
    closing,
    dial,
    login,
)

import jumpmq


@pytest.fixture
def broker() -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running() as running:
        yield running


def add_user(broker: jumpmq.RunningBroker, name: str, pattern: str, tags: str = "management") -> API:
    api = API(broker.http_url)
    api.request("PUT", "users", name, json={"password": name, "tags": tags})
    api.request("PUT", "permissions", "/", name, json=dict.fromkeys(("configure", "write", "read"), pattern))
    return API(broker.http_url.replace("guest:guest", f"{name}:{name}"))


def test_a_group_of_readers_is_moved_by_who_may_read_its_queues(broker: jumpmq.RunningBroker) -> None:
    api, mallory = API(broker.http_url), add_user(broker, "mallory", "^mine")
    with closing(login(broker.port)) as connection:
        channel = connection.channel()
        channel.queue("secret", exclusive=False)
        for _ in range(10):
            channel.publish("", "secret", b"x")
        assert channel.ready("secret") == 10
        offset = api.post("readers", "/", "g", "reserve", body={"queues": {"secret": 0}})["queues"]["secret"]["offset"]
        attempts = [
            mallory.request("POST", "readers", "/", "g", "reserve", json={"queues": {"secret": 0}}),
            mallory.request("POST", "readers", "/", "g", "commit", json={"queues": {"secret": offset}}),
            mallory.request("POST", "readers", "/", "g", "commit", json={"queues": {"secret": 1 << 40}}),
        ]
        assert {answer.status_code for answer in attempts} == {401}
        # mallory's group of the same name is separate.
        mallory.request("POST", "readers", "/", "g", "renew")
        mallory.request("POST", "readers", "/", "g", "open", json={"query": "mine", "lease": 60})
        mallory.request("DELETE", "readers", "/", "g")
        shown = mallory.request("GET", "readers", "/", "g")
        assert "secret" not in shown.text
        assert "secret" not in mallory.request("GET", "readers").text
        assert "secret" not in mallory.request("GET", "readers", "/").text
        assert api.get("queues", "/", "secret", columns="messages") == {"messages": 10}
        assert api.get("readers", "/", "g")["queues"]["secret"]["offset"] == offset


def test_guest_does_not_come_back_with_the_last_virtual_host(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as broker:
        root = add_user(broker, "root", ".*", "administrator")
        assert root.request("DELETE", "users", "guest").status_code == 204
        assert root.request("DELETE", "vhosts", "/").status_code == 204
    with jumpmq.running(data_dir=tmp_path) as broker:
        url = f"http://127.0.0.1:{broker.http_port}/api/whoami"
        assert [requests.get(url, auth=(one, one)).status_code for one in ("guest", "root")] == [401, 200]


def test_who_closes_while_logging_in_is_not_logged_in(broker: jumpmq.RunningBroker) -> None:
    with dial(broker.port) as connection:
        connection.send(PROTOCOL_HEADER)
        connection.expect(Connection.Start)
        connection.send_method(0, Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        connection.send_method(0, Connection.Close(200, "bye", 0, 0))
        connection.expect(Connection.CloseOk)
        login(broker.port).close()  # takes as long as the login that was broken off
        with suppress(TimeoutError):
            assert connection.read_octets(0.1) == b""
        until(lambda: API(broker.http_url).get("connections") == [])


def test_a_nested_list_is_hashed_as_anything_is(broker: jumpmq.RunningBroker) -> None:
    with closing(login(broker.port)) as connection:
        channel = connection.channel()
        channel.exchange("hashed", "x-consistent-hash", arguments={"hash-header": "h"})
        queue = channel.queue()
        channel.bind(queue, "hashed", "1")
        nested: list[Any] = [[[1, ["a", [True]]]], {"a": [[], {}]}, [None, 1.5]]
        for value in nested:
            channel.publish("hashed", "", b"x", Basic.Properties(headers={"h": value}))
        assert channel.ready(queue) == 3


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (
            ("PUT", "permissions", "/", "paul"),
            (403, "write access to exchange 'x' in vhost '/' refused for user 'paul'"),
        ),
        (
            ("DELETE", "permissions", "/", "paul"),
            (403, "write access to exchange 'x' in vhost '/' refused for user 'paul'"),
        ),
        (("DELETE", "exchanges", "/", "x"), (404, "no exchange 'x' in vhost '/'")),
    ],
)
def test_what_was_allowed_before_is_refused_once_it_is_not(
    broker: jumpmq.RunningBroker, change: tuple[str, str, str, str], refusal: tuple[int, str]
) -> None:
    add_user(broker, "paul", ".*")
    with closing(login(broker.port, user="paul", password="paul")) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.exchange("x", "direct", durable=False)
        for _ in range(2):
            channel.publish("x", "k", b"")
            channel.wait_for_confirms()
        nothing = dict.fromkeys(("configure", "write", "read"), "")
        API(broker.http_url).request(*change, json=nothing)
        channel.publish("x", "k", b"")
        with pytest.raises(ChannelClosed) as refused:
            channel.wait_for_confirms()
        assert (refused.value.code, refused.value.text.split(" - ")[1]) == refusal


def test_an_exchange_that_is_declared_anew_is_the_one_published_to(broker: jumpmq.RunningBroker) -> None:
    with closing(login(broker.port)) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue()
        for kind in ("fanout", "direct", "topic", "fanout"):
            channel.exchange("x", kind, durable=False)
            channel.bind(queue, "x")
            for _ in range(2):
                channel.publish("x", "any", b"")
            channel.wait_for_confirms()
            assert len(channel.bodies(queue)) == (2 if kind == "fanout" else 0)
            channel.call(Exchange.Delete(exchange="x"))
