"""Consumer groups with a client that hangs with its socket open, and with a broker killed during a handover."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pytest
from fuzzing import consumer_groups
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member, Publisher, until

import jumpmq
from jumpmq.testing import JumpMQ

SOON = {"x-rebalance-delay": 50}
JARS = [Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]
EXAMPLES = Path(__file__).parents[3] / "examples/python"


def _declare(port: int, exchange: str, queues: int) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters(port=port)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "x-consistent-hash", durable=True)
        for number in range(queues):
            arguments = {"x-slots": 4, "x-in-flight-per-slot": 1} if number % 2 else {}
            channel.queue_declare(f"{exchange}.{number}", durable=True, arguments=arguments)
            channel.queue_bind(f"{exchange}.{number}", exchange, "1")


def test_a_client_that_hangs_loses_its_messages_after_the_delivery_timeout() -> None:
    with jumpmq.running(consumer_timeout=1) as broker:
        _declare(broker.port, "orders", 2)
        checker = Checker()
        publisher = Publisher(broker.port, "orders", checker)
        publisher.publish(20, 2)
        hung = Member(broker.port, "orders", "g", "hung", checker, prefetch=5, arguments=SOON)
        until(lambda: len(hung.held) == 5, hung)
        with Member(broker.port, "orders", "g", "b", checker, arguments=SOON) as other:
            checker.gone("hung")
            until(lambda: not checker.left, other, settle=True)
            hung.channel.basic_ack(0, multiple=True)
            until(lambda: hung.cancelled, hung)
        hung.close()
        publisher.close()
        checker.check()


@pytest.mark.slow
def test_a_broker_that_is_killed_in_a_handover_loses_nothing(tmp_path: Path) -> None:
    checker = Checker()
    with JumpMQ(data_dir=tmp_path) as broker:
        _declare(broker.port, "orders", 3)
        publisher = Publisher(broker.port, "orders", checker)
        publisher.channel.confirm_delivery()
        publisher.publish(20, 5)
        first = Member(broker.port, "orders", "g", "a", checker, prefetch=0, arguments=SOON)
        until(lambda: len(first.held) > 10, first)
        second = Member(broker.port, "orders", "g", "b", checker, arguments=SOON)
        for _ in range(20):
            first.read(0.01)
            second.read(0.005)
        broker.kill()
        for member in (first, second):
            checker.gone(member.name)
        broker.start()
        with (
            Member(broker.port, "orders", "g", "c", checker, arguments=SOON) as third,
            Member(broker.port, "orders", "g", "d", checker, arguments=SOON) as fourth,
        ):
            until(lambda: not checker.left, third, fourth, settle=True)
    checker.check()


@pytest.mark.parametrize("name", ["consumer_group.py", "consumer_group_asyncio.py"])
def test_the_examples(name: str) -> None:
    with jumpmq.running() as broker:
        command = [sys.executable, str(EXAMPLES / name), "--url", broker.amqp_url, "--publish", "100", "--idle", "2"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert len(lines) == 100
    assert {line.split()[1] for line in lines} == {f"orders-{number}" for number in range(4)}


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("javac") is None or not all(jar.exists() for jar in JARS),
    reason="the Java client is not installed (apt-get install default-jdk-headless librabbitmq-client-java)",
)
def test_the_example_of_java() -> None:
    source = EXAMPLES.parent / "java/ConsumerGroup.java"
    with jumpmq.running() as broker:
        command = ["java", "-cp", os.pathsep.join(map(str, JARS)), str(source), broker.amqp_url, "100", "2"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert sorted(int(line.split()[-1]) for line in lines) == list(range(100))


def test_the_example_of_celery() -> None:
    program = EXAMPLES / "consumer_group_celery.py"
    with jumpmq.running() as broker:
        environment = {**os.environ, "BROKER_URL": broker.amqp_url}
        subprocess.run([sys.executable, str(program), "60"], env=environment, check=True, timeout=60)
        command = [sys.executable, "-m", "celery", "-A", program.stem, "worker", "--concurrency", "2"]
        worker = subprocess.Popen(
            [*command, "--loglevel", "WARNING"], env=environment, cwd=EXAMPLES, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert worker.stdout is not None
        try:
            lines = itertools.islice((line.split() for line in worker.stdout if "billed " in line), 60)
            orders = [(customer, int(order)) for *_, customer, _, order in lines]
        finally:
            os.killpg(worker.pid, signal.SIGKILL)  # the client's pool of processes, too
            worker.communicate()
    assert sorted(order for _, order in orders) == list(range(60))
    for name in {customer for customer, _ in orders}:
        own = [order for customer, order in orders if customer == name]
        assert own == sorted(own)


@pytest.mark.slow
def test_members_that_are_killed_and_stopped() -> None:
    """A short run of `python -m fuzzing.consumer_groups`."""
    consumer_groups.run(4.0, seed=1, workers=1).check()


@pytest.mark.slow
def test_members_of_four_clients_and_a_broker_that_is_killed() -> None:
    """A short run with every installed client."""
    clients = consumer_groups.installed()
    consumer_groups.run(30.0, seed=2, workers=1, clients=clients, interval=2.0, kill_broker=True).check()
