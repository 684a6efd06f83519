"""Owner epochs, ordered retries and delayed messages at once, in a cluster whose nodes and members die."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pika
from tests.etcd import etcd, needs_etcd
from tests.nodes.processes.member_in_order import TABLES
from tests.waiting import until

from jumpmq.management import ManagementClient
from jumpmq.testing import JumpMQ

pytestmark = needs_etcd

KEYS, NUMBERS = 24, 20
STRICT = {
    "x-queue-type": "quorum",
    "x-slots": 8,
    "x-in-flight-per-slot": 1,
    "x-delayed-retry-type": "all",
    "x-delayed-retry-min": 100,
    "x-delivery-limit": 100,
}


def declare(nodes: list[JumpMQ]) -> None:
    """Declare a delaying hash exchange over two queues per node."""
    for place, node in enumerate(reversed(nodes)):
        with closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))) as connection:
            channel = connection.channel()
            kind = {"x-delayed-type": "x-consistent-hash"}
            channel.exchange_declare("orders", "x-delayed-message", durable=True, arguments=kind)
            for number in range(2):
                channel.queue_declare(f"q{place}{number}", durable=True, arguments=STRICT)
                channel.queue_bind(f"q{place}{number}", "orders", "1")


def publish(node: JumpMQ, first: int, last: int) -> None:
    """Publish numbered messages of each key; all messages of every second key are delayed."""
    with closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(first, last + 1):
            for key in range(KEYS):
                headers = {"x-delay": 700} if key % 2 else {}
                properties = pika.BasicProperties(delivery_mode=2, headers=headers, message_id=f"{key} {number}")
                channel.basic_publish("orders", f"account {key}", b"%d" % number, properties)


def test_order_holds_with_retries_delays_and_handovers_in_a_cluster(tmp_path: Path) -> None:
    path = str(tmp_path / "handled.db")
    with ExitStack() as ends:
        database = ends.enter_context(closing(sqlite3.connect(path, timeout=60)))
        database.executescript("PRAGMA journal_mode = WAL;" + TABLES)
        (kept,) = ends.enter_context(etcd(tmp_path))
        options = ("--cluster", "test", "--etcd", kept.url)
        nodes = [ends.enter_context(JumpMQ(tmp_path / name, f"{name}@host", options)) for name in ("one", "two")]
        one, two = nodes
        declare(nodes)

        def join(node: JumpMQ, *more: str) -> subprocess.Popen[bytes]:
            url = f"amqp://guest:guest@127.0.0.1:{node.port}/%2F?heartbeat=0"
            command = [sys.executable, "-m", "tests.nodes.processes.member_in_order", url, path, *more]
            member = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            ends.callback(member.wait)
            ends.callback(member.kill)
            return member

        def happened(what: str) -> int:
            (count,) = database.execute("SELECT count(*) FROM happened WHERE what = ?", (what,)).fetchone()
            return int(count)

        def handled() -> int:
            return int(database.execute("SELECT count(*) FROM deliveries").fetchone()[0])

        stops, dies = join(one, "--stop"), join(one)
        publish(one, 1, NUMBERS // 2)
        until(lambda: happened("stopped"))
        join(two)
        join(one)  # two more: they get the stopped member's messages, by force
        until(lambda: handled() > KEYS * NUMBERS // 8)
        api = ManagementClient(f"http://guest:guest@127.0.0.1:{one.http_port}")
        api.post("queues", "/", "q00", "actions", body={"action": "move"})
        until(lambda: handled() >= KEYS * (NUMBERS // 2))  # includes the stopped member's messages
        dies.kill()
        publish(one, NUMBERS // 2 + 1, NUMBERS)
        two.kill()
        os.kill(stops.pid, signal.SIGCONT)
        until(lambda: happened("refused"))
        two.start()
        join(two)
        until(lambda: handled() == KEYS * NUMBERS)
        assert happened("returned") > KEYS * NUMBERS // 10
        until(lambda: api.get("queues", "/", "q00")["node"] == "one@host")
    command = [sys.executable, "-m", "jumpmq.cli.jumpmq", "verify", path, "--json"]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout
    sums = json.loads(verified.stdout.splitlines()[-1])
    assert sums == {"rows": KEYS * NUMBERS, "keys": KEYS, "missing": 0, "order": 0, "once": 0, "owner": 0}
