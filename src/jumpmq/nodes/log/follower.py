"""Log at the workers behind the first: every worker sends changes to the first worker and replays its entries."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from jumpmq.nodes.log.messages import Message, OnDisk, Ordered, Port, error_from_json
from jumpmq.nodes.log.shared_log import Deciding, SharedLog
from jumpmq.topology import Change
from jumpmq.topology.json_form import to_json
from jumpmq.topology.proposals import Asker, Pending

log = logging.getLogger(__name__)

STANDS_STILL = (
    "the metadata store operation timed out: the home that orders changes of definitions is down or inaccessible"
)
"""Reason of a refusal while the first worker is away, in the words of RabbitMQ 4."""


class LogFollower(SharedLog):
    """The sequencer at the other workers: the first one's, over a link.

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

    def __init__(
        self,
        topology: Deciding,
        boot: str,
        on_disk: OnDisk,
        on_divergence: Callable[[str], None] = log.critical,
        digest: Callable[[], int] = lambda: 0,
        on_difference: Callable[[str], None] = log.critical,
    ) -> None:
        super().__init__(topology, digest)
        self.on_applied: Callable[[], None] = lambda: None
        self._boot = boot  # makes the numbers of requests different in each run
        self._on_disk = on_disk  # calls back when what was changed is on disk
        self._on_divergence = on_divergence  # ends the process
        self._on_difference = on_difference  # is told once
        self._differs = False  # whether it was
        self._count = 0  # of requests
        self._asked: dict[str, Pending] = {}  # what was asked for and is not answered, by request
        self._applied_here: dict[str, Ordered] = {}  # of these, the applied ones
        self._port: Port | None = None  # the way to the first home; None while the link is down
        self._queued = 0  # the last entry that came
        self._noting = False  # whether it is known what is on disk before long
        self._together = False  # whether more entries are about to be applied
        self._untold = 0  # the last entry that was applied meanwhile; 0 where there is none

    def _order(self, pending: Pending) -> None:
        self._count += 1
        request = f"{self._boot}.{self._count}"
        self._asked[request] = pending
        if self._port is not None:
            self._ask(request, pending)

    def _ask(self, request: str, pending: Pending) -> None:
        assert self._port is not None
        applied = self._applied_here.get(request)
        message: Message = {"do": "propose", "request": request}
        if applied is not None:
            message["number"] = applied.number
        else:
            message |= {"change": pending.change.to_json(), "asker": to_json(pending.asker)}
        self._port.send_log(message)

    def join(self, port: Port) -> None:
        """Repeat unanswered requests, as this home has applied all entries known to the first home when the link came
        up.
        """
        self._port = port
        self.go_on()
        port.send_log({"do": "applied", "number": self._topology.applied, "digest": self._digest()})
        self._note_disk()
        for request, pending in list(self._asked.items()):
            self._ask(request, pending)

    def leave(self) -> None:
        """The link to the first home is down."""
        self._port = None

    def stand_still(self, told: str = STANDS_STILL) -> None:
        """The first worker is away for too long; :meth:`join` ends the standstill."""
        if self._port is None:
            super().stand_still(told)

    def _undecided(self) -> Iterable[Pending]:
        return self._asked.values()

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
        if number <= max(self._queued, self._topology.applied):  # sent again over a new link
            return
        self._queued = number
        entry = Ordered(
            Change.from_json(message["change"]), Asker(**message["asker"]), message["home"], message["request"]
        )
        entry.number = number
        self._topology.decide(entry)
        entry.then(lambda: self._on_applied(entry))

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
        self.on_applied()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Receive several entries; the applied position is reported once at the end."""
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
        """Report the position on disk to the first home, once for all entries applied meanwhile."""
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
