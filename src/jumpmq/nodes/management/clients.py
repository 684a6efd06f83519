"""Clients of all other homes, added and removed at run time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from jumpmq.nodes.management.client import HomeClient


class HomeClients(Mapping[int, HomeClient]):
    """A client per other home, by number of the home.

    Args:
        homes: returns the current numbers of the other homes.
        make: makes the client of a home.
    """

    def __init__(self, homes: Callable[[], Collection[int]], make: Callable[[int], HomeClient]) -> None:
        self._homes = homes
        self._make = make
        self._made: dict[int, HomeClient] = {}

    def __getitem__(self, home: int) -> HomeClient:
        if home not in self._homes():
            raise KeyError(home)
        if home not in self._made:
            self._made[home] = self._make(home)
        return self._made[home]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._homes()))

    def __len__(self) -> int:
        return len(self._homes())

    def abandon(self, home: int) -> None:
        """Abandon pending requests to an unreachable home."""
        if home in self._made:
            self._made[home].abandon()

    def close(self) -> None:
        """Close all idle connections."""
        for client in self._made.values():
            client.close()
