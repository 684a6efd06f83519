"""Store directories written by an earlier version."""

import gzip
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "data" / "store-0.2"
"""Directories left by a broker of 0.2, killed or stopped.

Queue ``orders`` and stream ``events`` have 64 messages each. Retention has removed the stream's first
messages. When the broker was killed, the store had no record of the last four. Stream ``empty`` has no
messages.
"""


def old_store(state: str, directory: Path) -> Path:
    for path in (GOLDEN / state).rglob("*.gz"):
        to = directory / path.relative_to(GOLDEN / state).with_suffix("")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(gzip.decompress(path.read_bytes()))
    return directory
