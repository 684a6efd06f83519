"""The management ports of a cluster's nodes: every port shows all nodes, and meters the local node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.commands import run
from tests.http.api import API, publish
from tests.nodes.homes import NODES, peers_of
from tests.nodes.management.running_homes import RunningHomes, running_nodes
from tests.waiting import until

from jumpmq.http.history import NODE
from jumpmq.nodes.management import asking
from jumpmq.nodes.management.client import HomeClient
from jumpmq.nodes.transport.calls import Caller
from jumpmq.nodes.transport.handshake import CALL, Handshake
from jumpmq.nodes.transport.tls import TLSSockets
from jumpmq.testing.etcd import etcd, is_installed
from jumpmq.testing.own import JumpMQ


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RunningHomes]:
    with running_nodes(3, tmp_path) as running:
        yield running


def api_of(running: RunningHomes, home: int) -> API:
    return API(f"http://guest:guest@127.0.0.1:{running.brokers[home - 1].listening.port_of('http')}")


@pytest.fixture
def connections(nodes: RunningHomes) -> Iterator[list[pika.BlockingConnection]]:
    found = [pika.BlockingConnection(pika.URLParameters(nodes.url(home))) for home in (1, 2, 3)]
    yield found
    for connection in found:
        with suppress(pika.exceptions.AMQPError):
            connection.close()


def declare(connections: list[pika.BlockingConnection]) -> None:
    """Declare a durable queue per node, with a message."""
    for home, connection in enumerate(connections, 1):
        channel = connection.channel()
        channel.queue_declare(f"q{home}", durable=True)
        publish(channel, f"q{home}", [b"message"])


def test_every_node_tells_the_same(nodes: RunningHomes, connections: list[pika.BlockingConnection]) -> None:
    declare(connections)
    for home in (1, 2, 3):
        api = api_of(nodes, home)
        assert {one["name"]: (one["node"], one["messages"]) for one in api.get("queues")} == {
            f"q{number}": (NODES[number - 1], 1) for number in (1, 2, 3)
        }
        found = {one["name"]: one for one in api.get("nodes")}
        assert [found[node]["running"] for node in NODES] == [True] * 3
        assert [found[node]["sockets_used"] for node in NODES] == [1, 1, 1]
        assert {one["node"] for one in api.get("connections")} == set(NODES)
        assert {one["node"] for one in api.get("channels")} == set(NODES)


def test_all_counters_of_a_node_are_one_request_a_second(
    nodes: RunningHomes, connections: list[pika.BlockingConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, bytes]] = []
    ask = HomeClient.ask

    async def noted(self: HomeClient, method: str, target: bytes, *args: Any, **options: Any) -> Any:
        asked.append((self.home, target))
        return await ask(self, method, target, *args, **options)

    monkeypatch.setattr(HomeClient, "ask", noted)
    time.sleep(4)
    counts = Counter(asked)
    for home in (1, 2, 3):
        assert 4 <= counts.pop((home, b"/home/counts")) <= 10  # of two nodes
    assert not counts


def test_rates_of_a_node_of_an_earlier_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates of an old node are requested one kind at a time: it does not know the joint request."""
    routes = asking.routes
    monkeypatch.setattr(asking, "routes", lambda *given: [one for one in routes(*given) if one.path == asking.PATH])
    with running_nodes(2, tmp_path) as nodes, closing(pika.BlockingConnection(pika.URLParameters(nodes.url(2)))) as at:
        api, channel = api_of(nodes, 1), at.channel()
        channel.queue_declare("there", durable=True)
        channel.basic_consume("there", lambda *_: None, auto_ack=True)

        def rates() -> list[float]:
            channel.basic_publish("", "there", b"x" * 1000)
            at.process_data_events(0.05)
            (queue,), (connection,), (of_channel,), (consumer,) = (
                api.get(kind) for kind in ("queues", "connections", "channels", "consumers")
            )
            return [
                queue["message_stats"]["publish_details"]["rate"],
                api.get("overview")["message_stats"]["publish_details"]["rate"],
                connection["recv_oct_details"]["rate"],
                of_channel["message_stats"]["publish_details"]["rate"],
                consumer["messages_delivered_details"]["rate"],
            ]

        until(lambda: all(rate > 0 for rate in rates()))
        assert {one["name"] for one in api.get("nodes") if one["running"]} == set(NODES[:2])


