"""A data directory belongs to a home on a node; the node keeps its name after a change of the host name."""

import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.http.api import API
from tests.wire import Basic, login

import jumpmq
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.security.passwords import hash_password
from jumpmq.store import Store

PERSISTENT = Basic.Properties(delivery_mode=2)


def shards(broker: jumpmq.RunningBroker) -> list[str]:
    return sorted(one["name"] for one in API(broker.http_url).get("queues") if one["name"].startswith("sharding:"))


def test_a_host_that_is_renamed_keeps_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for host in ("first", "second", "third"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        with jumpmq.running(data_dir=tmp_path) as broker:
            api = API(broker.http_url)
            if host == "first":
                definition = {"pattern": "^amq.fanout$", "definition": {"shards-per-node": 2}}
                api.request("PUT", "policies", "/", "p", json=definition)
            names.append((api.get("overview")["node"], shards(broker)))
            assert {one["node"] for one in api.get("queues")} == {"jumpmq@first"}
    kept = [f"sharding: amq.fanout - jumpmq@first - {number}" for number in range(2)]
    assert names == [("jumpmq@first", kept)] * 3


def test_a_node_that_is_given_another_name_has_it_and_keeps_it(tmp_path: Path) -> None:
    seen, named = [], list[dict[str, Any]]([{"node": "jumpmq@one"}, {"node": "jumpmq@two"}, {}])
    for settings in named:
        with jumpmq.running(data_dir=tmp_path, **settings) as broker, login(broker.port) as connection:
            connection.channel().queue("q", durable=True, exclusive=False)
            api = API(broker.http_url)
            seen.append((api.get("overview")["node"], api.get("queues", "/", "q")["node"]))
    assert seen == [(name, name) for name in ("jumpmq@one", "jumpmq@two", "jumpmq@two")]


def test_a_data_directory_from_before_homes_is_home_1(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A data directory without a home becomes home 1: queues keep numbers and messages, and get the node's name."""
    caplog.set_level(logging.WARNING)
    old, shard = "jumpmq@old", "sharding: amq.fanout - jumpmq@old - 0"
    store = Store.open(tmp_path, on_commit=lambda number: None)
    store.put("vhost", "/", {"name": "/"})
    store.put("user", "guest", {"name": "guest", "password_hash": hash_password("guest"), "tags": ["administrator"]})
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    store.put("permissions", '["guest","/"]', {"user": "guest", "vhost": "/", **everything})
    store.put("counter", "next-queue-id", 8)
    fields = {"exclusive": False, "auto_delete": False, "arguments": [], "owner": None, "node": old}
    policy = {"vhost": "/", "name": "p", "pattern": "^amq.fanout$", "definition": {"shards-per-node": 1}}
    store.put("policy", '["/","p"]', {**policy, "priority": 0, "apply_to": "all"})
    for number, name in ((3, "q"), (7, shard)):
        store.put("queue", f'["/","{name}"]', {"vhost": "/", "name": name, "durable": True, "id": number, **fields})
        message = Message("", b"q", Properties(delivery_mode=2).encode(), b"kept", True, 1.0)
        message.seq = 1
        store.append(number, [message])
    store.put("binding", "b", {"vhost": "/", "source": "amq.fanout", "kind": "queue", "destination": shard, "key": ""})
    store.close()
    for _ in range(2):
        with jumpmq.running(data_dir=tmp_path) as broker, login(broker.port) as connection:
            assert shards(broker) == [shard]
            assert API(broker.http_url).get("overview")["node"] == old
            assert connection.channel().ready("q") == 1
            assert connection.channel().ready(shard) == 1
            connection.channel().queue("new", durable=True, exclusive=False)
    assert caplog.records == []
    store = Store.open(tmp_path, on_commit=lambda number: None)
    numbers = {value["name"]: value["id"] for kind, _, value in store.definitions() if kind == "queue"}
    store.close()
    assert numbers == {"q": 3, shard: 7, "new": (1 << 40) + 8}
