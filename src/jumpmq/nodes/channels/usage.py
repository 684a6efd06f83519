"""Open connections and channels of users and virtual hosts with limits. Homes exchange the counts: a limit applies to
all homes together.

A home sends its counts at the end of the turn that opened a limited connection or channel; other changes follow within
:data:`INTERVAL`. The counts include the number of messages published by users with a limit. Two connections opened at
two homes within the same millisecond may exceed a limit by one.
"""

import asyncio
import json

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.security.user_limits import Usage, UserLimits
from jumpmq.broker.upkeep.ticks import Ticks
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import USAGE

INTERVAL = 0.2
"""Interval between polls for closed connections and channels, in seconds."""


class UsageLinks:
    """Exchanges usage with all other homes."""

    def __init__(self, links: Links, turns: Turns) -> None:
        self._links = links  # to all peers
        self._turns = turns  # those of the broker
        self._limits: UserLimits | None = None  # has the counts of this home
        self._received: dict[int, Usage] = {}  # counts of other homes, by home
        self._sent: Usage = {}  # counts last sent
        self._soon: asyncio.Handle | None = None  # the next sending
        self._polls: Ticks | None = None  # for closed connections and channels
        links.handlers[USAGE] = self._receive
        links.on_up.append(self._greet)
        links.on_down.append(self._forget)

    def serve(self, limits: UserLimits) -> None:
        """Start reporting, as clients may connect from now on."""
        self._limits = limits
        limits.share(self._received, self._send_soon)
        self._send()
        self._polls = Ticks(INTERVAL, self._send)

    def stop(self) -> None:
        """Stop reporting."""
        for handle in (self._soon, self._polls):
            if handle is not None:
                handle.cancel()

    def _send_soon(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._soon = None
        usage = self._limits.usage() if self._limits is not None else {}
        if usage != self._sent:
            self._sent = usage
            with self._turns.turn():
                for home in self._links.homes:
                    if (link := self._links.to(home)) is not None:
                        self._greet(link)

    def _greet(self, link: Link) -> None:
        link.send(USAGE, json.dumps(self._sent).encode())

    def _forget(self, link: Link) -> None:
        self._received.pop(link.peer, None)

    def _receive(self, link: Link, payload: memoryview) -> None:
        usage = json.loads(bytes(payload))
        before = self._received.get(link.peer, usage)
        self._received[link.peer] = usage
        if self._limits is not None:
            self._limits.published_at_others(before, usage)
