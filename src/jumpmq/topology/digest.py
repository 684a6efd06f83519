"""Digest of all definitions; processes compare digests to verify that their definitions are equal."""

import xxhash

from jumpmq.store.changes import Definitions

NOT_DIGESTED = "applied"
"""Kind of the record with a process's position in the log."""


class Digest:
    """Exclusive or of the hashes of all records: follows every change, independent of the order of records.

    Args:
        leaves_out: kinds of records not included.

    Attributes:
        value: 64 bits; 0 without records.
    """

    def __init__(self, *leaves_out: str) -> None:
        self.value = 0
        self._leaves_out = {NOT_DIGESTED, *leaves_out}
        self._hashes: dict[int, int] = {}  # hashes of records, by hashes of kind and key

    def put(self, kind: str, key: str, text: str) -> None:
        """Add or replace a record.

        Args:
            text: JSON text of its value.
        """
        if kind not in self._leaves_out:
            name = _hash(kind, key)
            found = _hash(kind, key, text)
            self.value ^= self._hashes.get(name, 0) ^ found
            self._hashes[name] = found

    def delete(self, kind: str, key: str) -> None:
        """Remove a record."""
        self.value ^= self._hashes.pop(_hash(kind, key), 0)

    def change(self, definitions: Definitions) -> None:
        """Remove and add records."""
        for name in definitions.removed:
            self.delete(*name)
        for name, text in definitions.put.items():
            self.put(*name, text)


def _hash(*parts: str) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(parts).encode(errors="surrogateescape"))
