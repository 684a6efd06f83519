"""Values by message number, in tables of bounded size: growth to a million never copies them all at once."""

from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")

BITS = 12
"""Low bits of a number, used within a table. Doubling a table of 4,096 entries takes 50 us, of a million entries 50
ms.
"""


class ByNumber(Generic[Value]):
    """A mapping of message numbers."""

    __slots__ = ("_count", "_tables")

    def __init__(self) -> None:
        self._tables: dict[int, dict[int, Value]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        table = self._tables.get(number >> BITS)
        return table is not None and number in table

    def __setitem__(self, number: int, value: Value) -> None:
        table = self._tables.get(number >> BITS)
        if table is None:
            table = self._tables[number >> BITS] = {}
        before = len(table)
        table[number] = value
        self._count += len(table) - before

    def __getitem__(self, number: int) -> Value:
        return self._tables[number >> BITS][number]

    def get(self, number: int) -> Value | None:
        """Return the value of a number; None if missing."""
        table = self._tables.get(number >> BITS)
        return None if table is None else table.get(number)

    def take(self, number: int) -> Value:
        """Remove and return the value of an existing number."""
        table = self._tables[number >> BITS]
        value = table.pop(number)
        self._count -= 1
        if not table:
            del self._tables[number >> BITS]
        return value

    def pop(self, number: int) -> Value | None:
        """Remove and return the value of a number; None if missing."""
        table = self._tables.get(number >> BITS)
        return None if table is None or number not in table else self.take(number)

    def tables(self) -> Iterator[list[int]]:
        """Yield the present numbers, a table at a time; entries may come and go in between."""
        for place in list(self._tables):
            yield list(self._tables.get(place, ()))