def test_a_queue_deleted_at_another_node_lowers_no_counter(
    nodes: RunningHomes, connections: list[pika.BlockingConnection]
) -> None:
    channel, api = connections[2].channel(), api_of(nodes, 1)
    channel.queue_declare("deleted")
    publish(channel, "deleted", [b"x"] * 100)
    for _ in range(100):
        channel.basic_get("deleted", auto_ack=True)

    def delivered() -> list[int]:
        stats = api.get("overview", msg_rates_age=60, msg_rates_incr=1)["message_stats"]
        return [one["sample"] for one in reversed(stats["deliver_get_details"]["samples"])]

    until(lambda: delivered()[-1:] == [100])
    channel.queue_delete("deleted")
    time.sleep(3)
    found = delivered()
    assert found == sorted(found)


def test_what_a_node_that_is_down_has_is_shown_as_down(
    nodes: RunningHomes, connections: list[pika.BlockingConnection]
) -> None:
    declare(connections)
    nodes.run(nodes.leave(3))
    api = api_of(nodes, 1)
    until(lambda: not api.get("nodes", NODES[2])["running"])
    assert {one["name"]: one["state"] for one in api.get("queues")} == {"q1": "running", "q2": "running", "q3": "down"}
    refused = api.request("POST", "queues", "/", "q3", "get", json={"count": 1, "ackmode": "ack_requeue_true"})
    assert refused.status_code == 404
    assert "home node 'three@host' of durable queue 'q3' in vhost '/' is down or inaccessible" in refused.text
    assert api.request("GET", "health", "checks", "local-alarms").status_code == 200
    assert api.request("GET", "health", "checks", "node-is-mirror-sync-critical").status_code == 200


def test_metrics_and_local_checks_are_those_of_the_node(
    nodes: RunningHomes, connections: list[pika.BlockingConnection]
) -> None:
    declare(connections)
    for home in (1, 2, 3):
        api = api_of(nodes, home)
        text = api.session.get(f"{api.address}/metrics/per-object").text
        messages = [line for line in text.splitlines() if line.startswith("rabbitmq_queue_messages{")]
        assert len(messages) == 1
        assert f'queue="q{home}"' in messages[0]
        assert "rabbitmq_connections 1.0" in text
    nodes.brokers[1].set_limits(memory=1)
    until(lambda: api_of(nodes, 2).request("GET", "health", "checks", "local-alarms").status_code == 503)
    assert api_of(nodes, 1).request("GET", "health", "checks", "local-alarms").status_code == 200
    everywhere = api_of(nodes, 1).request("GET", "health", "checks", "alarms")
    assert (everywhere.status_code, everywhere.json()["alarms"][0]["node"]) == (503, NODES[1])


def test_an_operators_word_to_a_node_is_for_that_node(
    nodes: RunningHomes, connections: list[pika.BlockingConnection]
) -> None:
    api = api_of(nodes, 2)
    assert api.request("PUT", "nodes", NODES[1], "listeners", json={"suspended": True}).status_code == 204
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(nodes.url(2)))
    pika.BlockingConnection(pika.URLParameters(nodes.url(3))).close()
    assert api.request("PUT", "nodes", NODES[2], "limits", json={"memory_limit": "1GB"}).status_code == 204
    assert [api.get("nodes", node)["mem_limit"] == 10**9 for node in NODES] == [False, False, True]
    assert api.get("nodes", NODES[2], "environment")["node"] == NODES[2]
    assert api.request("PUT", "nodes", "four@host", "limits", json={}).status_code == 404
    nodes.run(nodes.leave(3))
    until(lambda: not api.get("nodes", NODES[2])["running"])
    refused = api.request("GET", "nodes", NODES[2], "memory")
    assert (refused.status_code, refused.json()["reason"]) == (503, "Node three@host could not be contacted")


def test_what_another_node_is_asked_needs_the_rights_for_it(nodes: RunningHomes) -> None:
    api_of(nodes, 1).request("PUT", "users", "watcher", json={"password": "watcher", "tags": "monitoring"})
    watcher = API(f"http://watcher:watcher@127.0.0.1:{nodes.brokers[0].listening.port_of('http')}")
    assert watcher.request("GET", "nodes", NODES[1], "memory").status_code == 200
    assert watcher.request("PUT", "nodes", NODES[1], "listeners", json={"suspended": True}).status_code == 401


