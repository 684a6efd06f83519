"""`jumpmq check`, `salvage` and `force-leader`: diagnosis and recovery of a data directory."""

import asyncio
from pathlib import Path

from jumpmq.broker import BrokerError, Config
from jumpmq.cli.terminal import echo
from jumpmq.store import Store, StoreError, inspection


def check(directory: Path) -> bool:
    """Print the problems of a data directory; return True if there are none.

    Raises:
        StoreError: the directory cannot be read.
    """
    findings = 0
    for finding in inspection.check(directory):
        findings += 1
        echo(finding)
    if not findings:
        echo(f"{directory} has no problems")
    return not findings


def salvage(directory: Path, to: Path) -> None:
    """Copy the readable data to a new directory, and print a summary.

    Raises:
        StoreError: no data can be read, or the new directory cannot be written.
    """
    for line in inspection.salvage(directory, to, _open):
        echo(line)


def force_leader(config: Config, home: int) -> None:
    """Make this node's copy of a home the leader, and print the loss.

    Raises:
        BrokerError: the copy cannot become the leader; nothing was changed.
    """
    try:
        from jumpmq.nodes.copies.restoring import force_leader
    except ModuleNotFoundError as error:
        raise BrokerError(f"a cluster needs {error.name}: pip install 'jumpmq[cluster]'") from None
    value, lost = asyncio.run(force_leader(config, home))
    echo(lost or f"nothing is lost: {value.leader} has all confirmed messages")
    echo(f"start the node: it serves home {home} from now on. Other members take the home from there when they return")


def _open(directory: Path) -> Store:
    return Store.open(directory, on_commit=lambda receipt: None)


__all__ = ["StoreError", "check", "force_leader", "salvage"]
