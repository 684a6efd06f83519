"""The end of a process after a fatal error."""

import os
import socket
import subprocess
import sys

KEPT = """
import os, socket, sys, time
from jumpmq.serving.process import end_at_once
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
connection, _ = listening.accept()
os._exit = lambda status: sys.stdin.read()  # a thread that waits for a disk keeps the process
end_at_once("a test")
"""


def test_connections_end_though_the_disk_keeps_the_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KEPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            assert connection.recv(1) == b""
            assert process.poll() is None
            socket.create_connection(("127.0.0.1", port), timeout=30).close()  # or another listener of the port
        process.communicate("")


FAILING = """
import logging, os, sys
from jumpmq.serving.process import start_again
logging.basicConfig(format="%(message)s", stream=sys.stdout)
if os.environ.get("JUMPMQ_RESTARTS") != "5":
    start_again()
"""


def test_a_process_that_starts_again_and_again_pauses_before() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JUMPMQ_RESTARTS"}
    said = subprocess.run(
        [sys.executable, "-c", FAILING], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert said.splitlines() == [
        f"the process ended soon after its start {times} times; the next start is in {seconds} s"
        for times, seconds in ((3, "0.1"), (4, "0.2"), (5, "0.4"))
    ]


def test_a_process_that_is_told_to_end_in_such_a_pause_ends() -> None:
    environment = os.environ | {"JUMPMQ_RESTARTS": "20"}
    with subprocess.Popen([sys.executable, "-c", FAILING], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and b"the next start is in 30 s" in process.stdout.readline()
        process.terminate()
        assert process.wait(20) == 0
