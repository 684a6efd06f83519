"""One log of changes for several processes: the first home orders it, and the others replay it.

A home asks the first one for a change. There it is judged and takes effect; a change that is accepted is an *entry*,
which is recorded in the same commit as its effect. Once that is on disk the entry goes to all other homes, and when all
of those whose links are up have applied it, the asker is told: what an answer promises is known everywhere. A
change that is refused changes nothing, and is no entry.

Numbers grow from entry to entry, and what a home has applied is recorded in the commit of its effect. A home that was
away asks for what came after; entries are kept until all homes have them on disk. One that has never been here becomes
the first home's definitions instead, before it has any.

Nothing here knows of sockets, disks or the clock: :class:`Port` and ``on_disk`` are given.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Protocol

from jumpmq.amqp import errors
from jumpmq.amqp.errors import AMQPError, InternalError, MetadataTimeout
from jumpmq.store.changes import json_text
from jumpmq.topology.changes import Change, DeclareQueue, RemoveHome
from jumpmq.topology.holdings import Holdings
from jumpmq.topology.json_form import change_from_json, change_to_json, to_json
from jumpmq.topology.proposals import Asker, Pending

log = logging.getLogger(__name__)

ENTRY = "entry"
"""Kind of record that keeps an entry."""

LET_GO = "let_go"
"""Kind of record that keeps the number of the last entry that all homes have."""

FIRST = 1
"""The home that orders the log."""

STANDS_STILL = (
    "the metadata store operation timed out: the home that orders changes of definitions is down or inaccessible"
)
"""Why a change is refused while no change can be made; RabbitMQ 4's words, and what they mean here."""

DIGESTS = 1000
"""Entries whose digests are kept."""

SNAPSHOT_PART = 500
"""Records that go to a new home together."""

Message = dict[str, Any]
"""What homes tell each other of the log; it has a JSON form. ``do`` says what."""

Record = tuple[str, str, Any]
"""Kind, key and value of a definition's record."""

OnDisk = Callable[[Callable[[], None]], None]
"""Has a function called when everything that was changed up to now is on disk."""


class Entry(Message):
    """An entry, as homes tell each other of it."""

    @cached_property
    def text(self) -> str:
        """It in JSON, once for all homes and the disk."""
        return json_text(self)


class Port(Protocol):
    """The way to another home. What is sent arrives in order, or the link breaks."""

    def send_log(self, message: Message) -> None: ...


class Deciding(Protocol):
    """What has changes judged and take effect here: the topology."""

    applied: int
    holdings: Holdings
    homes: dict[int, str]
    left: set[int]

    def decide(self, pending: Pending) -> None: ...
    def refuse_own_end(self, change: Change) -> None: ...


class Entries(Protocol):
    """Where entries are recorded."""

    def put(self, kind: str, key: str, value: Any) -> None: ...
    def put_text(self, kind: str, key: str, value: str) -> None: ...
    def delete(self, kind: str, key: str) -> None: ...


class _Ordered(Pending):
    """A change that becomes an entry.

    Attributes:
        home: who asked for it.
        request: the number by which that home knows it.
    """

    __slots__ = ("home", "request")

    def __init__(self, change: Change, asker: Asker, home: int, request: str) -> None:
        super().__init__(change, asker)
        self.home = home
        self.request = request


class _Home:
    """Another home, as the first one knows it.

    Attributes:
        port: the way there.
        applied: the last entry that it has applied.
        unsent: the entries that go there once they are on disk.
    """

    def __init__(self, port: Port, applied: int, unsent: Iterable[Message] = ()) -> None:
        self.port = port
        self.applied = applied
        self.unsent = deque(unsent)

    def send(self, durable: int) -> None:
        """Send what is on disk by now."""
        while self.unsent and self.unsent[0]["number"] <= durable:
            self.port.send_log(self.unsent.popleft())


