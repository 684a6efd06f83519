"""The late write of a stopped and resumed member, whose share is lost, is refused by the database."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pika
import pytest
from tests.waiting import until

import jumpmq
from jumpmq.ordering import Delivery, StaleOwner
from jumpmq.testing import free_ports

EXAMPLES = Path(__file__).parents[1] / "examples"
JARS = [Path("/usr/share/java") / f"{name}.jar" for name in ("amqp-client", "slf4j-api", "slf4j-nop", "postgresql")]
POSTGRESQL = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
"""Debian's folder of PostgreSQL's programs (apt-get install postgresql)."""

needs_postgresql = pytest.mark.skipif(
    not POSTGRESQL or find_spec("psycopg") is None, reason="PostgreSQL and psycopg are not installed"
)


class Member:
    """An example as a process, with its output lines."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self.lines: list[str] = []

    def until(self, wanted: str) -> str:
        """Return the first line with a word."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if wanted in line.split():
                return line
        raise AssertionError(f"the program ended without {wanted!r}: {self.lines}")

    def end(self) -> None:
        """Read the remaining lines until the program ends by itself."""
        assert self._process.stdout is not None
        self.lines += self._process.stdout
        assert self._process.wait() == 0

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A new server. Return host, port, database and user, as in a connection string."""
    programs, (port,) = POSTGRESQL[-1].parent, free_ports(1)
    as_user = ["runuser", "-u", "nobody", "--"] if os.getuid() == 0 else []  # PostgreSQL refuses root
    with tempfile.TemporaryDirectory() as directory:  # pytest's directories are closed to other users
        if as_user:
            shutil.chown(directory, "nobody")
        initdb = [str(programs / "initdb"), "-D", f"{directory}/data", "-A", "trust", "-U", "test", "--no-sync"]
        subprocess.run([*as_user, *initdb], cwd="/", check=True, capture_output=True)
        control = [*as_user, str(programs / "pg_ctl"), "-D", f"{directory}/data", "-w"]
        options = f"-k {directory} -h 127.0.0.1 -p {port}"

        def quietly(*command: str) -> None:
            subprocess.run([*control, *command], cwd="/", check=True, stdout=subprocess.DEVNULL)

        quietly("-o", options, "-l", f"{directory}/log", "start")
        try:
            yield f"127.0.0.1:{port}/postgres?user=test"
        finally:
            quietly("-m", "immediate", "stop")


SLOW, COUNT = 0.7, 20
"""Seconds of the stopped member's work on a message; number of bookings, one per account."""


def lose(stopped: Member, start: list[str], balances: Callable[[], Any]) -> None:
    """Stop a member while it works on a message, and resume it after another member has done its work."""
    stopped.until("works")
    os.kill(stopped.pid, signal.SIGSTOP)
    other = Member(*start)
    try:
        until(lambda: balances() == (COUNT, 10, 10))
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
        other.kill()
    refused = stopped.until("refused")
    account = [line.split()[-2] for line in stopped.lines if "works" in line.split()][-1]
    assert account in refused
    stopped.end()
    assert balances() == (COUNT, 10, 10)


BALANCES = "SELECT count(*), min(balance), max(balance) FROM balances"


def test_a_late_write_to_sqlite_is_refused(tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "python/owner_epoch_sqlite.py"), "--database", str(tmp_path / "db")]
    with jumpmq.running() as broker:
        command = [*program, "--url", broker.amqp_url]
        stopped = Member(*command, "--publish", str(COUNT), "--work", str(SLOW))
        with contextlib.closing(sqlite3.connect(tmp_path / "db")) as database:
            lose(stopped, command, lambda: database.execute(BALANCES).fetchone())


@pytest.mark.slow
@needs_postgresql
def test_late_writes_to_postgresql_are_refused() -> None:
    import psycopg

    has_java = shutil.which("javac") is not None and all(jar.exists() for jar in JARS)
    with postgresql() as database, psycopg.connect(f"postgresql://{database}", autocommit=True) as connection:
        for client in ["python", *(["java"] if has_java else [])]:
            with jumpmq.running() as broker:
                program = [sys.executable, str(EXAMPLES / "python/owner_epoch_postgresql.py"), "--url", broker.amqp_url]
                other = [*program, "--database", f"postgresql://{database}"]
                if client == "python":
                    stopped = Member(*other, "--publish", str(COUNT), "--work", str(SLOW))
                else:
                    Member(*other, "--publish", str(COUNT), "--idle", "0.001").end()
                    classes = os.pathsep.join(map(str, JARS))
                    source, milliseconds = str(EXAMPLES / "java/OwnerEpoch.java"), str(int(SLOW * 1000))
                    address = f"jdbc:postgresql://{database}"
                    stopped = Member("java", "-cp", classes, source, broker.amqp_url, address, milliseconds)
                lose(stopped, other, lambda: connection.execute(BALANCES).fetchone())
            connection.execute("DROP TABLE balances")


def test_a_delivery_says_whose_it_is() -> None:
    with jumpmq.running() as broker, pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("one", arguments={"x-single-active-consumer": True})
        channel.queue_declare("plain")
        for queue in ("one", "plain"):
            for body in (b"1", b"2"):
                channel.basic_publish(
                    "", queue, body, pika.BasicProperties(message_id="m", headers={"x-owner-epoch": 7})
                )
        channel.basic_qos(prefetch_count=1)
        method, properties, _ = next(channel.consume("one", inactivity_timeout=60))
        first = Delivery.of(properties, method, key="k")
        assert first.epoch > 7 and (first.key, first.message, first.queue, first.slot) == ("k", "m", "", None)
        first.require_owner(1)
        with pytest.raises(StaleOwner, match=f"'k' has an owner with a higher epoch than {first.epoch}"):
            first.require_owner(0)
        channel.cancel()
        method, properties, _ = next(channel.consume("one", inactivity_timeout=60))
        second = Delivery.of(properties, method)
        assert second.epoch > first.epoch
        channel.cancel()
        _, properties, _ = next(channel.consume("plain", inactivity_timeout=60))
        assert properties.headers == {"x-owner-epoch": 7}, "a queue without an owner adds nothing"