@pytest.mark.slow
def test_jumpmqctl_names_nodes(nodes: RunningHomes, connections: list[pika.BlockingConnection]) -> None:
    declare(connections)
    api = api_of(nodes, 1)

    def ctl(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run("jumpmqctl", "-q", *arguments, JUMPMQ_URL=api.address.replace("//", "//guest:guest@"))

    assert ctl("-n", NODES[1], "set_vm_memory_high_watermark", "absolute", "1GB").returncode == 0
    assert [api.get("nodes", node)["mem_limit"] == 10**9 for node in NODES] == [False, True, False]
    status = json.loads(ctl("-n", NODES[1], "status", "--formatter", "json").stdout)
    assert status["node"] == NODES[1]
    assert nodes.brokers[1].port in [one["port"] for one in status["listeners"]]
    assert nodes.brokers[0].port not in [one["port"] for one in status["listeners"]]
    cluster = json.loads(ctl("cluster_status", "--formatter", "json").stdout)
    assert set(cluster["listeners"]) == set(cluster["running_nodes"]) == set(NODES)
    refused = ctl("-n", NODES[1], "stop")
    assert (refused.returncode, "is node one@host, not two@host" in refused.stderr) == (69, True)
    others = ctl("-n", "four@host", "ping").stderr
    assert others.endswith(f"not four@host; the nodes of its cluster are {', '.join(sorted(NODES))}\n")
    assert ctl("await_online_nodes", "3").returncode == 0
    await_four = "await_online_nodes", "4", "-t", "1"
    late = until(lambda: found if (found := ctl(*await_four)).returncode == 70 else None)  # 69 for slow answers
    assert "Not enough nodes joined one@host's cluster" in late.stderr

    name = same_name(nodes, (2, 3))
    assert ctl("close_connection", name, "enough").returncode != 0
    assert ctl("-n", NODES[1], "close_connection", name, "enough").returncode == 0
    assert is_closed(connections[1])

    nodes.run(nodes.leave(3))
    until(lambda: not api.get("nodes", NODES[2])["running"])
    assert ctl("-n", NODES[1], "check_running").returncode == 0
    assert ctl("-n", NODES[2], "check_running").returncode == 69
    assert "node three@host does not run" in ctl("-n", NODES[2], "status").stderr
    assert ctl("-s", "list_queues", "name", "node", "--offline").stdout == "q3\tthree@host\n"
    assert ctl("-s", "list_queues", "name", "--online").stdout.split() == ["q1", "q2"]
    assert ctl("-s", "-n", NODES[1], "list_queues", "name", "--local").stdout == "q2\n"
    assert ctl("-s", "list_queues", "name", "home").stdout == "q1\t1\nq2\t2\nq3\t3\n"
    down = "home node 'three@host' of durable queue 'q3' in vhost '/' is down or inaccessible"
    for verb in ("purge_queue", "explain", "delete_queue"):
        refused = ctl(verb, "q3")
        assert (refused.returncode, down in refused.stderr) == (69, True), refused.stderr


def test_what_a_node_is_needed_for(nodes: RunningHomes, connections: list[pika.BlockingConnection]) -> None:
    """A node is critical for quorum queues and streams without copies, not for classic queues, as in RabbitMQ."""
    declare(connections)
    check = ("GET", "health", "checks", "node-is-quorum-critical")
    assert api_of(nodes, 2).request(*check).json() == {"status": "ok"}
    channel = connections[1].channel()
    channel.queue_declare("replicated", durable=True, arguments={"x-queue-type": "quorum"})
    failed = api_of(nodes, 2).request(*check)
    assert (failed.status_code, [one["name"] for one in failed.json()["queues"]]) == (503, ["replicated"])
    assert "would lose their quorum" in failed.json()["reason"]
    assert api_of(nodes, 1).request(*check).status_code == 200

    api = api_of(nodes, 1)
    api.request("PUT", "policies", "/", "p", json={"pattern": "^x$", "definition": {"shards-per-node": 2}})
    channel.exchange_declare("x", "x-modulus-hash", durable=True)
    shards = [{"vhost": "/", "exchange": "x", "shards": 2, "messages": 0}]
    until(lambda: api.get("nodes", NODES[2], "contents") == {"queues": 3, "kept": 3, "messages": 1, "shards": shards})
    assert {one["name"] for one in api.get("queues", node=NODES[1])} >= {"q2", "replicated"}
    assert {one["node"] for one in api.get("queues", node=NODES[1])} == {NODES[1]}
    assert api.request("GET", "nodes", "four@host", "contents").status_code == 404
    assert [one["name"] for one in api.get("nodes", NODES[1])["cluster_links"]] == [NODES[0], NODES[2]]
    publisher = connections[0].channel()
    until(
        lambda: (
            publisher.basic_publish("", "q2", b"x" * 1000)
            or any(one["send_oct_details"]["rate"] for one in api.get("nodes", NODES[0])["cluster_links"])
        )
    )
    until(lambda: api.get("nodes", NODES[0])["workers"][0]["cpu"] > 0)
    assert set(api.get("history", "nodes", NODES[1])) == {"interval", "at", *NODE}


def test_who_does_not_know_the_secret_cannot_call(nodes: RunningHomes) -> None:
    """A client without the secret gets no further than TLS."""
    ways = peers_of(nodes.brokers[0]).links._ways
    assert isinstance(ways, TLSSockets)
    directory = ways._directory
    host, port = directory.addresses[1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def call(secret: str) -> bytes:
        def handshake(transport: asyncio.BaseTransport) -> Handshake:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return Handshake(True, 2, "boot", "cluster", secret, certificate, CALL)

        _, caller = await asyncio.get_running_loop().create_connection(
            lambda: Caller(handshake, 1, 5.0), host, port, ssl=context
        )
        reader, writer = await caller.streams()
        writer.write(b'POST /home/figures HTTP/1.1\r\nHost: home\r\nContent-Length: 15\r\n\r\n["connections"]')
        answer = await reader.readline()
        writer.close()
        return answer

    assert b"200 OK" in asyncio.run(call("s" * 64))
    with pytest.raises(OSError, match="home 1"):
        asyncio.run(call("t" * 64))
    with socket.create_connection((host, port)) as plain:  # without TLS
        plain.sendall(b"POST /home/figures HTTP/1.1\r\nHost: home\r\nContent-Length: 15\r\n\r\n[]")
        assert b"HTTP" not in plain.recv(1000)


def same_name(running: RunningHomes, homes: Iterable[int]) -> str:
    """Give connections of several nodes a common client address, as behind address translation."""
    for home in homes:
        for connection in running.brokers[home - 1].connections:
            connection.name = "10.0.0.1:40000 -> 10.0.0.2:5672"
    return "10.0.0.1:40000 -> 10.0.0.2:5672"


def test_of_two_connections_of_one_name_the_one_that_is_meant_is_closed(
    nodes: RunningHomes, connections: list[pika.BlockingConnection]
) -> None:
    name, api = same_name(nodes, (2, 3)), api_of(nodes, 1)
    for connection in connections:
        connection.channel()
    refused = api.request("DELETE", "connections", name)
    assert refused.status_code == 400
    assert refused.json()["reason"].endswith("exists on several nodes (three@host, two@host): add ?node=NODE")
    assert api.request("GET", "channels", f"{name} (1)").status_code == 400
    assert api.get("channels", f"{name} (1)", node=NODES[2])["node"] == NODES[2]
    assert api.request("GET", "connections", name, params={"node": NODES[0]}).status_code == 404
    assert api.request("DELETE", "connections", name, params={"node": NODES[2]}).status_code == 204
    assert is_closed(connections[2])
    until(lambda: {one["node"] for one in api.get("connections")} == set(NODES[:2]))
    assert api.request("DELETE", "connections", name).status_code == 204
    assert is_closed(connections[1])
    connections[0].process_data_events(0)


def test_a_user_closes_the_own_connection_where_another_has_the_same_name(
    nodes: RunningHomes, connections: list[pika.BlockingConnection]
) -> None:
    api = api_of(nodes, 1)
    api.request("PUT", "users", "other", json={"password": "other", "tags": "management"})
    api.request("PUT", "permissions", "/", "other", json={"configure": "", "write": "", "read": ""})
    credentials = pika.PlainCredentials("other", "other")
    port = nodes.brokers[0].port
    own = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, credentials=credentials))
    name = same_name(nodes, (1, 3))
    of_other = API(f"http://other:other@127.0.0.1:{nodes.brokers[2].listening.port_of('http')}")
    assert of_other.request("DELETE", "connections", name, params={"node": NODES[2]}).status_code == 401
    assert of_other.request("DELETE", "connections", name).status_code == 204
    assert is_closed(own)
    until(lambda: [one["user"] for one in api.get("connections")] == ["guest"] * 3)


