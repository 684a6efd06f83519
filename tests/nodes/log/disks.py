"""A disk of definitions: a crash loses the unsynced part."""

import json
from collections.abc import Callable
from typing import Any

from jumpmq.store.changes import Definitions


class Disk:
    """Committed and uncommitted records; the journal of a topology."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Any] = {}
        self._staged: list[tuple[str, str, Any]] = []  # None deletes
        self._waiting: list[Callable[[], None]] = []

    def put(self, kind: str, key: str, value: Any) -> None:
        self._staged.append((kind, key, str(value) if type(value) is int else json.dumps(value)))

    def put_text(self, kind: str, key: str, value: str) -> None:
        self._staged.append((kind, key, value))

    def delete(self, kind: str, key: str) -> None:
        self._staged.append((kind, key, None))

    def change(self, definitions: Definitions) -> None:
        for kind, key in definitions.removed:
            self.delete(kind, key)
        for (kind, key), text in definitions.put.items():
            self._staged.append((kind, key, text))

    def drop_queue(self, queue_id: int) -> None:
        pass

    @property
    def is_behind(self) -> bool:
        """Return True if records are uncommitted."""
        return bool(self._staged)

    def when_done(self, then: Callable[[], None]) -> None:
        self._waiting.append(then)

    def commit(self) -> None:
        for kind, key, text in self._staged:
            self.kept.pop((kind, key), None) if text is None else self.kept.__setitem__((kind, key), text)
        self._staged.clear()
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def lose(self) -> None:
        """Drop all uncommitted records, as a kill does."""
        self._staged.clear()
        self._waiting.clear()

    @property
    def applied(self) -> int:
        """Return the number of the last change with a committed effect; -1 without definitions."""
        return int(self.kept.get(("applied", ""), -1))

    def replace(self, records: list[tuple[str, str, Any]]) -> None:
        """Replace the kept definitions by the given records, in order."""
        for kind, key in self.kept:
            self.delete(kind, key)
        for record in records:
            self.put(*record)
        self.commit()

    def definitions(self) -> list[tuple[str, str, Any]]:
        return [(kind, key, json.loads(text)) for (kind, key), text in self.kept.items()]
