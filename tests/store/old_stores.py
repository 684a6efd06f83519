"""Directories of stores that an earlier version has written."""

import gzip
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "data" / "store-0.2"
"""What a broker of 0.2 had left, killed or stopped: queue ``orders`` and stream ``events`` with 64 messages each, of
which retention has let go of the stream's first ones; of the last four the store had no record when the broker was
killed. Stream ``empty`` has had nothing."""


def old_store(state: str, directory: Path) -> Path:
    for path in (GOLDEN / state).rglob("*.gz"):
        to = directory / path.relative_to(GOLDEN / state).with_suffix("")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(gzip.decompress(path.read_bytes()))
    return directory
