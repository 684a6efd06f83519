"""The examples in other languages and with other libraries, and the compose file's programs, work as described."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

import pytest
import requests
from tests.clients.installed import bunny_is_installed
from tests.conformance.example_counts import COUNTS

import jumpmq
from jumpmq.hashing import HashRing

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
GO = Path("/usr/share/gocode")
"""Debian's folder of Go libraries (golang-github-rabbitmq-amqp091-go-dev)."""

MODULES = [Path(prefix) / "lib/node_modules" for prefix in ("/usr", "/usr/local")]
COUNT = 100

has_go = shutil.which("go") is not None and (GO / "src/github.com/rabbitmq/amqp091-go").is_dir()
has_node = shutil.which("node") is not None and any((folder / "amqplib").is_dir() for folder in MODULES)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["go", "run", "go/consumer_group.go"], marks=pytest.mark.skipif(not has_go, reason="no client")),
        pytest.param(["node", "node/consumer_group.js"], marks=pytest.mark.skipif(not has_node, reason="no amqplib")),
    ],
    ids=["go", "node"],
)
def test_a_member_of_a_group_handles_each_key_in_order(command: list[str], tmp_path: Path) -> None:
    go = {"GO111MODULE": "off", "GOPATH": str(GO), "GOCACHE": str(tmp_path)}
    environment = os.environ | go | {"NODE_PATH": os.pathsep.join(map(str, MODULES))}
    with jumpmq.running() as broker:
        line = [*command, broker.amqp_url, str(COUNT), "2"]
        result = subprocess.run(line, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=200)
    assert (result.returncode, result.stderr) == (0, "")
    orders: dict[str, list[int]] = defaultdict(list)
    queues = set()
    for row in result.stdout.splitlines():
        _, queue, _, customer, _, number = row.split()
        orders[customer].append(int(number))
        queues.add(queue)
    assert queues == {f"orders-{number}" for number in range(4)}
    assert sorted(chain(*orders.values())) == list(range(COUNT))
    assert all(own == sorted(own) for own in orders.values())


def billed(command: list[str], environment: dict[str, str]) -> dict[str, list[int]]:
    """Run workers until all orders are billed. Return the orders of every customer, in order of arrival."""
    orders: dict[str, list[int]] = defaultdict(list)
    environment = {name: value for name, value in environment.items() if name != "PYTHONUNBUFFERED"}  # lines stay whole
    process = subprocess.Popen(
        command, cwd=EXAMPLES / "python", env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"billed (\S+) (\d+)", line):
                customer, number = found.groups()
                orders[customer].append(int(number))
                if sum(map(len, orders.values())) == COUNT:
                    break
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return orders


