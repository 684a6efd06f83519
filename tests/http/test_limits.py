"""Excessive and incomplete requests do not delay other clients."""

import contextlib
import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pyarrow as pa
import pytest
import requests
from tests.cli.commands import READY
from tests.http.api import API, publish

import jumpmq
from jumpmq.broker.memory import uploads
from jumpmq.broker.timing import BrokerTiming
from jumpmq.http.plumbing import requested

MANY = 160


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """The confined broker's stderr."""
    return tmp_path / "stderr"


@pytest.fixture
def confined(tmp_path: Path, log_file: Path) -> Iterator[tuple[int, int]]:
    """A broker limited to 128 open files."""
    limited = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)); " + (
        "sys.argv[0] = 'jumpmq'; runpy.run_module('jumpmq', run_name='__main__')"
    )
    line = [sys.executable, "-c", limited, "serve", "--port", "0", "--http-port", "0", "--data-dir", str(tmp_path)]
    with log_file.open("w") as log, subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        try:
            found = READY.search(process.stdout.readline())
            assert found
            yield int(found["port"]), int(found["http_port"])
        finally:
            process.kill()


def test_silent_http_clients_stop_nobody(confined: tuple[int, int]) -> None:
    port, http_port = confined
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        with contextlib.ExitStack() as silent:
            for _ in range(MANY):
                silent.enter_context(socket.create_connection(("127.0.0.1", http_port)))
            publish(channel, "orders", [b"confirmed"] * 10)
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).close()
            for _ in range(10):
                url = f"http://127.0.0.1:{http_port}/api/queues/%2F/orders?columns=messages"
                assert requests.get(url, auth=("guest", "guest"), timeout=30).json() == {"messages": 10}


def test_many_refused_connections_are_one_line_of_the_log(confined: tuple[int, int], log_file: Path) -> None:
    port, _ = confined
    with contextlib.ExitStack() as clients:
        opened = [clients.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(MANY)]
        with contextlib.suppress(ConnectionResetError):
            assert opened[-1].recv(1) == b""
    refused = [line for line in log_file.read_text().splitlines() if "connections refused" in line]
    assert len(refused) == 1 and "connections refused: 1" in refused[0]
    assert "Too many open files" not in log_file.read_text()


@pytest.fixture
def impatient() -> Iterator[jumpmq.RunningBroker]:
    """A broker with a request timeout of 0.2 s."""
    with jumpmq.running(timing=BrokerTiming(http_head=0.2, http_part=0.2)) as broker:
        yield broker