def is_closed(connection: pika.BlockingConnection) -> bool:
    """Return True if the broker closes a connection."""
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(10)
    return True


@pytest.mark.slow
def test_a_node_that_hangs_or_is_killed_delays_answers_but_not_for_long(tmp_path: Path) -> None:
    """A hanging or killed node delays answers briefly; then the node and its queues are shown as down."""
    if not is_installed():
        pytest.skip("etcd is not installed")
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(tmp_path))
        options = ("--cluster", "test", "--etcd", member.url)
        processes = [stack.enter_context(JumpMQ(tmp_path / node, node, options)) for node in NODES]
        for process in processes:
            connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", process.port))
            connection.channel().queue_declare(f"of-{process.node}", durable=True)
            connection.close()
        api = API(f"http://127.0.0.1:{processes[0].http_port}")
        until(lambda: running(api) == set(NODES))
        hanging = processes[2]
        os.kill(hanging.pid, signal.SIGSTOP)
        try:
            # Forwarded to the hanging node, before its failure is known.
            refused = api.request("DELETE", "queues", "/", f"of-{NODES[2]}", "contents")
            assert "is down or inaccessible" in refused.json()["reason"]
            assert states(api) == {NODES[0]: "running", NODES[1]: "running", NODES[2]: "down"}
            assert running(api) == {NODES[0], NODES[1]}
            processes[1].kill()
            until(lambda: running(api) == {NODES[0]})
            assert states(api) == {NODES[0]: "running", NODES[1]: "down", NODES[2]: "down"}
        finally:
            os.kill(hanging.pid, signal.SIGCONT)
        until(lambda: running(api) == {NODES[0], NODES[2]})
        until(lambda: states(api)[NODES[2]] == "running")


