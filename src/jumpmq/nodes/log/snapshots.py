"""All definitions of a cluster in etcd, from which a new member begins."""

import hashlib
import json
import secrets
import zlib
from dataclasses import asdict, dataclass

from jumpmq.nodes.etcd.client import JSON, Etcd, EtcdError, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.log.shared_log import Record

CHUNK = 512 << 10
"""Octets of a chunk: etcd takes requests of 1.5 MiB."""

MOST_OCTETS = 1 << 30
"""Octets of all records at most."""


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """Metadata of a snapshot.

    Attributes:
        entry: last entry contained in the snapshot.
        folder: key prefix of the chunks.
        floor: the first entry of the log that is kept.
        chunks: how many.
        sha256: of all of them, in hexadecimal digits.
    """

    entry: int
    floor: int
    folder: str
    chunks: int
    sha256: str

    @classmethod
    def read(cls, value: bytes) -> "SnapshotHead":
        return cls(**json.loads(value))

    def put(self, keys: Keys) -> JSON:
        """Return the transaction's operation for making this snapshot the current snapshot."""
        return put(keys.snapshot_head, json.dumps(asdict(self)))


async def write_snapshot(etcd: Etcd, keys: Keys, entry: int, floor: int, records: list[Record]) -> SnapshotHead:
    """Put the chunks of a snapshot, not valid until its head is put.

    Raises:
        EtcdError: that failed.
    """
    octets = zlib.compress(json.dumps(records, separators=(",", ":")).encode(), 1)
    chunks = [octets[first : first + CHUNK] for first in range(0, len(octets), CHUNK)]
    folder = f"{entry:020}-{secrets.token_hex(4)}"
    for number, chunk in enumerate(chunks):
        await etcd.transaction([], [put(f"{keys.snapshot(folder)}{number:06}", chunk)])
    return SnapshotHead(entry, floor, folder, len(chunks), hashlib.sha256(octets).hexdigest())


async def read_snapshot(etcd: Etcd, keys: Keys, head: SnapshotHead) -> list[Record]:
    """The records of a snapshot.

    Raises:
        EtcdError: it cannot be read, or is not whole.
    """
    folder = keys.snapshot(head.folder)
    chunks = []
    for number in range(head.chunks):  # one by one: together they may be more than an answer holds
        chunk = await etcd.get(f"{folder}{number:06}")
        chunks.append(b"" if chunk is None else chunk.value)
    octets = b"".join(chunks)
    if hashlib.sha256(octets).hexdigest() != head.sha256:
        raise EtcdError(f"the snapshot of entry {head.entry} is not whole")
    inflating = zlib.decompressobj()
    text = inflating.decompress(octets, MOST_OCTETS)
    return [(kind, key, value) for kind, key, value in json.loads(text)]
