"""Nodes of a cluster with several worker processes each, with a real etcd."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from fuzzing.cluster import run as strike
from tests.cli.commands import run
from tests.etcd import EtcdMember, etcd, needs_etcd

import jumpmq
from jumpmq.broker import BrokerError
from jumpmq.broker.config import homes_in
from jumpmq.testing import JumpMQ, children

pytestmark = needs_etcd

PERSISTENT = pika.BasicProperties(delivery_mode=2)
CONFIRMED = 20
ALL = {"configure": ".*", "write": ".*", "read": ".*"}


def node(directory: Path, name: str, member: EtcdMember, workers: int, *more: str) -> JumpMQ:
    options = ("--cluster", "test", "--etcd", member.url, "--workers", str(workers), *more)
    return JumpMQ(directory / name, f"{name}@host", options)


def closed(connection: pika.BlockingConnection) -> None:
    if connection.is_open:
        connection.close()


@contextmanager
def channels(*brokers: JumpMQ, each: int = 1) -> Iterator[list[Any]]:
    """Return channels with confirms, on so many connections per broker."""
    with ExitStack() as stack:
        found = []
        for broker in brokers:
            for _ in range(each):
                connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
                stack.callback(closed, connection)
                found.append(connection.channel())
                found[-1].confirm_delivery()
        yield found


def ask(broker: JumpMQ, path: str, method: str = "GET", **options: Any) -> requests.Response:
    url = f"http://guest:guest@127.0.0.1:{broker.http_port}{path}"
    return requests.request(method, url, timeout=30, **options)


def ctl(broker: JumpMQ, *words: str) -> str:
    result = run("jumpmqctl", *words, "--url", f"http://guest:guest@127.0.0.1:{broker.http_port}")
    assert result.returncode == 0, result.stderr
    return result.stdout


def until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def workers(broker: JumpMQ) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(broker, "/api/workers").json()
    return found


def filled(channel: Any, count: int, first: int = 0) -> dict[str, list[bytes]]:
    """Fill queues with messages; return the expected content of each queue."""
    wanted = {}
    for number in range(first, first + count):
        channel.queue_declare(f"q{number}", durable=True)
        wanted[f"q{number}"] = [b"%d" % one for one in range(CONFIRMED)]
        for body in wanted[f"q{number}"]:
            channel.basic_publish("", f"q{number}", body, PERSISTENT, mandatory=True)
    return wanted


def contents(channel: Any, queues: Any) -> dict[str, list[bytes]]:
    """Return and requeue the messages of queues, in order."""
    found: dict[str, list[bytes]] = {}
    for queue in queues:
        found[queue] = []
        while (got := channel.basic_get(queue))[0] is not None:
            found[queue].append(got[2])
    channel.basic_nack(0, multiple=True, requeue=True)
    for queue, bodies in found.items():
        _wait_for(channel, queue, len(bodies))
    return found


def _wait_for(channel: Any, queue: str, count: int) -> None:
    until(lambda: channel.queue_declare(queue, passive=True).method.message_count >= count)


def test_two_nodes_of_two_workers_are_one_cluster(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        options = ("--queue-leader-locator", "balanced")
        with node(tmp_path, "one", member, 2, *options) as one, node(tmp_path, "two", member, 2, *options) as two:
            with channels(one, two, each=2) as clients:
                first = clients[0]
                wanted = filled(first, 8)
                for channel in clients:
                    for queue, bodies in wanted.items():
                        bodies.append(b"more")
                        channel.basic_publish("", queue, b"more", PERSISTENT, mandatory=True)
                assert contents(clients[3], wanted) == wanted
                assert [one["queues"] for broker in (one, two) for one in workers(broker)] == [2, 2, 2, 2]

                policy = {"pattern": "^x-", "definition": {"shards-per-node": 2}, "apply-to": "exchanges"}
                ask(one, "/api/policies/%2F/sharded", "PUT", json=policy).raise_for_status()
                first.exchange_declare("x-s", "x-consistent-hash", durable=True)
                assert [one["queues"] for broker in (one, two) for one in workers(broker)] == [3, 3, 3, 3]
                for channel in clients:  # a shard each
                    channel.basic_consume("x-s", lambda *_: None, auto_ack=True)
                shards = [queue for queue in ask(two, "/api/queues").json() if queue["name"].startswith("sharding: ")]
                assert sorted((shard["name"], shard["node"]) for shard in shards) == [
                    (f"sharding: x-s - {name}@host - {number}", f"{name}@host")
                    for name in ("one", "two")
                    for number in range(2)
                ]
                until(lambda: [queue["consumers"] for queue in ask(one, "/api/queues").json()][-4:] == [1] * 4)

            shown = ask(two, "/api/nodes").json()
            assert [(found["name"], found["running"]) for found in shown] == [("one@host", True), ("two@host", True)]
            assert [one["home"] for one in workers(one)] == [1, 2]
            assert [one["home"] for one in workers(two)] == [3, 4]
            metrics = ask(two, "/metrics").text
            assert [metrics.count(f'jumpmq_home_up{{home="{home}"}} 1.0') for home in range(1, 5)] == [0, 0, 1, 1]
            both = ask(two, "/api/nodes/two@host").json()["mem_limit"]
            ctl(one, "-n", "two@host", "set_vm_memory_high_watermark", "absolute", "1GB")
            until(lambda: ask(two, "/api/nodes/two@host").json()["mem_limit"] == 10**9 != both)
            assert "Running Nodes\n\none@host\ntwo@host\n" in ctl(two, "cluster_status")
            ctl(two, "await_online_nodes", "2")
            assert ask(one, "/api/health/checks/alarms").json() == {"status": "ok"}

            for home in (2, 3):  # one worker of each node
                ask(one, f"/api/vhosts/at-{home}", "PUT", json={"home": home}).raise_for_status()
                ask(one, f"/api/permissions/at-{home}/guest", "PUT", json=ALL).raise_for_status()
            for broker, vhost in ((one, "at-2"), (two, "at-3"), (one, "at-3")):
                with ExitStack() as stack:
                    for _ in range(6):
                        where = pika.ConnectionParameters("127.0.0.1", broker.port, vhost)
                        stack.callback(pika.BlockingConnection(where).close)
            given = [broker.log.read_text().count(f"given to home {home},") for broker in (one, two) for home in (2, 3)]
            assert [bool(count) for count in given] == [True, False, False, True]


@pytest.mark.slow
def test_a_worker_that_is_killed_is_back_and_a_node_is_drained_and_forgotten(
    tmp_path: Path,
) -> None:
    with etcd(tmp_path) as (member,):
        options = ("--queue-leader-locator", "balanced")
        with node(tmp_path, "one", member, 1, *options) as one, node(tmp_path, "two", member, 2, *options) as two:
            with channels(one) as (channel,):
                wanted = filled(channel, 6)
            for pid in children(two.pid):
                os.kill(pid, signal.SIGKILL)
                until(lambda: any(queue["state"] == "down" for queue in ask(one, "/api/queues").json()))
                until(lambda: all(queue["state"] == "running" for queue in ask(one, "/api/queues").json()))
                with channels(one, two) as (here, there):
                    assert contents(here, wanted) == contents(there, wanted) == wanted

            assert "No queue is left on the node" in ctl(one, "-n", "two@host", "drain")
            assert {queue["node"] for queue in ask(two, "/api/queues").json()} == {"one@host"}
            with channels(one) as (channel,):
                assert contents(channel, wanted) == wanted
            two.stop()
            assert "0 queues were on the node" in ctl(one, "forget_cluster_node", "two@host")
            assert [found["name"] for found in ask(one, "/api/nodes").json()] == ["one@host"]
            with pytest.raises(BrokerError, match="node 'two@host' was forgotten by its cluster"):
                two.start()
            again = node(tmp_path / "again", "two", member, 2)
            with again, channels(again, each=2) as (channel, other):
                channel.queue_declare("new", durable=True)
                other.basic_publish("", "new", b"", PERSISTENT, mandatory=True)
                assert [one["home"] for one in workers(again)] == [4, 5]


@pytest.mark.slow
def test_a_node_has_more_workers_or_fewer_at_its_next_start(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,), node(tmp_path, "other", member, 1) as other:
        data = tmp_path / "node"
        with node(tmp_path, "node", member, 1) as one, channels(one) as (channel,):
            wanted = filled(channel, 2)
        with node(tmp_path, "node", member, 3, "--queue-leader-locator", "balanced") as one:
            with channels(one) as (channel,):
                wanted |= filled(channel, 4, first=2)
                channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
                channel.basic_publish("", "stream", b"kept", PERSISTENT)
            assert [found["home"] for found in workers(one)] == [2, 3, 4]
            assert all(found["queues"] for found in workers(one))
            one.kill()
        with node(tmp_path, "node", member, 2) as one:
            until(lambda: homes_in(data) == 2)
            until(lambda: [found["home"] for found in workers(one)] == [2, 3])
            ctl(one, "set_workers", "1")
            until(lambda: homes_in(data) == 1)
            until(lambda: [found["home"] for found in workers(one)] == [2])
            assert sum(found["node"] == "node@host" for found in ask(other, "/api/queues").json()) > 2
        with node(tmp_path, "node", member, 2) as one, channels(one, other) as clients:
            assert [found["home"] for found in workers(one)] == [2, 5]  # numbers are not used again
            for channel in clients:
                assert contents(channel, wanted) == wanted
            clients[1].basic_qos(prefetch_count=1)
            arguments = {"x-stream-offset": "first"}
            (method, _, body) = next(clients[1].consume("stream", arguments=arguments, inactivity_timeout=10))
            assert (method is not None, body) == (True, b"kept")


@pytest.mark.slow
def test_what_a_data_directory_cannot_become_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        cluster: dict[str, Any] = {"cluster": "test", "etcd": member.url}
        with jumpmq.running(data_dir=tmp_path / "alone", workers=2):
            pass
        for workers in 1, 2:
            with (
                pytest.raises(
                    BrokerError, match="one of 2 workers' homes, and only that of one worker joins a cluster"
                ),
                jumpmq.running(data_dir=tmp_path / "alone", workers=workers, **cluster),
            ):
                pass
        with jumpmq.running(data_dir=tmp_path / "alone", workers=1):
            until(lambda: homes_in(tmp_path / "alone") == 1)
        with jumpmq.running(data_dir=tmp_path / "alone", workers=2, **cluster):
            pass
        for workers in 1, 2:
            with (
                pytest.raises(BrokerError, match="that of a node of cluster 'test'"),
                jumpmq.running(data_dir=tmp_path / "alone", workers=workers),
            ):
                pass
        with (
            pytest.raises(BrokerError, match="needs a data directory"),
            jumpmq.running(workers=2, **cluster),
        ):
            pass


@pytest.mark.slow
def test_nothing_confirmed_is_lost_whichever_worker_dies() -> None:
    assert strike(seconds=15, seed=321, workers=2) == []
