"""Start and end of child processes running modules of this package."""

import os
import socket
import subprocess
import sys
from pathlib import Path

_PACKAGES = Path(__file__).parents[1]
"""Parent directory of the imported ``jumpmq`` package."""

StartedChild = tuple[subprocess.Popen[bytes], socket.socket]
"""A child, and the parent's end of a socket pair with it."""


def package_environment() -> dict[str, str]:
    """Return the environment for a child, so that ``python -P -m jumpmq.…`` finds the package."""
    paths = (str(_PACKAGES), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def start_child(module: str, *arguments: str) -> StartedChild:
    """Start a module with a socket to this process; the first argument is the descriptor of the child's end.

    Raises:
        OSError: there are too many files or processes, or there is no memory for the child.
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
    """Return the exit status of a child, which is killed unless it ends within some seconds."""
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
