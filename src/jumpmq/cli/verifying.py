"""`jumpmq verify`: check of consumers' records for order, single handling, and one owner at a time."""

import json
from pathlib import Path

from jumpmq.cli.errors import counted
from jumpmq.cli.terminal import echo
from jumpmq.ordering.verification import KINDS, UnreadableRecords, Verification, read

SHOWN = 100
"""Maximum number of violations shown; further violations are counted."""

__all__ = ["UnreadableRecords", "verdict", "verify"]


def verify(paths: list[Path], table: str, as_json: bool) -> bool:
    """Print the violations and the sums; return True without violations.

    Raises:
        UnreadableRecords: a file cannot be read.
    """
    verification, shown = Verification(), 0
    for path in paths:
        for row in read(path, table):
            for fault in verification.add(row):
                shown += 1
                if as_json:
                    echo(json.dumps({"fault": fault.kind, "key": fault.key, "row": fault.row, "before": fault.before}))
                elif shown <= SHOWN:
                    echo(f"{fault.kind}: {fault}")
    faults = verification.faults
    if as_json:
        sums = {"rows": verification.rows, "keys": verification.keys, "missing": verification.missing}
        echo(json.dumps({**sums, **{kind: faults[kind] for kind in KINDS}}))
        return not any(faults.values())
    if shown > SHOWN:
        echo(f"... and {shown - SHOWN} more")
    echo(verdict(verification))
    return not any(faults.values())


def verdict(verification: Verification) -> str:
    """Return the result of a verification, as a sentence."""
    return (
        f"{counted(verification.rows, 'row')} of {counted(verification.keys, 'key')}: "
        f"{', '.join(f'{kind} {_held(verification.faults[kind])}' for kind in KINDS)}; "
        f"{counted(verification.missing, 'number')} missing"
    )


def _held(faults: int) -> str:
    return "held" if not faults else f"broken {counted(faults, 'time')}"
