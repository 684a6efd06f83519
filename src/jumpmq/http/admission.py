"""Admission of requests: only a few begin per event-loop iteration, so that iterations stay short.

Client addresses take turns. Within an address, connections without an answer so far come first; otherwise the longest
wait decides. Without admission, an iteration with requests of a thousand connections would take a second, and delay
AMQP clients and new HTTP clients.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Protocol

AT_ONCE = 4
"""Requests started per event-loop iteration; a request takes half a millisecond or more."""


class Asking(Protocol):
    """A connection with a request."""

    def begin(self) -> bool:
        """Begin the request; return False if the client is gone."""


class _WaitingLine:
    """Waiting connections of an address."""

    def __init__(self) -> None:
        self.new: deque[Asking] = deque()  # connections without an answer so far
        self.others: deque[Asking] = deque()

    def next(self) -> Asking:
        return (self.new or self.others).popleft()

    def __bool__(self) -> bool:
        return bool(self.new or self.others)


class Admission:
    """Admits the requests of an event loop."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, _WaitingLine] = OrderedDict()  # by address, in the order of their turns
        self._begun = 0  # requests begun in this iteration
        self._is_due = False  # True if the next turn is scheduled

    def ask(self, connection: Asking, address: str, is_new: bool) -> None:
        """Begin a connection's request, now or later.

        Args:
            address: address of the client.
            is_new: True if the connection was not answered yet.
        """
        if self._begun < AT_ONCE and not self._lines:
            self._begin(connection)
            return
        line = self._lines.setdefault(address, _WaitingLine())
        (line.new if is_new else line.others).append(connection)
        self._schedule()

    def _begin(self, connection: Asking) -> None:
        self._begun += connection.begin()
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due, self._begun = False, 0
        while self._lines and self._begun < AT_ONCE:
            address, line = self._lines.popitem(last=False)
            connection = line.next()
            if line:
                self._lines[address] = line
            self._begin(connection)
