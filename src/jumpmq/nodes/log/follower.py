"""Log at the workers behind the first: every worker sends changes to the first worker and replays its entries."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from jumpmq.nodes.log.messages import AfterSync, LogMessage, Ordered, Port, error_from_json
from jumpmq.nodes.log.shared_log import Deciding, SharedLog
from jumpmq.topology import Change
from jumpmq.topology.json_form import to_json
from jumpmq.topology.proposals import ChangePrincipal, Pending

log = logging.getLogger(__name__)

STALLED = "the metadata store operation timed out: the home that orders changes of definitions is down or inaccessible"
"""Reply text for a change while the first worker is away, in RabbitMQ 4's words."""


class LogFollower(SharedLog):
    """The sequencer at the other workers: sends proposals to the first worker over a link, and applies its entries.

    Args:
        topology: applies entries.
        boot: identity of this run of the process.
        on_disk: calls back once all earlier changes are on disk.
        on_divergence: called with a text when an entry has a different outcome here; the process has to end.
        digest: returns the digest of all current definitions.
        on_difference: called with a text when the digest differs from the first home's.
    """

    def __init__(
        self,
        topology: Deciding,
        boot: str,
        on_disk: AfterSync,
        on_divergence: Callable[[str], None] = log.critical,
        digest: Callable[[], int] = lambda: 0,
        on_difference: Callable[[str], None] = log.critical,
    ) -> None:
        super().__init__(topology, digest)
        self._listener: Callable[[], None] = lambda: None  # called after an entry is applied
        self._boot = boot  # makes request numbers unique across runs
        self._on_disk = on_disk  # calls back once earlier changes are on disk
        self._on_divergence = on_divergence  # ends the process
        self._on_difference = on_difference  # called once
        self._differs = False  # True after ``on_difference`` was called
        self._count = 0  # of requests
        self._asked: dict[str, Pending] = {}  # unanswered proposals, by request
        self._applied_here: dict[str, Ordered] = {}  # the proposals of these that are applied here
        self._port: Port | None = None  # to the first home; None while the link is down
        self._queued = 0  # the last received entry
        self._noting = False  # True while a report of the position on disk is due
        self._together = False  # True while more entries follow in the same record
        self._untold = 0  # the last applied entry not reported yet; 0 for none

    def _order(self, pending: Pending) -> None:
        self._count += 1
        request = f"{self._boot}.{self._count}"
        self._asked[request] = pending
        if self._port is not None:
            self._ask(request, pending)

    def _ask(self, request: str, pending: Pending) -> None:
        assert self._port is not None
        applied = self._applied_here.get(request)
        message: LogMessage = {"do": "propose", "request": request}
        if applied is not None:
            message["number"] = applied.number
        else:
            message |= {"change": pending.change.to_json(), "asker": to_json(pending.principal)}
        self._port.send_log(message)

    def join(self, port: Port) -> None:
        """Repeat unanswered proposals over a new link. By now this home has applied all entries that the first home had
        when the link came up.
        """
        self._port = port
        self.go_on()
        port.send_log({"do": "applied", "number": self._topology.applied, "digest": self._digest()})
        self._note_disk()
        for request, pending in list(self._asked.items()):
            self._ask(request, pending)

    def leave(self) -> None:
        """Handle the end of the link to the first home."""
        self._port = None

    def stall(self, reply: str = STALLED) -> None:
        """Refuse proposals from now on, as the first worker has been away for too long; :meth:`join` ends this."""
        if self._port is None:
            super().stall(reply)

    def _undecided(self) -> Iterable[Pending]:
        return self._asked.values()

    def receive(self, message: LogMessage) -> None:
        """Process a message from the first home."""
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

    def _apply(self, message: LogMessage) -> None:
        number = message["number"]
        if number <= max(self._queued, self._topology.applied):  # received again over a new link
            return
        self._queued = number
        change, principal = Change.from_json(message["change"]), ChangePrincipal(**message["asker"])
        entry = Ordered(change, principal, message["home"], message["request"])
        entry.number = number
        self._topology.decide(entry)
        entry.then(lambda: self._on_applied(entry))

    def listen(self, on_applied: Callable[[], None]) -> None:
        """Set the function called after each applied entry."""
        self._listener = on_applied

    def _on_applied(self, entry: Ordered) -> None:
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
        self._listener()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Receive several entries, and report the applied position once, at the end."""
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
        """Report the position on disk to the first home, once for all entries applied by then."""
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
