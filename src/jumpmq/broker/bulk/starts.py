"""The broker's starts on a data directory, recorded to detect a directory restored from a backup.

How it works. The *fingerprint* of a directory is ``{DIRECTORY: [START, COMMIT]}``: the current start of the broker, and
the number of the last commit; the first start names the directory. A reader stores fingerprints. If the directory is
restored from a backup, the reader's fingerprint names a start that the directory has not had, or a commit
after the last commit of that start.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jumpmq.store.kinds import START

if TYPE_CHECKING:
    from jumpmq.store import Store

MOST = 1000
"""Number of starts kept: the most recent, and the first."""

Fingerprint = Mapping[str, tuple[str, int]]


class OlderDirectory(Exception):
    """The data directory is older than a reader's fingerprint."""


class Starts:
    """The broker's starts on its data directory, the current start included.

    Args:
        boot: name of the current start.
    """

    def __init__(self, boot: str) -> None:
        self._boot = boot
        self._begun: dict[str, int] = {}  # the last commit before each start, in order

    def begin(self, store: Store, definitions: list[tuple[str, str, Any]]) -> None:
        """Stage a record of the current start.

        Args:
            definitions: all stored definitions, as (kind, key, value).
        """
        kept = sorted((commit, start) for kind, start, commit in definitions if kind == START)
        # The first start stays, because it identifies the directory.
        for _, start in (forgotten := kept[1:-MOST]):
            store.delete(START, start)
        del kept[1 : 1 + len(forgotten)]
        self._begun = {start: commit for commit, start in kept} | {self._boot: store.last_commit}
        store.put(START, self._boot, store.last_commit)

    @classmethod
    def until_now(cls, store: Store, definitions: list[tuple[str, str, Any]]) -> Starts:
        """Return the earlier starts; the current start leaves no record yet.

        Args:
            definitions: see :meth:`begin`.
        """
        found = cls("")
        kept = sorted((commit, start) for kind, start, commit in definitions if kind == START)
        found._begun = {start: commit for commit, start in kept} | {"": store.last_commit}
        return found

    def had(self, start: str) -> bool:
        """Return True if the directory has had a start, the current start included. Of two processes on a directory,
        the older process lacks the start of the newer one."""
        return start in self._begun

    def fingerprint(self, store: Store) -> dict[str, tuple[str, int]]:
        """Return the fingerprint of the directory on disk."""
        return {self._directory: (self._boot, store.last_commit)}

    def require_seen(self, seen: Fingerprint) -> None:
        """Refuse a directory older than a reader's fingerprint. Fingerprints of other directories are accepted.

        Raises:
            OlderDirectory: the directory is older.
        """
        start, commit = seen.get(self._directory, (self._boot, 0))
        ends = {one: end for one, (_, end) in zip(self._begun, pairwise(self._begun.values()), strict=False)}
        # Beyond the limit, a start may be unknown because its record was deleted.
        is_lost = start not in self._begun and len(self._begun) <= MOST
        if is_lost or commit > ends.get(start, commit):
            raise OlderDirectory(
                "the broker's data directory is older than its state seen by this reader: it was restored from an "
                "older backup, and messages read since the backup may come again"
            )

    @property
    def _directory(self) -> str:
        return next(iter(self._begun), self._boot)
