"""The end of a process that cannot go on."""

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
            socket.create_connection(("127.0.0.1", port), timeout=30).close()  # others may listen there as well
        process.communicate("")
