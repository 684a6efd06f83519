"""The home of a client's virtual host serves the client."""

import contextlib
import os
import re
import signal
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from pamqp.commands import Basic, Channel, Connection, Queue
from pamqp.frame import marshal
from tests.waiting import until
from tests.wire import ConnectionClosed, Hangup, WireConnection, content_header, dial, frame, login

from jumpmq.broker.connection.handed import Handed
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.tokens import to_values, user_of
from jumpmq.cli.certificates import make_certificates
from jumpmq.testing import JumpMQ, children

LOGIN = "guest", "guest"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JumpMQ]:
    folder = tmp_path_factory.mktemp("broker")
    made = make_certificates(folder)
    tls = ["--tls-port", "0", "--https-port", "off", "--tls-cert", str(made.server), "--tls-key", str(made.server_key)]
    with JumpMQ(folder / "data", arguments=["--workers", "3", *tls]) as broker:
        for name, home in (("two", 2), ("three", 3), ("nowhere", 7)):
            put(broker, name, home=home)
        yield broker


def put(broker: JumpMQ, vhost: str, **words: Any) -> requests.Response:
    return requests.put(f"http://127.0.0.1:{broker.http_port}/api/vhosts/{vhost}", json=words, auth=LOGIN, timeout=30)


def opened_at(broker: JumpMQ, connections: list[WireConnection]) -> Counter[int]:
    """Return the number of the given connections opened by each home."""
    line = re.compile(r"home (\d+): connection 127\.0\.0\.1:(\d+) .* opened virtual host")
    found = {int(port): int(home) for home, port in line.findall(broker.log.read_text())}
    return Counter(found[connection.address[1]] for connection in connections)


def test_clients_go_to_the_home_of_their_virtual_host(broker: JumpMQ) -> None:
    for vhost, home in (("two", 2), ("three", 3)):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(login(broker.port, vhost=vhost)) for _ in range(30)]
            assert opened_at(broker, connections) == {home: 30}
            assert handed_on(broker, connections)
            publisher, consumer = connections[0].channel(), connections[1].channel()
            publisher.call(Queue.Declare(queue="q", durable=True))
            consumer.call(Basic.Consume(queue="q", no_ack=True))
            publisher.publish("", "q", b"x" * 300_000)
            assert consumer.next().body == b"x" * 300_000


def handed_on(broker: JumpMQ, connections: list[WireConnection]) -> list[WireConnection]:
    """Return the connections handed over to another home, by the log."""
    found = re.findall(r"connection 127\.0\.0\.1:(\d+) .* given to home", broker.log.read_text())
    return [connection for connection in connections if str(connection.address[1]) in found]


def test_others_stay_where_they_are(broker: JumpMQ) -> None:
    for vhost in ("/", "nowhere"):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(login(broker.port, vhost=vhost)) for _ in range(9)]
            assert sum(opened_at(broker, connections).values()) == 9
            assert not handed_on(broker, connections)


def test_with_tls_they_stay_too(broker: JumpMQ) -> None:
    port = int(re.findall(r"amqps://[^\s/]*:(\d+)", broker.log.read_text())[0])
    tls = ssl.create_default_context(cafile=broker.data_dir.parent / "ca.pem") if broker.data_dir else None
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(login(port, vhost="two", tls=tls)) for _ in range(9)]
        assert sum(opened_at(broker, connections).values()) == 9
        assert not handed_on(broker, connections)


