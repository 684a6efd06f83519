"""Start and end of child processes with modules of the package."""

import os
import socket
import subprocess
import sys
from pathlib import Path

_PACKAGES = Path(__file__).parents[1]
"""Parent directory of the imported ``jumpmq`` package."""

StartedChild = tuple[subprocess.Popen[bytes], socket.socket]
"""A child, and the parent's end of the socket pair between parent and child."""


def package_environment() -> dict[str, str]:
    """Return an environment for children (``python -P -m jumpmq.…``), with the package in the import path."""
    paths = (str(_PACKAGES), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def start_child(module: str, *arguments: str) -> StartedChild:
    """Start a module with a socket to this process. The child's first argument is the descriptor of its socket.

    Raises:
        OSError: the limit of files or processes is reached, or memory is exhausted.
    """
    ours, theirs = socket.socketpair()
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=package_environment(),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return child, ours


def ended(child: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait for a child, killed after ``seconds``, and return the exit status."""
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
