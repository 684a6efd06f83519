"""TLS in separate processes: clients after the end of such a process, or of the broker."""

import os
import re
import resource
import signal
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.waiting import until
from tests.wire import Basic, Hangup, WireConnection, closing, login

import jumpmq
from jumpmq.cli.certificates import Certificates, make_certificates
from jumpmq.management import ManagementClient
from jumpmq.testing import JumpMQ


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def broker(certificates: Certificates) -> Iterator[JumpMQ]:
    """With two processes."""
    files = [
        "--tls-port",
        "0",
        "--https-port",
        "off",
        "--tls-cert",
        str(certificates.server),
        "--tls-key",
        str(certificates.server_key),
    ]
    with JumpMQ(arguments=[*files, "--tls-processes", "2"]) as running:
        yield running


@pytest.fixture
def context(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificates.ca)


def tls_port(broker: JumpMQ) -> int:
    found = re.search(r"amqps://[^\s/]*:(\d+)", broker.log.read_text())
    assert found is not None
    return int(found[1])


def children(pid: int) -> set[int]:
    """Return the process ids of a process's children."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.add(int(stat.parent.name))
    return found


def login_at_last(port: int, context: ssl.SSLContext) -> WireConnection:
    """Return a connection, repeating the login if the accepting TLS process has just died."""
    found: list[WireConnection] = []

    def try_it() -> list[WireConnection]:
        with suppress(Hangup, OSError):
            found.append(login(port, tls=context))
        return found

    return until(try_it)[0]


def is_open(connection: WireConnection) -> bool:
    """Return True if the broker still answers on a connection."""
    try:
        connection.channel()
    except (Hangup, OSError):
        return False
    return True


def test_a_process_that_dies_takes_its_own_clients_along_only(broker: JumpMQ, context: ssl.SSLContext) -> None:
    port = tls_port(broker)
    clients = [login(port, tls=context) for _ in range(6)]
    with closing(clients[0]):
        before = children(broker.pid)
        assert len(before) == 2
        os.kill(min(before), signal.SIGKILL)
        assert sum(map(is_open, clients)) == 3  # the connections were spread evenly
        after = until(lambda: len(found := children(broker.pid)) == 2 and found)
        assert len(before & after) == 1
        again = [login_at_last(port, context) for _ in range(3)]
        (new,) = after - before
        os.kill(new, signal.SIGKILL)
        assert sum(map(is_open, again)) <= 1  # the new process had the fewest; one may have come earlier
        until(lambda: broker.log.read_text().count("a TLS process has ended with status -9") == 2)


def test_what_was_confirmed_is_there_after_a_kill(broker: JumpMQ, context: ssl.SSLContext) -> None:
    port = tls_port(broker)
    with closing(login(broker.port)) as observer:
        queue = observer.channel().queue(exclusive=False, durable=True)
        for life in range(3):
            channel = login_at_last(port, context).channel()
            channel.confirm_select()
            channel.publish("", queue, b"confirmed %d" % life, Basic.Properties(delivery_mode=2))
            channel.wait_for_confirms()
            channel.publish("", queue, b"perhaps", Basic.Properties(delivery_mode=2))
            for child in children(broker.pid):
                os.kill(child, signal.SIGKILL)
        found = [body for body in observer.channel().bodies(queue) if body != b"perhaps"]
        assert found == [b"confirmed 0", b"confirmed 1", b"confirmed 2"]


def _ignores_signals(pid: int) -> bool:
    """Return True if a process ignores SIGTERM, according to /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(ignored >> (signal.SIGTERM - 1) & 1)


def test_none_but_the_broker_ends_them_and_they_end_with_it(broker: JumpMQ, context: ssl.SSLContext) -> None:
    with closing(login(tls_port(broker), tls=context)) as connection:
        until(lambda: all(map(_ignores_signals, children(broker.pid))))  # a new process does not yet ignore the signal
        started = children(broker.pid)
        for child in started:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(child, number)
        assert is_open(connection)
        assert children(broker.pid) == started
        os.kill(broker.pid, signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in started))


def test_one_that_cannot_start_is_tried_again_ever_later(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    files = [
        "--tls-port",
        "0",
        "--https-port",
        "off",
        "--tls-cert",
        str(made.server),
        "--tls-key",
        str(made.server_key),
    ]
    with JumpMQ(arguments=[*files, "--tls-processes", "1"]) as broker:
        port, context = tls_port(broker), ssl.create_default_context(cafile=made.ca)
        login(port, tls=context).hang_up()
        key = made.server_key.read_bytes()
        made.server_key.unlink()
        (only,) = children(broker.pid)
        os.kill(only, signal.SIGKILL)
        until(lambda: "it is started again in 0.4 s" in broker.log.read_text())
        made.server_key.write_bytes(key)
        with closing(login_at_last(port, context)) as connection:
            assert is_open(connection)
        said = [float(found) for found in re.findall(r"started again in ([\d.]+) s", broker.log.read_text())]
        assert said[:3] == [0.1, 0.2, 0.4]
        assert is_open(login(broker.port))


def test_without_files_clients_wait(broker: JumpMQ, context: ssl.SSLContext) -> None:
    port = tls_port(broker)
    login(port, tls=context).hang_up()
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (8, limits[1]))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(login, port, tls=context)
        until(lambda: f"clients of port {port} must wait: Too many open files" in broker.log.read_text())
        started = children(broker.pid)
        os.kill(min(started), signal.SIGKILL)
        until(lambda: "a TLS process cannot be started: Too many open files" in broker.log.read_text())
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
        with closing(waiting.result()) as connection:
            assert is_open(connection)
    until(lambda: len(children(broker.pid)) == 2)


def test_beyond_the_limit_of_connections_clients_are_let_go(broker: JumpMQ, context: ssl.SSLContext) -> None:
    port = tls_port(broker)
    _, most = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (80, most))
    taken = [login(broker.port) for _ in range(80 * 3 // 4 - 32)]
    for _ in range(5):
        with pytest.raises((Hangup, OSError)):
            login(port, tls=context)
    taken.pop().close()
    with closing(login(port, tls=context)) as connection:
        assert is_open(connection)


def test_suspended_listeners_are_closed(certificates: Certificates, context: ssl.SSLContext) -> None:
    with jumpmq.running(tls_cert=certificates.server, tls_key=certificates.server_key, tls_processes=1) as running:
        api = ManagementClient(running.http_url)
        with closing(login(running.tls_port, tls=context)) as connection:
            api.put("nodes", running.node, "listeners", body={"suspended": True})
            with pytest.raises(OSError):
                login(running.tls_port, tls=context)
            assert is_open(connection)
            api.put("nodes", running.node, "listeners", body={"suspended": False})
            with closing(login(running.tls_port, tls=context)) as another:
                assert is_open(another)