class First:
    """The log at the home that orders it.

    Args:
        topology: where changes are judged and take effect.
        entries: where entries are recorded.
        kept: the entries that are recorded, in order.
        let_go: the last entry that is no longer recorded, as all homes have it; 0 where there is none.
        records: all records of definitions, as they are now.
        on_disk: tells when what was changed is on disk.
        homes: the numbers of all other homes.
        identity: of this broker: a home that was another's is refused.
        digest: that of all definitions, as they are now.

    Attributes:
        is_ready: whether a home whose link is up has its queues, so that others may be there.
    """

    is_shared = True

    def __init__(
        self,
        topology: Deciding,
        entries: Entries,
        kept: Iterable[Message],
        let_go: int,
        records: Callable[[], Iterable[Record]],
        on_disk: OnDisk,
        homes: Iterable[int],
        identity: str,
        digest: Callable[[], int] = lambda: 0,
    ) -> None:
        self.is_ready: Callable[[int], bool] = lambda home: True
        self._topology = topology  # where changes take effect
        self._journal = entries  # where entries are recorded
        self._records = records  # lists all records of definitions
        self._on_disk = on_disk  # calls back when what was changed is on disk
        self._identity = identity  # which homes have noted
        self._digest = digest  # of all definitions
        self._digests = {topology.applied: digest()}  # those after the last entries, by number
        self._entries: dict[int, Message] = {}  # those that some home may lack, in order
        self._numbers: dict[tuple[int, str], int] = {}  # of these, by home and request
        self._let_go = let_go  # the last entry that all homes have
        self._durable = topology.applied  # the last entry that is on disk
        self._homes: dict[int, _Home] = {}  # those whose links are up
        self._last = let_go  # the number of the last entry: changes that are refused have numbers, too
        kept = list(kept)
        for entry in kept:
            self._keep(entry)
        self._has: dict[int, int | None] = dict.fromkeys(homes)  # by home, the last entry on its disk; None: unknown
        # Homes that are removed, and the entry after which they need no more.
        self._removed = {entry["change"]["home"]: entry["number"] for entry in kept if _removes(entry)}
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # who waits for which entry, in order
        self._requests: set[tuple[int, str]] = set()  # what homes have asked for and is not decided

    # --- at home ---

    def propose(self, pending: Pending) -> None:
        """See :meth:`CommonLog.propose`."""
        ordered = _Ordered(pending.change, pending.asker, FIRST, "")

        def decided() -> None:
            try:
                ordered.result()
            except Exception as error:
                self._when_refused(lambda error=error: pending.refuse(error))  # type: ignore[misc]
            else:
                self._when_everywhere(ordered.number, lambda: pending.accept(ordered.effects))

        self._topology.decide(ordered)
        ordered.then(decided)

    def placed(self, change: Change) -> Change:
        """See :meth:`CommonLog.placed`. Of those that are ready, and are not left, the home with the fewest queues is
        taken; also for what was declared at a home that is gone since."""
        if not isinstance(change, DeclareQueue) or change.definition.home in self._topology.homes:
            return change
        queues = self._topology.holdings.queues_by_home
        ready = filter(self.is_ready, self._homes)
        stay = [number for number in (FIRST, *ready) if number not in self._topology.left]
        home = min(stay or [FIRST], key=lambda number: (queues[number], number))
        return replace(change, definition=replace(change.definition, home=home))

    def note(self, pending: Pending) -> None:
        """See :meth:`CommonLog.note`."""
        home, request = (pending.home, pending.request) if isinstance(pending, _Ordered) else (FIRST, "")
        number = pending.number
        entry = Entry(
            do=ENTRY,
            number=number,
            home=home,
            request=request,
            change=change_to_json(pending.change),
            asker=to_json(pending.asker),
        )
        self._digests[number] = self._digest()
        if len(self._digests) > DIGESTS:
            del self._digests[next(iter(self._digests))]
        if _removes(entry):
            self._removed[entry["change"]["home"]] = number
        if self._has:
            self._journal.put_text(ENTRY, str(number), entry.text)
            self._keep(entry)
        self._on_disk(lambda: self._is_durable(number))

    @property
    def kept(self) -> list[Message]:
        """The entries that some home may not have on disk, in order."""
        return list(self._entries.values())

    def _keep(self, entry: Message) -> None:
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
        self._look()

    def _when_everywhere(self, number: int, then: Callable[[], None]) -> None:
        """Call when an entry is on disk, and applied by all whose links are up."""
        self._waiting.append((number, then))
        self._look()

    def _when_refused(self, then: Callable[[], None]) -> None:
        """Call when all that a change may have been refused for is everywhere: else a client is told of what another
        one does not find, or what a crash undoes."""
        self._when_everywhere(self._last, then)

    def _look(self) -> None:
        """Answer those whose entries are everywhere."""
        applied = min([self._durable, *(home.applied for home in self._homes.values())])
        while self._waiting and self._waiting[0][0] <= applied:
            self._waiting.popleft()[1]()

    # --- other homes ---

    def join(self, number: int, port: Port, applied: int | None, has: int, identity: str | None) -> str | None:
        """The link to a home is up; returns why it is refused, if it is.

        Args:
            number: of the home.
            applied: the last entry that it has applied; None where it has no definitions.
            has: the last that it has on disk.
            identity: of the broker that it belongs to; None where it has never been here.
        """
        if number not in self._has:
            return f"there is no home {number}"
        if identity is not None and identity != self._identity:
            return f"the data of home {number} belongs to another broker"
        if applied is None:
            self._send_snapshot(number, port)
            return None
        last = self._topology.applied
        if not self._let_go <= applied <= last:
            return f"home {number} has change {applied}, the log changes {self._let_go} to {last}: one was set back"
        self._has[number] = has
        self._welcome(number, port, applied, self._durable)
        return None

    def _welcome(self, number: int, port: Port, applied: int, target: int) -> None:
        home = _Home(port, applied, (entry for entry in self._entries.values() if entry["number"] > applied))
        self._homes[number] = home
        port.send_log({"do": "welcome", "identity": self._identity, "number": target})
        home.send(self._durable)
        self._look()

    def _send_snapshot(self, number: int, port: Port) -> None:
        """Send all definitions, as soon as they are on disk."""
        applied, records = self._topology.applied, [list(record) for record in self._records()]

        def send() -> None:
            for first in range(0, len(records), SNAPSHOT_PART):
                port.send_log({"do": "records", "records": records[first : first + SNAPSHOT_PART]})
            self._durable = max(self._durable, applied)
            self._welcome(number, port, applied, applied)

        self._on_disk(send)

    @property
    def joined(self) -> list[int]:
        """The homes that are waited for."""
        return list(self._homes)

    def leave(self, number: int) -> None:
        """The link to a home is down."""
        self._homes.pop(number, None)
        self._look()

    def receive(self, number: int, message: Message) -> None:
        """A home says something."""
        home = self._homes.get(number)
        if home is None:
            return
        match message["do"]:
            case "propose":
                self._order(number, message)
            case "applied":
                home.applied = max(home.applied, message["number"])
                if self._digests.get(message["number"], message["digest"]) != message["digest"]:
                    home.port.send_log({"do": "differs", "number": message["number"]})
                self._look()
            case "has":
                if number not in self._has:
                    return
                self._has[number] = message["number"]
                if message["number"] >= self._removed.get(number, message["number"] + 1):
                    del self._has[number], self._removed[number]
                self._trim()

    def _order(self, number: int, message: Message) -> None:
        """Decide what a home asks for, once, however often it asks."""
        request = message["request"]
        known = message.get("number") or self._numbers.get((number, request))
        if known:
            self._when_everywhere(known, lambda: self._answer(number, {"do": "accepted", "request": request}))
            return
        if (number, request) in self._requests:
            return
        self._requests.add((number, request))
        ordered = _Ordered(change_from_json(message["change"]), Asker(**message["asker"]), number, request)

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
                self._when_everywhere(ordered.number, lambda: self._answer(number, accepted))

        self._topology.decide(ordered)
        ordered.then(decided)

    def _answer(self, number: int, message: Message) -> None:
        home = self._homes.get(number)
        if home is not None:  # else it asks again
            home.port.send_log(message)

    def _refuse(self, number: int, home: _Home | None, message: Message) -> None:
        """Tell a home that a change is refused; over another link it has asked again, and that is decided by itself."""
        if self._homes.get(number) is home:
            self._answer(number, message)

    def _trim(self) -> None:
        """Let go of the entries that all homes have on disk."""
        least = min((-1 if has is None else has for has in self._has.values()), default=self._durable)
        done = list(takewhile(lambda number: number <= least, self._entries))
        for number in done:
            entry = self._entries.pop(number)
            self._numbers.pop((entry["home"], entry["request"]), None)
            self._journal.delete(ENTRY, str(number))
            self._let_go = number
        if done:
            self._journal.put(LET_GO, "", self._let_go)


