"""Session of a streaming query: the only reader of a group, with liveness visible to the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from jumpmq.spark.client import Client
from jumpmq.spark.errors import GroupInUse, JumpMQError, NoSession, QueueInUse
from jumpmq.spark.patience import LONGEST_PAUSE

if TYPE_CHECKING:
    from jumpmq.spark.checkpoints import JVMCheckpoints
    from jumpmq.spark.options import SourceOptions

T = TypeVar("T")

LOOK = 0.5
"""Seconds between two checks of the checkpoint's commit log."""

TAKEOVER = 4.0
"""Seconds to wait for the end of an older query's session; after a lost connection the broker waits 2 seconds."""

RETURN = 0.5
"""Seconds before a broken connection is replaced; doubled after every failed attempt."""


class ReaderSession:
    """Session of a query that reads for a group, kept alive by background threads, however long a batch takes.

    Args:
        query: id of the query; the same after a restart from the query's checkpoint.
        options: options of the query: lease, and sharing of queues.
        log: the commit log of the checkpoint, for the acknowledgement of a micro-batch once it is complete.

    Raises:
        GroupInUse: another query reads for the group.
    """

    def __init__(self, client: Client, group: str, query: str, options: SourceOptions, log: JVMCheckpoints) -> None:
        self.group = group
        self._client = client  # for requests to the broker
        self._query = query  # id of the query
        self._lease = options.lease  # seconds without a request until the session expires
        self._shares = options.share_queues  # whether other sessions may read the same queues
        self._log = log  # the checkpoint's commit log
        self._patient_until = time.monotonic() + TAKEOVER  # from then on, queues in use by another query are an error
        self._session = self._open_within(TAKEOVER)  # the broker's id of the session
        self._stopped = threading.Event()  # ends the background threads
        for work in (self._renew, self._attend):
            threading.Thread(target=work, name=f"{work.__name__} {group}", daemon=True).start()

    def reserve(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Reserve messages as :meth:`Client.reserve`; at first, wait some seconds while a stopped query has the queues.

        Raises:
            QueueInUse: another query reads a queue.
        """
        wanted = wanted | {"lease": self._lease, "shares": self._shares}
        while True:
            try:
                return self._in_session(lambda session: self._client.reserve(self.group, wanted | {"session": session}))
            except QueueInUse:
                if time.monotonic() > self._patient_until:
                    raise
                time.sleep(0.2)

    def places(self) -> dict[str, dict[str, Any]]:
        """Return the group's positions, by queue.

        Raises:
            GroupInUse: another query has taken over.
        """
        return self._in_session(lambda session: self._client.group(self.group, session))

    def stop(self) -> None:
        """Stop renewing. The broker keeps the reservations for the lease, for a restarted query."""
        self._stopped.set()

    def _in_session(self, ask: Callable[[str], T]) -> T:
        try:
            return ask(self._session)
        except NoSession:  # a broker without a store was restarted
            self._client.require_broker()  # raises for another broker at the address
            self._session = self._client.open(self.group, self._query, self._lease)
            return ask(self._session)

    def _open_within(self, seconds: float) -> str:
        """Open the session; wait up to ``seconds`` for the end of a stopped query's session."""
        until = time.monotonic() + seconds
        while True:
            try:
                return self._client.open(self.group, self._query, self._lease)
            except GroupInUse:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _renew(self) -> None:
        due = time.monotonic() + self._lease / 3
        while not self._stopped.wait(LOOK):
            try:
                if done := self._log.completed(self.group, self._query):
                    self.reserve({"queues": done, "max_messages": 0, "accept_loss": True})
                elif time.monotonic() >= due:
                    self._client.renew(self.group, self._session)
                else:
                    continue
                due = time.monotonic() + self._lease / 3
            except (JumpMQError, OSError):
                continue  # the query's next request raises the error

    def _attend(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            began = time.monotonic()
            with suppress(JumpMQError):
                self._client.attend(self.group, self._session)
            pause = RETURN if time.monotonic() > began + RETURN else min(max(RETURN, 2 * pause), LONGEST_PAUSE)
