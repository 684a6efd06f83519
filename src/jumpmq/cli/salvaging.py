"""`jumpmq check` and `jumpmq salvage`: diagnosis and recovery of a data directory."""

from pathlib import Path

from jumpmq.cli.terminal import echo
from jumpmq.store import Store, StoreError, inspection


def check(directory: Path) -> bool:
    """Print the problems of a data directory; return True if there are none.

    Raises:
        StoreError: it cannot be looked at.
    """
    findings = 0
    for finding in inspection.check(directory):
        findings += 1
        echo(finding)
    if not findings:
        echo(f"{directory} is whole")
    return not findings


def salvage(directory: Path, to: Path) -> None:
    """Recover the readable part into a new directory, and print a summary.

    Raises:
        StoreError: nothing can be read, or the new directory cannot be written.
    """
    for line in inspection.salvage(directory, to, _open):
        echo(line)


def _open(directory: Path) -> Store:
    return Store.open(directory, on_commit=lambda receipt: None)


__all__ = ["StoreError", "check", "salvage"]