@pytest.mark.slow
def test_metrics_of_all_nodes_name_the_cluster_by_its_identity(tmp_path: Path) -> None:
    if not is_installed():
        pytest.skip("etcd is not installed")
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(tmp_path))
        options = ("--cluster", "test", "--etcd", member.url)
        processes = [stack.enter_context(JumpMQ(tmp_path / node, node, options)) for node in NODES[:2]]
        found = [identity_of(process) for process in processes]
        assert [one["rabbitmq_node"] for one in found] == list(NODES[:2])
        identity = API(f"http://127.0.0.1:{processes[0].http_port}").get("overview")["identity"]
        assert [one["rabbitmq_cluster_permanent_id"] for one in found] == [identity, identity]


def identity_of(process: JumpMQ) -> dict[str, str]:
    """Return the identity of a node, from the labels of its metrics."""
    answer = API(f"http://127.0.0.1:{process.http_port}").session.get(f"http://127.0.0.1:{process.http_port}/metrics")
    families = text_string_to_metric_families(answer.text)
    return next(dict(one.samples[0].labels) for one in families if one.name == "rabbitmq_identity_info")


def states(api: API) -> dict[str, str]:
    """Return the states of queues, by the node in the queue's name."""
    return {one["name"].removeprefix("of-"): one["state"] for one in api.get("queues")}


def running(api: API) -> set[str]:
    return {one["name"] for one in api.get("nodes") if one["running"]}


def test_readers_go_on_without_a_node_that_is_down(
    nodes: RunningHomes, connections: list[pika.BlockingConnection]
) -> None:
    """Readers go on without a stopped node; its queues stay assigned, unless a reader is to be complete."""
    declare(connections)
    group, queues = ("readers", "/", "group"), ["q1", "q2", "q3"]
    api = api_of(nodes, 1)
    session = api.post(*group, "open", body={"query": "one"})["session"]
    first = api.post(*group, "reserve", body={"queues": dict.fromkeys(queues), "session": session})["queues"]
    done = {queue: first[queue]["offset"] for queue in queues}
    nodes.run(nodes.leave(3))
    until(lambda: not api.get("nodes", NODES[2])["running"])
    publish(connections[0].channel(), "q1", [b"more"])
    wanted = {"queues": done, "session": session}
    then = api.post(*group, "reserve", body=wanted)["queues"]
    assert (then["q1"]["messages"], then["q2"]["messages"]) == (1, 0)
    assert then["q3"] == {"offset": done["q3"], "messages": 0, "ready": 0, "oldest": None, "down": True}
    assert api.request("POST", *group, "reserve", json=wanted | {"last_seq": {"q3": 9}}).status_code == 404
    again = api.post(*group, "open", body={"query": "one"})["session"]
    api.post(*group, "renew", body={"session": again})
    assert api.post(*group, "reserve", body={"queues": done, "session": again})["queues"]["q1"]["messages"] == 1
    assert set(api.get(*group)["queues"]) == {"q1", "q2"}


def test_every_node_is_alive(nodes: RunningHomes) -> None:
    for _ in range(2):
        for home in (1, 2, 3):
            assert api_of(nodes, home).get("aliveness-test", "/") == {"status": "ok"}
