"""A warm process that forks to run `jumpmq` and `jumpmqctl`: a new process takes a third of a second.

    python -m tests.cli.forking SOCKET

A client of the socket sends ``{"name", "arguments", "environment", "directory", "stdout", "stderr"}`` as JSON, with
file names in the last two fields, and gets the exit status.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import signal
import socket
import sys
from typing import Any

import jumpmq.__main__
from jumpmq.cli import jumpmqctl

COMMANDS = {"jumpmq": jumpmq.__main__.main, "jumpmqctl": jumpmqctl.main}


def serve(path: str) -> None:
    """Serve until the end of the parent process."""
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children need no wait
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                attend(client)
            client.close()


def warm_up() -> None:
    """Import all modules that a command imports when it runs."""
    importlib.import_module("jumpmq.cli.server")
    if importlib.util.find_spec("jumpmq.nodes") is not None:  # `scripts/one-process` removes the package
        for module in ("jumpmq.nodes.entering", "jumpmq.nodes.etcd.posting"):
            importlib.import_module(module)
    for name, command in COMMANDS.items():
        sys.argv = [name, "version"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            command()


def attend(client: socket.socket) -> None:
    """Run a command, and send its exit status; does not return."""
    asked = json.loads(client.makefile().readline())
    child = os.fork()
    if child == 0:
        client.close()
        become(asked)
        COMMANDS[asked["name"]]()
        sys.exit()
    client.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def become(asked: dict[str, Any]) -> None:
    """Set the requested arguments, environment and streams."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    sys.argv = [asked["name"], *asked["arguments"]]
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, asked["stdout"]), (2, asked["stderr"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)


if __name__ == "__main__":
    serve(sys.argv[1])
