"""Digest of all definitions, compared by processes to verify equal definitions."""

import xxhash

from jumpmq.store.changes import Definitions

NOT_DIGESTED = "applied"
"""The kind of the record that says how far a process is."""


class Digest:
    """Exclusive or of the hashes of all records: follows every change, independent of the order of records.

    Args:
        leaves_out: kinds of records that are not looked at.

    Attributes:
        value: 64 bits; 0 where there are no records.
    """

    def __init__(self, *leaves_out: str) -> None:
        self.value = 0
        self._leaves_out = {NOT_DIGESTED, *leaves_out}
        self._hashes: dict[int, int] = {}  # of records, by those of their kinds and keys

    def put(self, kind: str, key: str, text: str) -> None:
        """Add or replace a record.

        Args:
            text: its value in JSON.
        """
        if kind not in self._leaves_out:
            name = _hash(kind, key)
            found = _hash(kind, key, text)
            self.value ^= self._hashes.get(name, 0) ^ found
            self._hashes[name] = found

    def delete(self, kind: str, key: str) -> None:
        """A record is gone."""
        self.value ^= self._hashes.pop(_hash(kind, key), 0)

    def change(self, definitions: Definitions) -> None:
        """Remove and add records."""
        for name in definitions.removed:
            self.delete(*name)
        for name, text in definitions.put.items():
            self.put(*name, text)


def _hash(*parts: str) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(parts).encode(errors="surrogateescape"))
