"""The log at the first worker, which orders the changes of all workers of a node.

1. Another worker proposes a change to the first worker.
2. The first worker validates the change, and applies it. An accepted change becomes an entry, recorded in the commit of
   the change's effect. A refused change has no effect, and becomes no entry.
3. Once the entry is on disk, the first worker sends it to all other workers.
4. When all linked workers have applied the entry, the proposer gets its answer: a client that reads the answer finds
   the change at every worker.

The numbers of entries increase. A worker whose link was down asks for the entries after its last one; entries are kept
until all workers have them on disk. A worker without definitions gets the first worker's definitions.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Protocol

from jumpmq.nodes.log.messages import AfterSync, Entry, LogMessage, Ordered, Port, error_to_json
from jumpmq.nodes.log.shared_log import FIRST, Deciding, Everywhere, Record, SharedLog
from jumpmq.store.kinds import ENTRY, LET_GO
from jumpmq.topology import Change, DeclareQueue, RemoveHome
from jumpmq.topology.json_form import to_json
from jumpmq.topology.proposals import ChangePrincipal, Pending

SNAPSHOT_PART = 500
"""Number of records sent to a new home together."""


class EntryStore(Protocol):
    """Storage for recorded entries."""

    def put(self, kind: str, key: str, value: Any) -> None: ...
    def put_text(self, kind: str, key: str, value: str) -> None: ...
    def delete(self, kind: str, key: str) -> None: ...


class _Home:
    """State of another home at the first home.

    Attributes:
        port: sends messages to the home.
        unsent: entries to send once they are on disk.
    """

    def __init__(self, port: Port, unsent: Iterable[LogMessage] = ()) -> None:
        self.port = port
        self.unsent = deque(unsent)

    def send(self, durable: int) -> None:
        """Send the entries already on disk."""
        while self.unsent and self.unsent[0]["number"] <= durable:
            self.port.send_log(self.unsent.popleft())


class First(SharedLog):
    """The sequencer at the first worker.

    Args:
        topology: validates and applies changes.
        entries: stores entries.
        kept: the stored entries, in order.
        trimmed: the last entry deleted because all homes have it; 0 for none.
        records: returns all current records of definitions.
        on_disk: calls back once all earlier changes are on disk.
        homes: numbers of all other homes.
        identity: identity of this broker; homes of other brokers are refused.
        digest: returns the digest of all current definitions.
        is_ready: tells whether a linked home has restored its queues, so that new queues may be placed there.

    Attributes:
        everywhere: notifies proposers when an entry is on disk here, and applied by all linked homes.
    """

    def __init__(
        self,
        topology: Deciding,
        entries: EntryStore,
        kept: Iterable[LogMessage],
        trimmed: int,
        records: Callable[[], Iterable[Record]],
        on_disk: AfterSync,
        homes: Iterable[int],
        identity: str,
        digest: Callable[[], int] = lambda: 0,
        is_ready: Callable[[int], bool] = lambda home: True,
    ) -> None:
        super().__init__(topology, digest)
        self._is_ready = is_ready
        self.everywhere = Everywhere(lambda: self._durable, lambda: self._homes)
        self.digests[topology.applied] = digest()
        self._journal = entries  # stores entries
        self._records = records  # returns all records of definitions
        self._on_disk = on_disk  # calls back once earlier changes are on disk
        self._identity = identity  # identity of the broker, known to its homes
        self._entries: dict[int, LogMessage] = {}  # entries that a home may lack, in order
        self._numbers: dict[tuple[int, str], int] = {}  # entries by proposing home and request
        self._trimmed = trimmed  # the last entry on disk at all homes
        self._durable = topology.applied  # the last entry that is on disk
        self._homes: dict[int, _Home] = {}  # linked homes with definitions
        self._ports: dict[int, Port] = {}  # to homes that still receive definitions
        self._last = trimmed  # last number given out; refused changes have numbers, too
        kept = list(kept)
        for entry in kept:
            self._keep(entry)
        self._has: dict[int, int | None] = dict.fromkeys(homes)  # by home, the last entry on its disk; None: unknown
        # For each removed home, the entry that removed it; the home needs no later entry.
        self._removed = {entry["change"]["home"]: entry["number"] for entry in kept if _removes(entry)}
        self._requests: set[tuple[int, str]] = set()  # requests of other homes being decided

    # --- at home ---

    def _order(self, pending: Pending) -> None:
        ordered = Ordered(pending.change, pending.principal, FIRST, "")

        def decided() -> None:
            try:
                ordered.result()
            except Exception as error:
                self._when_refused(lambda error=error: pending.refuse(error))  # type: ignore[misc]
            else:
                self.everywhere.call(ordered.number, lambda: pending.accept(ordered.effects))

        self._topology.decide(ordered)
        ordered.then(decided)

    def placed(self, change: Change) -> Change:
        """Return the change, with a home chosen for a queue that may be anywhere, or was declared at a home removed
        since.
        """
        if not isinstance(change, DeclareQueue) or change.definition.home in self._topology.homes:
            return change
        ready = filter(self._is_ready, self._homes)
        stay = [number for number in (FIRST, *ready) if number not in self._topology.left]
        return self.least_loaded(change, stay or [FIRST])

    def note(self, pending: Pending) -> None:
        """Record the entry in the commit of its effect, and send the entry once on disk."""
        home, request = (pending.home, pending.request) if isinstance(pending, Ordered) else (FIRST, "")
        number = pending.number
        entry = Entry(
            do=ENTRY,
            number=number,
            home=home,
            request=request,
            change=pending.change.to_json(),
            asker=to_json(pending.principal),
        )
        self._note_digest(number)
        if _removes(entry):
            self._removed[entry["change"]["home"]] = number
        # Without other homes no entry is needed: the effect itself is in the store.
        if self._has:
            self._journal.put_text(ENTRY, str(number), entry.text)
            self._keep(entry)
        # only now: after a crash here, homes would otherwise keep a change that this home has lost
        self._on_disk(lambda: self._is_durable(number))

    @property
    def kept(self) -> list[LogMessage]:
        """Entries that a home may lack on disk, in order."""
        return list(self._entries.values())

    def _keep(self, entry: LogMessage) -> None:
        self._entries[entry["number"]] = entry
        self._last = entry["number"]
        for home in self._homes.values():
            home.unsent.append(entry)
        if entry["request"]:
            self._numbers[entry["home"], entry["request"]] = entry["number"]

    def _is_durable(self, number: int) -> None:
        self._durable = max(self._durable, number)
        for home in self._homes.values():
            home.send(self._durable)
        self.everywhere.look()

    def _undecided(self) -> Iterator[Pending]:
        """None: the first worker decides on its own, and its log is never stalled."""
        return iter(())

    def _when_refused(self, then: Callable[[], None]) -> None:
        """Call a function once everything that may have caused a refusal is on disk and applied everywhere. Otherwise a
        client could be refused because of a definition that another worker does not have yet, or that a crash undoes.
        """
        self.everywhere.call(self._last, then)

    # --- other homes ---

    def join(self, number: int, port: Port, applied: int | None, has: int, identity: str | None) -> str | None:
        """Handle the start of a link to a home; return the reason for a refusal, if refused.

        Args:
            number: number of the home.
            applied: last entry applied by the home; None without definitions.
            has: last entry on the home's disk.
            identity: identity of the home's broker; None for a new home.
        """
        if number not in self._has:
            return f"there is no home {number}"
        if identity is not None and identity != self._identity:
            return f"the data of home {number} belongs to another broker"
        if applied is None:
            self._send_snapshot(number, port)
            return None
        last = self._topology.applied
        # Deleted entries cannot be sent again, and the log never had entries beyond the last.
        if not self._trimmed <= applied <= last:
            return f"home {number} has change {applied}, the log changes {self._trimmed} to {last}: one was set back"
        self._has[number] = has
        self._welcome(number, port, applied, self._durable)
        return None

    def _welcome(self, number: int, port: Port, applied: int, target: int) -> None:
        home = _Home(port, (entry for entry in self._entries.values() if entry["number"] > applied))
        self._homes[number] = home
        port.send_log({"do": "welcome", "identity": self._identity, "number": target})
        home.send(self._durable)
        self.everywhere.joined(number, applied)

    def _send_snapshot(self, number: int, port: Port) -> None:
        """Send all definitions once they are on disk."""
        applied, records = self._topology.applied, [list(record) for record in self._records()]
        self._ports[number] = port

        def send() -> None:
            if self._ports.get(number) is not port:  # the link is down; its replacement gets the definitions
                return
            for first in range(0, len(records), SNAPSHOT_PART):
                port.send_log({"do": "records", "records": records[first : first + SNAPSHOT_PART]})
            self._durable = max(self._durable, applied)
            self._welcome(number, port, applied, applied)

        self._on_disk(send)

    @property
    def joined(self) -> list[int]:
        """Homes that have to acknowledge entries."""
        return list(self._homes)

    def leave(self, number: int) -> None:
        """Handle the end of the link to a home."""
        self._homes.pop(number, None)
        self._ports.pop(number, None)
        self.everywhere.left(number)

    def receive(self, number: int, message: LogMessage) -> None:
        """Process a message from a home."""
        home = self._homes.get(number)
        if home is None:
            return
        match message["do"]:
            case "propose":
                self._order_for(number, message)
            case "applied":
                if self.differs(message["number"], message["digest"]):
                    home.port.send_log({"do": "differs", "number": message["number"]})
                self.everywhere.applied(number, message["number"])
            case "has":
                if number not in self._has:
                    return
                self._has[number] = message["number"]
                if message["number"] >= self._removed.get(number, message["number"] + 1):
                    del self._has[number], self._removed[number]
                self._trim()

    def _order_for(self, number: int, message: LogMessage) -> None:
        """Decide a request of a home; a repeated request is decided only once."""
        request = message["request"]
        known = message.get("number") or self._numbers.get((number, request))
        if known:
            self.everywhere.call(known, lambda: self._answer(number, {"do": "accepted", "request": request}))
            return
        # The first decision is pending. An acceptance is sent over the link that exists by then.
        if (number, request) in self._requests:
            return
        self._requests.add((number, request))
        ordered = Ordered(Change.from_json(message["change"]), ChangePrincipal(**message["asker"]), number, request)

        def decided() -> None:
            self._requests.discard((number, request))
            home = self._homes.get(number)
            try:
                ordered.result()
            except Exception as error:
                refused = {"do": "refused", "request": request, **error_to_json(error)}
                self._when_refused(lambda: self._refuse(number, home, refused))
            else:
                accepted = {"do": "accepted", "request": request}
                self.everywhere.call(ordered.number, lambda: self._answer(number, accepted))

        self._topology.decide(ordered)
        ordered.then(decided)

    def _answer(self, number: int, message: LogMessage) -> None:
        home = self._homes.get(number)
        if home is not None:  # otherwise the home repeats the request over its next link
            home.port.send_log(message)

    def _refuse(self, number: int, home: _Home | None, message: LogMessage) -> None:
        """Tell a home that a change is refused. A request repeated over a later link is decided again."""
        if self._homes.get(number) is home:
            self._answer(number, message)

    def _trim(self) -> None:
        """Delete the entries that all homes have on disk."""
        # A home that has not linked yet since the start may lack any entry.
        least = min((-1 if has is None else has for has in self._has.values()), default=self._durable)
        done = list(takewhile(lambda number: number <= least, self._entries))
        for number in done:
            entry = self._entries.pop(number)
            self._numbers.pop((entry["home"], entry["request"]), None)
            self._journal.delete(ENTRY, str(number))
            self._trimmed = number
        if done:
            self._journal.put(LET_GO, "", self._trimmed)


def _removes(entry: LogMessage) -> bool:
    """Return True if the entry removes a home."""
    return bool(entry["change"]["change"] == RemoveHome.__name__)