def test_what_is_sent_behind_the_opening_goes_along(broker: JumpMQ) -> None:
    """Methods sent behind connection.open, without waiting for open-ok, are handed over, as RabbitMQ takes them."""
    body = bytes(range(256)) * 40
    for cut in (0, 1, 300, 9000):
        connection = dial(broker.port)
        connection.send(b"AMQP\x00\x00\x09\x01")
        connection.expect(Connection.Start)
        connection.send_method(0, Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        connection.expect(Connection.Tune)
        connection.send_method(0, Connection.TuneOk(2047, 131072, 0))
        methods = (Channel.Open(), Queue.Declare(queue="ahead"), Basic.Publish(routing_key="ahead"))
        rest = b"".join(marshal(method, 1) for method in methods)
        rest += (
            frame(2, 1, content_header(len(body)))
            + frame(3, 1, body)
            + marshal(Basic.Get(queue="ahead", no_ack=True), 1)
        )
        octets = marshal(Connection.Open("two"), 0) + rest
        connection.send(octets[: len(octets) - cut])
        if cut:
            time.sleep(0.05)
            connection.send(octets[-cut:])
        connection.expect(Connection.OpenOk)
        connection.expect(Channel.OpenOk, channel=1)
        connection.expect(Queue.DeclareOk, channel=1)
        assert connection.next_event(1).body == body
        assert opened_at(broker, [connection]) == {2: 1}
        connection.close()


def test_limits_count_where_they_go(broker: JumpMQ) -> None:
    url = f"http://127.0.0.1:{broker.http_port}/api/vhost-limits/three/max-connections"
    assert requests.put(url, json={"value": 2}, auth=LOGIN, timeout=30).ok
    try:
        with (
            login(broker.port, vhost="three"),
            login(broker.port, vhost="three"),
            pytest.raises(ConnectionClosed, match="connection limit"),
        ):
            login(broker.port, vhost="three")
    finally:
        requests.delete(url, auth=LOGIN, timeout=30)


def socket_of(broker: JumpMQ, home: int) -> tuple[Path, int]:
    """Return the path of the socket for handing over clients to a home, and the process id of its owner."""
    for process in children(broker.pid):
        inodes = {str(one.readlink()) for one in Path(f"/proc/{process}/fd").iterdir() if one.is_symlink()}
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            inode, path = line.split()[6], line.split()[-1]
            if path.endswith(f"/clients-{home}.sock") and f"socket:[{inode}]" in inodes:
                return Path(path), process
    raise LookupError(home)


def test_what_strangers_send_is_dropped(broker: JumpMQ) -> None:
    path, _ = socket_of(broker, 2)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for packet in (b"", b"x", b"x" * 64, b"0" * 90_000):
        near, far = socket.socketpair()
        with near, far, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sender:
            sender.connect(str(path))
            if packet:
                socket.send_fds(sender, [packet], [far.fileno(), far.fileno()])
            far.close()
            sender.close()
            near.settimeout(10)
            assert near.recv(1) == b""
    with login(broker.port, vhost="two") as connection:
        assert opened_at(broker, [connection]) == {2: 1}


def test_a_home_that_is_down_is_not_waited_for(tmp_path: Path) -> None:
    with JumpMQ(tmp_path / "data", arguments=["--workers", "2"]) as broker:
        assert put(broker, "two", home=2).status_code == 201

        def home() -> int:
            try:
                with login(broker.port, vhost="two") as connection:
                    return next(iter(opened_at(broker, [connection])))
            except (Hangup, OSError):  # the connection was on its way to the killed process
                return 0

        assert home() == 2
        os.kill(socket_of(broker, 2)[1], signal.SIGKILL)
        until(lambda: home() == 1)
        until(lambda: home() == 2)
        api = f"http://127.0.0.1:{broker.http_port}/api"
        exported = requests.get(f"{api}/definitions", auth=LOGIN, timeout=30).json()
        assert {"name": "two", "home": 2} in exported["vhosts"]
        assert put(broker, "two", home=0).status_code == 204
        assert "home" not in requests.get(f"{api}/vhosts/two", auth=LOGIN, timeout=30).json()
        assert requests.post(f"{api}/definitions", json=exported, auth=LOGIN, timeout=30).ok
        broker.stop()
        broker.start()
        assert (
            requests.get(f"http://127.0.0.1:{broker.http_port}/api/vhosts/two", auth=LOGIN, timeout=30).json()["home"]
            == 2
        )
        until(lambda: home() == 2)


def is_left(client: WireConnection) -> bool:
    """Return True if a client gets no answer within a second and a half."""
    client.send(b"AMQP\x00\x00\x09\x01")
    try:
        client.read_frame(1.5)
    except TimeoutError:
        return True
    return False


def test_a_home_that_is_stopped_gets_no_clients(tmp_path: Path) -> None:
    with JumpMQ(tmp_path / "data", arguments=["--workers", "2"]) as broker:
        assert put(broker, "two", home=2).status_code == 201
        _, process = socket_of(broker, 2)
        connections = [login(broker.port)]
        while opened_at(broker, connections[-1:]) != {1: 1}:
            connections.append(login(broker.port))
        os.kill(process, signal.SIGSTOP)
        try:
            with contextlib.ExitStack() as stack:  # given before anything could be known
                assert any(is_left(stack.enter_context(dial(broker.port))) for _ in range(4))
                others = [login(broker.port) for _ in range(4)]
                time.sleep(2)  # the link is silent, and not broken yet
                others += [login(broker.port, vhost="two") for _ in range(4)]
                assert opened_at(broker, others) == {1: 8}
        finally:
            os.kill(process, signal.SIGCONT)
        for connection in (*connections, *others):
            connection.close()

        def home() -> int:
            with login(broker.port, vhost="two") as connection:
                return next(iter(opened_at(broker, [connection])))

        until(lambda: home() == 2)


@pytest.mark.parametrize("home", [-1, 65536, "two", True])
def test_what_is_no_home(broker: JumpMQ, home: object) -> None:
    answer = put(broker, "wrong", home=home)
    assert answer.status_code == 400
    assert answer.json()["reason"].startswith("'home' must be a whole number from 0 to 65535, not ")


@pytest.mark.parametrize("scopes", [None, ["read:two/q", "write:two/*"], ["tag:impersonator", "read:two%2F/q/k*"]])
def test_a_user_goes_along(scopes: list[str] | None) -> None:
    user = Principal("who", None if scopes is None else user_of("who", scopes), None if scopes is None else 2e9)
    handed = Handed.unpacked(Handed("two", to_values(user), {}, (4096, 10, 60), 1.5, b"rest").packed())
    assert handed == Handed("two", to_values(user), {}, (4096, 10, 60), 1.5, b"rest")
    found = handed.principal
    assert (found.name, found.until, found.granted is None) == (user.name, user.until, scopes is None)
    if found.granted is not None and user.granted is not None:
        assert found.granted.tags == user.granted.tags
        assert to_values(found) == to_values(user)
