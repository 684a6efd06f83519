"""`jumpmq check` and `jumpmq salvage`: what is wrong with a data directory, and what can be taken of it."""

from pathlib import Path

from jumpmq.cli.terminal import echo
from jumpmq.store import Store, StoreError, inspection


def check(directory: Path) -> bool:
    """Print what is wrong; returns whether all is well.

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
    """Take what can be read into a new directory, and print what was taken.

    Raises:
        StoreError: nothing can be read, or the new directory cannot be written.
    """
    for line in inspection.salvage(directory, to, _open):
        echo(line)


def _open(directory: Path) -> Store:
    return Store.open(directory, on_commit=lambda receipt: None)


__all__ = ["StoreError", "check", "salvage"]
