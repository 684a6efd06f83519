"""`jumpmq serve`: a line after the start, a clean stop on a signal without loss, a single line per failure."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from tests.cli.commands import run, serving
from tests.cli.orders import bodies, publish


def test_the_ready_line_says_who_is_ready_and_where(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--node", "jumpmq@sparrow") as broker:
        assert broker.ready_line == (
            f"JumpMQ jumpmq@sparrow is ready at amqp://127.0.0.1:{broker.port}"
            f" and http://127.0.0.1:{broker.http_port}, data in {tmp_path / 'data'}\n"
        )
        publish(broker.amqp_url, 1)


def test_options_come_from_the_environment_too(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = run(
        "jumpmq",
        "serve",
        JUMPMQ_HOST="127.0.0.1",
        JUMPMQ_PORT=str(port),
        JUMPMQ_HTTP_PORT="0",
        JUMPMQ_DATA_DIR="/dev/null/data",
        JUMPMQ_NODE="jumpmq@sparrow",
        JUMPMQ_LOG_LEVEL="error",
    )
    assert result.returncode == 1
    assert "/dev/null/data" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_whoever_lingers_and_nothing_is_lost(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as broker:
        publish(broker.amqp_url, 100)
        lingering = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        broker.process.send_signal(number)
        assert broker.process.wait(60) == 0
        with pytest.raises(pika.exceptions.AMQPError):
            lingering.process_data_events(1)
    with serving(tmp_path) as broker:
        assert bodies(broker.amqp_url) == [str(number).encode() for number in range(100)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_that_waits_for_etcd(tmp_path: Path, number: signal.Signals, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        etcd = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = ("--cluster", "test", "--etcd", etcd, "--workers", str(workers), "--data-dir", str(tmp_path / "data"))
        command = [sys.executable, "-m", "jumpmq", "serve", "--port", "0", "--http-port", "0", *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stderr is not None
            try:
                assert "the start waits for etcd" in next(process.stderr)
                for _ in range(2):  # the second signal is harmless
                    os.killpg(process.pid, number)
                    time.sleep(0.1)
                assert process.wait(20) == 0
                assert "Traceback" not in process.stderr.read()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def one_line_and_status_1(*arguments: str | Path) -> str:
    """The stderr of a `jumpmq serve` that fails to start."""
    result = run("jumpmq", "serve", *arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("jumpmq: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_a_busy_port(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        other = "--http-port" if option == "--port" else "--port"
        assert port in one_line_and_status_1("--data-dir", tmp_path, option, port, other, "0")


def test_a_data_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    directory = tmp_path / "file" / "data"
    assert str(directory) in one_line_and_status_1("--data-dir", directory, "--port", "0", "--http-port", "0")


def test_a_second_broker_on_the_same_data_directory(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        said = one_line_and_status_1("--data-dir", tmp_path, "--port", "0", "--http-port", "0")
        assert str(tmp_path) in said
        publish(broker.amqp_url, 1)


NO_THREADS = """
import threading
from jumpmq.store import writer
def start(*arguments): raise RuntimeError("can't start new thread")
threading.Thread.start = writer.CompiledWorker = start
from jumpmq.__main__ import main
main()
"""


def test_a_system_that_allows_no_more_threads(tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--http-port", "0", "--data-dir", str(tmp_path)]
    command = [sys.executable, "-c", NO_THREADS, *arguments]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    reason = "can't start new thread: the limit of this user or container is reached"
    assert refused.stderr.splitlines()[-1] == f"jumpmq: {reason}"
    assert "Traceback" not in refused.stderr


def test_a_host_that_is_not_of_this_machine(tmp_path: Path) -> None:
    said = one_line_and_status_1("--host", "192.0.2.1", "--data-dir", tmp_path, "--port", "0", "--http-port", "0")
    assert "192.0.2.1" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--port", "65536"], "65535"),
        (["--port", "amqp"], "--port"),
        (["--log-level", "loud"], "--log-level"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_command_line_is_refused_with_the_reason(arguments: list[str], reason: str) -> None:
    result = run("jumpmq", "serve", *arguments)
    assert result.returncode == 2
    assert reason in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