@pytest.mark.parametrize("name", ["faststream", "taskiq", "celery", "dramatiq"])
def test_each_customers_tasks_are_done_in_order(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    run = {
        "faststream": ["-m", "faststream", "run", "faststream_group:app"],
        "taskiq": ["-m", "taskiq", "worker", "taskiq_group:broker", "--ack-type", "when_executed"],
        "dramatiq": ["-m", "dramatiq", "dramatiq_ring", "--processes", "1", "--threads", "1"],
        "celery": ["-m", "celery", "-A", "celery_hash_exchange", "worker", "--concurrency", "1"],
    }[name]
    with jumpmq.running() as broker:
        environment = os.environ | {"BROKER_URL": broker.amqp_url}
        if name == "faststream":
            environment["PUBLISH"] = str(COUNT)
        else:
            programs = {"taskiq": "taskiq_group", "celery": "celery_hash_exchange", "dramatiq": "dramatiq_ring"}
            program = f"{programs[name]}.py"
            publish = [sys.executable, program, str(COUNT)]
            subprocess.run(publish, cwd=EXAMPLES / "python", env=environment, check=True, timeout=100)
        orders = billed([sys.executable, *run], environment)
    assert sorted(chain(*orders.values())) == list(range(COUNT))
    if name != "dramatiq":  # Dramatiq does not keep the order of its queues
        assert all(own == sorted(own) for own in orders.values())


def test_the_traffic_of_the_compose_file(tmp_path: Path) -> None:
    programs = ROOT / "deploy" / "docker" / "traffic"
    with jumpmq.running() as broker:
        urls = {"AMQP_URL": broker.amqp_url, "JUMPMQ_URL": broker.http_url}
        environment = os.environ | urls | {"PYSPARK_PYTHON": sys.executable}
        started: list[list[str | Path]] = [
            [sys.executable, programs / "publish.py"],
            [sys.executable, programs / "read.py", tmp_path],
        ]
        publisher = subprocess.Popen(started[0], env=environment)
        try:
            while not requests.get(f"{broker.http_url}/api/exchanges/%2F/orders/bindings/source").ok:
                assert publisher.poll() is None
            reader = subprocess.Popen(started[1], env=environment, stdout=subprocess.PIPE, text=True)
            assert reader.stdout is not None
            assert re.fullmatch(r"batch \d+: [1-9]\d* orders\n", reader.stdout.readline())
        finally:
            publisher.kill()
            reader.kill()
            publisher.wait()
            reader.communicate()


JARS = [Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]
PLUGINS = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/plugins"), None)
CLASS_PATH = os.pathsep.join(map(str, JARS))
LANGUAGES = {
    "java": ["java", "-cp", CLASS_PATH, "java/Spreading.java"] if all(jar.exists() for jar in JARS) else None,
    "ruby": ["ruby", "ruby/spreading.rb"] if bunny_is_installed() else None,
    "erlang": ["escript", "erlang/spreading.escript"] if PLUGINS is not None else None,
}


def spread(count: int) -> dict[str, int]:
    """Number of keys per queue, for ``count`` keys; 100,000 keys are compared with RabbitMQ, for Python."""
    ring = HashRing()
    for queue, weight in {"q1": 1, "q2": 1, "q3": 2, "q4": 2}.items():
        ring.add(queue, weight)
    return dict(Counter(str(ring.route(b"%d" % number)) for number in range(count)))


def test_keys_are_spread_as_rabbitmq_does() -> None:
    assert spread(100_000) == COUNTS


@pytest.mark.parametrize("way", ["routing-key", "header", "property"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_documents_programs_spread_alike_in_each_language(language: str, way: str) -> None:
    command, keys = LANGUAGES[language], 3000
    if command is None:
        pytest.skip(f"the client of {language} is not installed")
    with jumpmq.running() as broker:
        environment = os.environ | {"ERL_LIBS": str(PLUGINS)}
        line = [*command, broker.amqp_url, way, str(keys)]
        result = subprocess.run(line, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert {queue: int(count) for queue, count in map(str.split, result.stdout.splitlines())} == spread(keys)


@pytest.mark.slow
def test_celery_tasks_wait_in_the_broker_until_they_are_due() -> None:
    if find_spec("celery") is None:
        pytest.skip("celery is not installed")
    with jumpmq.running() as broker:
        environment = os.environ | {"BROKER_URL": broker.amqp_url}
        command = [sys.executable, "-m", "celery", "-A", "celery_delayed", "worker", "--pool", "solo", "-l", "info"]
        worker = subprocess.Popen(
            command,
            cwd=EXAMPLES / "python",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert worker.stdout is not None
            next(line for line in worker.stdout if "ready." in line)
            publish = [sys.executable, "celery_delayed.py", "4", "0.5"]
            subprocess.run(publish, cwd=EXAMPLES / "python", env=environment, check=True, timeout=100)
            reminded = (line.partition("reminded ")[2].strip() for line in worker.stdout if "reminded" in line)
            done = list(islice(reminded, 2))
        finally:
            worker.kill()
            worker.communicate()
    assert done == ["of 0.5", "of 4"]
