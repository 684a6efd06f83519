"""Records of a queue beside its messages."""

from typing import Any, Protocol


class RecordJournal(Protocol):
    """Storage of a durable queue's records (:mod:`jumpmq.store.kinds`), for example the store."""

    def put(self, kind: str, key: str, value: Any) -> None: ...
    def put_text(self, kind: str, key: str, value: str) -> None: ...
    def delete(self, kind: str, key: str) -> None: ...