HEAD = b"GET /api/overview HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("sent", [[b""], [b"GET / HT"], [HEAD + b"\r\n", HEAD]])
def test_who_does_not_ask_is_cut(impatient: jumpmq.RunningBroker, sent: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", impatient.http_port), timeout=30) as waiting:
        *asked, unfinished = sent
        for request in asked:
            waiting.sendall(request)
            assert waiting.recv(1 << 16)
        waiting.sendall(unfinished)
        with contextlib.suppress(ConnectionResetError):
            while waiting.recv(1 << 16):
                pass


def test_who_does_not_go_on_is_refused(impatient: jumpmq.RunningBroker) -> None:
    head = b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
    with socket.create_connection(("127.0.0.1", impatient.http_port), timeout=30) as waiting:
        waiting.sendall(head + b"Content-Length: 9\r\n\r\n{")
        assert b"400 Bad Request" in waiting.recv(1 << 16)


def test_bodies_are_bounded(api: API) -> None:
    long = {"arguments": {"x": "y" * requested.MAX_BODY}}
    refusal = api.request("PUT", "queues", "/", "q", json=long)
    assert (refusal.status_code, refusal.json()["reason"]) == (400, "the body is longer than 1048576 octets")


def test_errors_are_short(api: API) -> None:
    for body in ({"k" * 1_000_000: 1}, {"durable": "x" * 1_000_000}):
        assert len(api.request("PUT", "queues", "/", "q", json=body).content) < 2000


def test_long_messages_and_many_definitions_are_taken(api: API) -> None:
    payload = 'é"\n,' * 1_000_000
    api.request("PUT", "queues", "/", "q", json={})
    message = {"routing_key": "q", "payload": payload, "payload_encoding": "string", "properties": {}}
    assert api.post("exchanges", "/", "amq.default", "publish", body=message) == {"routed": True}
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert api.post("queues", "/", "q", "get", body=wanted)[0]["payload"] == payload
    queues = [{"name": f"q{number}", "vhost": "/", "arguments": {}} for number in range(6000)]
    assert len(json.dumps({"queues": queues})) > 256 << 10
    assert api.request("POST", "definitions", json={"queues": queues}).status_code == 204
    assert api.get("overview")["object_totals"]["queues"] == 6001


@pytest.mark.parametrize(("goes_on", "status"), [(False, b"400"), (True, b"503")])
def test_a_batch_that_does_not_come_keeps_memory_short_for_nobody(goes_on: bool, status: bytes) -> None:
    with (
        jumpmq.running(memory_limit="2MB", timing=BrokerTiming(http_part=1.0)) as broker,
        socket.create_connection(("127.0.0.1", broker.http_port), timeout=30) as sender,
        pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection,
    ):
        sender.sendall(
            b"POST /api/messages/%2F/publish?queue=q HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n"
            b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n" + bytes(3 << 20)
        )
        channel = connection.channel()
        channel.queue_declare("orders")
        channel.confirm_delivery()
        sender.settimeout(0.05 if goes_on else 30)
        answer = b""
        while not answer:
            with contextlib.suppress(TimeoutError):
                answer = sender.recv(1 << 16)
            if goes_on and not answer:
                sender.sendall(b"x")
        assert answer.split()[1] == status
        for _ in range(3):
            channel.basic_publish("", "orders", b"confirmed")


def stream_of(body: bytes, rows: int) -> bytes:
    """An Arrow stream of messages with equal bodies."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"body": pa.array([body] * rows, pa.binary())})
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def peak_memory(process: subprocess.Popen[str]) -> int:
    """Peak memory of a process in octets."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.mark.slow
def test_batches_at_once_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    """Eight batches of 20 MB at a limit of 32 MB: received in turn, and all confirmed."""
    octets = stream_of(bytes(2_000_000), 10)
    line = [sys.executable, "-m", "jumpmq", "serve", "--port", "0", "--http-port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen([*line, "--memory-limit", "32MB"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = READY.search(process.stdout.readline())
            assert found
            url = f"http://guest:guest@127.0.0.1:{found['http_port']}/api"
            requests.put(f"{url}/queues/%2F/orders", json={"durable": True}, timeout=30)
            before = peak_memory(process)

            def upload(_: int) -> dict[str, int]:
                answered = requests.post(f"{url}/messages/%2F/publish?queue=orders", octets, timeout=120)
                counts: dict[str, int] = answered.json()
                return counts

            with ThreadPoolExecutor(8) as clients:
                assert sum(answer["published"] for answer in clients.map(upload, range(8))) == 80
            assert peak_memory(process) - before < 140 << 20
        finally:
            process.kill()


def test_a_batch_that_stands_still_holds_up_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "PATIENCE", 0.5)
    octets = stream_of(bytes(1000), 1000)
    with (
        jumpmq.running(memory_limit="4MB") as broker,
        socket.create_connection(("127.0.0.1", broker.http_port), timeout=30) as sender,
    ):
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}/api"
        requests.put(f"{url}/queues/%2F/orders", json={}, timeout=30)
        sender.sendall(
            b"POST /api/messages/%2F/publish?queue=orders HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n" + octets[:5000]
        )
        while not select.select([sender], [], [], 0)[0]:  # the first batches may precede the slow one
            answer = requests.post(f"{url}/messages/%2F/publish?queue=orders", octets, timeout=30).json()
            assert answer["published"] == 1000
            requests.delete(f"{url}/queues/%2F/orders/contents", timeout=30)
        assert sender.recv(1 << 16).split()[1] == b"503"