def _removes(entry: Message) -> bool:
    """Whether a home is removed."""
    return bool(entry["change"]["change"] == RemoveHome.__name__)


class Follower:
    """The log at another home.

    Args:
        topology: where entries take effect.
        boot: tells this run of the process from all others.
        on_disk: tells when what was changed is on disk.
        on_divergence: called with a sentence when an entry has another outcome here; the process has to end.
        digest: that of all definitions, as they are now.
        on_difference: called with a sentence when it is not the first home's.

    Attributes:
        on_applied: called when an entry has been applied.
    """

    is_shared = True

    def __init__(
        self,
        topology: Deciding,
        boot: str,
        on_disk: OnDisk,
        on_divergence: Callable[[str], None] = log.critical,
        digest: Callable[[], int] = lambda: 0,
        on_difference: Callable[[str], None] = log.critical,
    ) -> None:
        self.on_applied: Callable[[], None] = lambda: None
        self._topology = topology  # where entries take effect
        self._boot = boot  # makes the numbers of requests different in each run
        self._on_disk = on_disk  # calls back when what was changed is on disk
        self._on_divergence = on_divergence  # ends the process
        self._digest = digest  # of all definitions
        self._on_difference = on_difference  # is told once
        self._differs = False  # whether it was
        self._count = 0  # of requests
        self._asked: dict[str, Pending] = {}  # what was asked for and is not answered, by request
        self._applied_here: dict[str, _Ordered] = {}  # of these, those whose entry has been applied
        self._port: Port | None = None  # the way to the first home; None while the link is down
        self._queued = 0  # the last entry that came
        self._noting = False  # whether it is known what is on disk before long
        self._together = False  # whether more entries are about to be applied
        self._untold = 0  # the last entry that was applied meanwhile; 0 where there is none
        self._stands_still = False  # whether the first home has been away for too long

    def propose(self, pending: Pending) -> None:
        """See :meth:`CommonLog.propose`. It waits while the link is down; see :meth:`stand_still`."""
        if self._stands_still and pending.limited:
            pending.refuse(MetadataTimeout(STANDS_STILL))
            return
        self._count += 1
        request = f"{self._boot}.{self._count}"
        self._asked[request] = pending
        if self._port is not None:
            self._ask(request, pending)

    def placed(self, change: Change) -> Change:
        """See :meth:`CommonLog.placed`."""
        return change

    def note(self, pending: Pending) -> None:
        """See :meth:`CommonLog.note`."""

    def _ask(self, request: str, pending: Pending) -> None:
        assert self._port is not None
        applied = self._applied_here.get(request)
        message: Message = {"do": "propose", "request": request}
        if applied is not None:
            message["number"] = applied.number
        else:
            message |= {"change": change_to_json(pending.change), "asker": to_json(pending.asker)}
        self._port.send_log(message)

    def join(self, port: Port) -> None:
        """This home has applied what the first one had when the link came up; what is not answered is asked again."""
        self._port = port
        self._stands_still = False
        port.send_log({"do": "applied", "number": self._topology.applied, "digest": self._digest()})
        self._note_disk()
        for request, pending in list(self._asked.items()):
            self._ask(request, pending)

    def leave(self) -> None:
        """The link to the first home is down."""
        self._port = None

    def stand_still(self) -> None:
        """The first home is away for too long: refuse those who wait for a limited time, until :meth:`join`.

        What they have asked for is asked for all the same when it is back, as it may have been decided already.
        """
        if self._port is None:
            self._stands_still = True
            for pending in list(self._asked.values()):
                if pending.limited:
                    pending.refuse(MetadataTimeout(STANDS_STILL))

    def receive(self, message: Message) -> None:
        """The first home says something."""
        match message["do"]:
            case "entry":
                self._apply(message)
            case "accepted":
                ordered = self._applied_here.pop(message["request"], None)
                pending = self._asked.pop(message["request"], None)
                if pending is not None:
                    pending.accept([] if ordered is None else ordered.effects)
            case "differs" if not self._differs:
                self._differs = True
                self._on_difference(
                    f"after change {message['number']} of the common log the definitions of this process are not those "
                    "of the first one: what is published to its queues may wait without end; please report this"
                )
            case "refused":
                pending = self._asked.pop(message["request"], None)
                if pending is not None:
                    pending.refuse(error_from_json(message))

    def _apply(self, message: Message) -> None:
        number = message["number"]
        if number <= max(self._queued, self._topology.applied):
            return
        self._queued = number
        entry = _Ordered(
            change_from_json(message["change"]), Asker(**message["asker"]), message["home"], message["request"]
        )
        entry.number = number
        self._topology.decide(entry)
        entry.then(lambda: self._on_applied(entry))

    def _on_applied(self, entry: _Ordered) -> None:
        try:
            entry.result()
        except Exception as error:
            self._on_divergence(f"change {entry.number} of the common log is refused here, and was accepted: {error!r}")
            return
        if entry.request in self._asked:
            self._applied_here[entry.request] = entry
        self._untold = entry.number
        if not self._together:
            self._tell_applied()
        self._note_disk()
        self.on_applied()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Entries are received: what is applied of them is told at the end."""
        self._together = True
        try:
            yield
        finally:
            self._together = False
            self._tell_applied()

    def _tell_applied(self) -> None:
        if self._untold and self._port is not None:
            self._port.send_log({"do": "applied", "number": self._untold, "digest": self._digest()})
        self._untold = 0

    def _note_disk(self) -> None:
        """Tell the first home what is on disk here, once for what is applied meanwhile."""
        if self._noting:
            return
        self._noting = True
        number = self._topology.applied

        def on_disk() -> None:
            self._noting = False
            if self._port is not None:
                self._port.send_log({"do": "has", "number": number})
            if self._topology.applied > number:
                self._note_disk()

        self._on_disk(on_disk)


def error_to_json(error: Exception) -> Message:
    """Why a change was refused."""
    if isinstance(error, AMQPError):
        return {"error": type(error).__name__, "text": error.text}
    return {"error": InternalError.__name__, "text": "unexpected error; see the broker's log"}


def error_from_json(message: Message) -> AMQPError:
    """The inverse of :func:`error_to_json`."""
    kind: type[AMQPError] = getattr(errors, message["error"])
    return kind(message["text"])
