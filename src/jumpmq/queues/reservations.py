"""Reservations: the part of a queue that a group of readers holds, so that it can read the same rows again.

How it works. A *group* (a Spark query, say) reads a queue in *reservations*, numbered 1, 2, 3 ... per queue and group.
Making a reservation takes messages from the queue, as a delivery to a consumer does. The reservation then consists of
exactly these messages, and may be read any number of times. Acknowledging number n settles all reservations up to n.

A reservation is in one of three states::

    held   ---- lapse ---->  lapsed  -- acknowledge -->  gone
      ^  \\                      |
      |   `-- acknowledge --> gone
      `------- reinstate -------'   (only if every message of it is still ready in the queue)

The group's record is plain JSON. To be durable, :meth:`Reservations.record` has to be stored *before* a client learns
of the operation; a broker that starts again continues with :meth:`Reservations.restore`. There is no I/O and no clock
here.

Operations on many messages are iterators: each step handles at most :data:`STEP` messages, so that an event loop can
serve others between two steps. Between the steps, no other operation on the same reservations may begin; other
operations on the queue are allowed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from jumpmq.amqp.messages import Message
from jumpmq.queues.base import Outcome, Queue
from jumpmq.queues.bodies import at_once
from jumpmq.queues.columns import Columns
from jumpmq.queues.memory import Held
from jumpmq.queues.parked import Parked
from jumpmq.queues.stored_run import StoredRun
from jumpmq.store import Batch

STEP = 8192
"""Messages handled at once: some milliseconds of work."""

MAX_RUNS = 1 << 16
"""Maximum number of runs of a reservation, which limits its record to some 300 KB. Single messages taken by
consumers increase the number of runs.
"""


Piece: TypeAlias = list[Message] | Columns | StoredRun | Parked
"""Neighbouring messages of a reservation."""


def numbers_of(piece: Piece) -> Sequence[int]:
    """Return the numbers of messages."""
    if isinstance(piece, list):
        return [message.seq for message in piece]
    if isinstance(piece, Parked):
        return piece.seqs
    return range(piece.first_seq, piece.last_seq + 1)


class ReservationGone(Exception):
    """A reservation cannot be read: acknowledged, or lapsed with its messages taken."""


class ReservationRests(Exception):
    """A lapsed reservation cannot be read yet: some of its messages rest until their retry, or wait behind a resting
    message.
    """


class ReservedRun(NamedTuple):
    """Neighbouring messages of a reservation: ``first`` to ``last`` by ``seq``, all redelivered or none of them."""

    first: int
    last: int
    redelivered: bool


class Reservation:
    """Messages of a reservation.

    Attributes:
        runs: ranges of the messages, in queue order.
        count: number of messages.
        pieces: the held messages, in pieces of some thousands; None for a lapsed reservation.
        missing: number of messages missing at the broker's start; None if all were there.
        resting: number of messages that rest, or wait for a resting message, at the last attempt to reinstate the
            reservation.
    """

    __slots__ = ("count", "missing", "pieces", "resting", "runs")

    def __init__(self, runs: list[ReservedRun] | None = None) -> None:
        self.runs = runs or []
        self.count = sum(run.last - run.first + 1 for run in self.runs)
        self.pieces: list[Piece] | None = None if self.runs else []
        self.missing: int | None = None
        self.resting = 0

    def extend(self, messages: list[Message]) -> None:
        """Add messages to a held reservation, in queue order; where memory is tight, their bodies on disk alone."""
        queue: Queue = messages[0].queue
        while messages and queue.taken is not None and (columns := queue.taken.lay_out(messages)) is not None:
            self.add_columns(columns)
        if not messages:
            return
        assert self.pieces is not None
        self._add_runs(len(messages), _runs(messages))
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, list) and len(last) + len(messages) <= STEP:
            last += messages
        else:
            self.pieces.append(messages)
        if queue.memory_is_tight:
            self.page(queue, len(self.pieces) - 1)

    def add_columns(self, columns: Columns | StoredRun) -> None:
        """Add messages as columns, or unread, in queue order."""
        assert self.pieces is not None
        self._add_runs(len(columns), [ReservedRun(columns.first_seq, columns.last_seq, columns.redelivered)])
        self.pieces.append(columns)

    def _add_runs(self, count: int, runs: Iterable[ReservedRun]) -> None:
        self.count += count
        for run in runs:
            before = self.runs[-1] if self.runs else None
            if before and before.last + 1 == run.first and before.redelivered == run.redelivered:
                self.runs[-1] = before._replace(last=run.last)
            else:
                self.runs.append(run)

    def page(self, queue: Queue, place: int) -> None:
        """Drop a piece's messages on disk from memory."""
        if self.pieces is None or place >= len(self.pieces):
            return
        piece = self.pieces[place]
        if isinstance(piece, Parked | StoredRun):
            return
        messages = _loaded(piece)
        if queue.taken is not None:
            queue.taken.page(messages, Held.RESERVED)
        self.pieces[place] = Parked.of(messages, Held.RESERVED) or messages


def _runs(messages: list[Message]) -> Iterator[ReservedRun]:
    seqs, flags = [message.seq for message in messages], [message.redelivered for message in messages]
    alike = len(set(flags)) == 1
    if alike and seqs == list(range(seqs[0], seqs[0] + len(seqs))):  # a queue with priorities has another order
        yield ReservedRun(seqs[0], seqs[-1], flags[0])
        return
    bounds = [place for place, (seq, following) in enumerate(pairwise(seqs), 1) if following != seq + 1]
    if not alike:
        changes = (place for place, (flag, following) in enumerate(pairwise(flags), 1) if flag != following)
        bounds = sorted({*bounds, *changes})
    for first, end in pairwise([0, *bounds, len(seqs)]):
        yield ReservedRun(seqs[first], seqs[end - 1], flags[first])


def _without(runs: list[ReservedRun], numbers: Iterable[int]) -> list[ReservedRun]:
    """Return runs without the messages of some numbers."""
    found, left_out = list[ReservedRun](), sorted(numbers)
    for run in runs:
        first = run.first
        for number in left_out[bisect_left(left_out, run.first) : bisect_right(left_out, run.last)]:
            if first < number:
                found.append(run._replace(first=first, last=number - 1))
            first = number + 1
        if first <= run.last:
            found.append(run._replace(first=first))
    return found


def packed(runs: list[ReservedRun]) -> list[int]:
    """Encode runs for a record as two numbers each: gap to the previous run in messages (from number 0 for the first),
    and length, negative if redelivered.
    """
    found: list[int] = []
    end = 0
    for first, last, redelivered in runs:
        found += (first - end, first - last - 1 if redelivered else last + 1 - first)
        end = last + 1
    return found


def unpacked(record: list[Any]) -> list[ReservedRun]:
    """Decode the runs of a record; earlier versions have ``[first, last, redelivered]`` per run."""
    if record and isinstance(record[0], list):
        return [ReservedRun(*run) for run in record]
    found: list[ReservedRun] = []
    end = 0
    for skipped, count in zip(record[::2], record[1::2], strict=True):
        first = end + skipped
        end = first + abs(count)
        found.append(ReservedRun(first, end - 1, count < 0))
    return found


OWNED = "\x1f"
"""Separator between a group's name and its user. A group of an earlier release has only a name."""


class Reservations:
    """Reservations of a group in a queue.

    Attributes:
        acknowledged: all reservations up to this number are settled for good.
        latest: highest assigned number; equal to ``acknowledged`` without outstanding reservations.
        unreadable: numbers of held messages that the last read left out, because their blocks are damaged or cannot be
            read. An acknowledgement leaves these messages in the store, for the next start.
    """

    def __init__(self, queue: Queue, group: str) -> None:
        self.queue = queue
        self.group = group
        self.acknowledged = 0
        self.latest = 0
        self.unreadable: set[int] = set()
        self._reservations: dict[int, Reservation] = {}
        self._settled: list[list[Message]] = []

    @property
    def key(self) -> str:
        """Key of the record."""
        return f"{self.queue.id} {self.group}"

    # -- what there is

    @property
    def outstanding(self) -> int:
        """Number of reserved, unacknowledged messages, including lapsed reservations."""
        return sum(
            reservation.count for number, reservation in self._reservations.items() if number > self.acknowledged
        )

    @property
    def holds(self) -> bool:
        """True if messages are held."""
        return any(reservation.pieces for reservation in self._reservations.values())

    @property
    def lapsed(self) -> bool:
        """True if a reservation has lapsed."""
        return any(reservation.pieces is None for reservation in self._reservations.values())

    @property
    def oldest(self) -> float | None:
        """Publishing time of the first held message, in seconds since the epoch."""
        piece = next((piece for one in self._reservations.values() for piece in one.pieces or ()), None)
        first = piece[0] if isinstance(piece, list) else piece
        return None if first is None else first.published_at

    def sizes(self) -> dict[int, int]:
        """Return the numbers of messages by unacknowledged reservation."""
        return {number: one.count for number, one in self._reservations.items() if number > self.acknowledged}

    def on_disk(self) -> list[tuple[Batch, int, int]]:
        """Return the messages of the last reservation that are on disk only: batch, first and last number."""
        last = self._reservations.get(self.latest)
        pieces = (last.pieces if last is not None else None) or []
        return [(one.batch, one.first_seq, one.last_seq) for one in pieces if isinstance(one, StoredRun)]

    def page(self) -> Iterator[None]:
        """Drop held messages on disk from memory, piece by piece, yielding in between."""
        for reservation in list(self._reservations.values()):
            for place in range(len(reservation.pieces or ())):
                reservation.page(self.queue, place)
                yield

    def held(self, after: int | None, upto: int, *, accept_loss: bool = False) -> list[Piece]:
        """Return the messages of reservations ``after + 1`` to ``upto``, in order.

        Numbers given up before the reservation of ``upto`` have no messages.

        Args:
            after: None for the last acknowledged number.
            accept_loss: True to leave out missing reservations; False to raise an error for them.

        Raises:
            ReservationGone: a reservation is acknowledged, has lapsed, or never existed.
            ReservationRests: a reservation has lapsed, and will be complete when its resting messages are due.
        """
        first = (self.acknowledged if after is None else after) + 1
        if accept_loss:
            kept = [one.pieces or [] for number, one in self._reservations.items() if first <= number <= upto]
            return list(chain.from_iterable(kept))
        if upto <= self.acknowledged:
            raise ReservationGone(f"{self._name(upto)} is acknowledged already")
        if first <= self.acknowledged:
            raise ReservationGone(f"{self._name(first)} is acknowledged already")
        if upto not in self._reservations:
            raise ReservationGone(f"{self._name(upto)} {'is not known' if upto > self.latest else 'was given up'}")
        found: list[Piece] = []
        for number, reservation in self._reservations.items():
            if first <= number <= upto:
                if reservation.pieces is None and reservation.resting:
                    raise ReservationRests(
                        f"{self._name(number)} has lapsed, and {reservation.resting} of its {reservation.count} "
                        "messages wait for a retry of their keys"
                    )
                if reservation.pieces is None:
                    raise ReservationGone(f"{self._name(number)} {_why_gone(reservation)}")
                found += reservation.pieces
        return found

    def fitting(self, count: int, octets: int, last_seq: int | None = None) -> Generator[None, None, tuple[int, int]]:
        """Count the next messages, up to ``count``, within ``octets`` of bodies; return number and octets."""
        fit = size = 0
        last_seq = self.queue.next_seq - 1 if last_seq is None else last_seq
        for messages in self.queue.view.browse_takeable(1, last_seq):
            for message in messages[: count - fit]:
                if size + len(message.body) > octets:
                    return fit, size
                size += len(message.body)
                fit += 1
            if fit == count:
                break
            yield
        return fit, size

    def available(self, last_seq: int | None = None) -> int:
        """Return an upper bound of the messages that can be reserved; 0 only if there are none."""
        ready = self.queue.ready_count - self.queue.fenced_count
        if last_seq is None:
            return ready
        first = self.queue.view.lowest_takeable(last_seq)
        return min(ready, last_seq - first + 1) if first is not None else 0

    # -- what a group does

    def reserve(self, count: int, last_seq: int | None = None) -> Iterator[None]:
        """Take up to ``count`` ready messages up to ``last_seq`` as the next reservation, if there are any.

        The reservation is smaller if its messages are scattered in the queue: see :data:`MAX_RUNS`.
        """
        reservation = Reservation()
        last_seq = self.queue.next_seq - 1 if last_seq is None else last_seq
        while reservation.count < count and len(reservation.runs) < MAX_RUNS:
            found, messages = self.queue.take_columns(last_seq, min(STEP, count - reservation.count))
            if not found and not messages:
                break
            # A reservation without messages takes no number.
            if not reservation.count:
                self.latest += 1
                self._reservations[self.latest] = reservation
            for columns in found:
                reservation.add_columns(columns)
            if messages:
                reservation.extend(messages)
            yield

    def acknowledge(self, upto: int) -> Iterator[None]:
        """Settle all reservations up to ``upto``; of a lapsed one, the messages still in the queue.

        A number above ``latest`` comes from a group that has outlived the queue's state, for example because the queue
        was deleted and declared again; numbering continues from there.

        The first step only notes the number, so that a record made after it survives a crash during the rest. Held
        messages stay in memory until :meth:`free`.
        """
        self.acknowledged = max(self.acknowledged, upto)
        self.latest = max(self.latest, self.acknowledged)
        if self.unreadable:
            # The reader never got these messages: a start after a crash must not settle them.
            for number, reservation in self._reservations.items():
                if number <= self.acknowledged:
                    reservation.runs = _without(reservation.runs, self.unreadable)
        yield
        for number in [number for number in self._reservations if number <= self.acknowledged]:
            reservation = self._reservations[number]
            if reservation.pieces is None:
                for messages in self._take(reservation.runs):
                    self.queue.settle(messages, Outcome.ACKNOWLEDGED, Held.RESERVED)
                    yield
            else:
                yield from self._settle_pieces(reservation.pieces)
            del self._reservations[number]
        if self.unreadable:
            # A read that ends after the acknowledgement of its messages finds none of them.
            noted = sorted(self.unreadable)
            runs = chain.from_iterable(reservation.runs for reservation in self._reservations.values())
            parts = (noted[bisect_left(noted, run.first) : bisect_right(noted, run.last)] for run in runs)
            self.unreadable = set(chain.from_iterable(parts))

    def free(self) -> Iterator[None]:
        """Free acknowledged messages in the background, as this takes four times as long as settling."""
        while self._settled:
            self._settled.pop()
            yield

    def lapse(self) -> Iterator[None]:
        """Return all messages to the queue, at their positions. Numbers and ranges of the reservations stay known.

        The last messages return first, and nothing is delivered before all have returned. The first step only notes
        the lapse: a record made after it prevents that a start after a crash holds the messages, and counts a second
        lapse.
        """
        held = []
        self.unreadable.clear()  # the messages are read for their return
        for reservation in self._reservations.values():
            if reservation.pieces:
                held.append(reservation.pieces)
                reservation.pieces = None
        self.queue.begin_return()
        try:
            yield
            for pieces in reversed(held):
                for messages in _backwards(pieces):
                    self.queue.settle(messages, Outcome.CONSUMER_GONE, Held.RESERVED)
                    yield
        finally:
            self.queue.end_return()

    def drop(self) -> Iterator[None]:
        """Drop all held messages with their deleted queue."""
        for reservation in self._reservations.values():
            pieces, reservation.pieces = reservation.pieces or [], None
            yield from self._settle_pieces(pieces)
        yield from self.free()

    def reinstate(self, *, partly: bool = False, end: int | None = None) -> Iterator[None]:
        """Hold complete lapsed reservations again; the first incomplete reservation stays lapsed, with all later
        reservations.

        Args:
            partly: True to reinstate incomplete reservations, too, with their remaining messages.
            end: number of the first reservation to leave as it is; None for all reservations.
        """
        for number, reservation in self._reservations.items():
            if number == end:
                return
            if reservation.pieces is None:
                yield from self._reinstate(reservation, partly)
                if reservation.pieces is None:
                    return

    def give_up_lapsed(self) -> None:
        """Delete lapsed reservations: their remaining messages belong to the queue."""
        for number in [number for number, reservation in self._reservations.items() if reservation.pieces is None]:
            del self._reservations[number]

    # -- what survives a restart

    def record(self) -> dict[str, Any]:
        """Return the group's state as JSON: acknowledged and outstanding reservations. All reservations from number
        ``lapsed`` on have lapsed; null if none has.
        """
        return {
            "queue": self.queue.id,
            "group": self.group,
            "acknowledged": self.acknowledged,
            "latest": self.latest,
            "lapsed": next((number for number, one in self._reservations.items() if one.pieces is None), None),
            "reservations": {str(number): packed(one.runs) for number, one in self._reservations.items()},
        }

    @classmethod
    def restore(cls, queue: Queue, record: dict[str, Any]) -> "Reservations":
        """Continue from a record: acknowledged messages are settled again, and held messages are held again. A record
        of an earlier release does not tell which reservations have lapsed.
        """
        place = cls(queue, record["group"])
        place.acknowledged, place.latest = record["acknowledged"], record["latest"]
        for number, runs in record["reservations"].items():
            place._reservations[int(number)] = Reservation(unpacked(runs))
        exhaust(place.acknowledge(place.acknowledged))
        exhaust(place.reinstate(end=record.get("lapsed")))
        for reservation in place._reservations.values():
            if reservation.pieces is None:
                left = chain.from_iterable(queue.view.browse(run.first, run.last) for run in reservation.runs)
                reservation.missing = reservation.count - sum(map(len, left))
        return place

    # -- parts

    def _reinstate(self, reservation: Reservation, partly: bool) -> Iterator[None]:
        yield from self._count_resting(reservation)
        if reservation.resting and not partly:
            return
        left = Reservation()
        for messages in self._take(reservation.runs):
            left.extend(messages)
            yield
        if partly or left.count == reservation.count:
            reservation.runs, reservation.count, reservation.pieces = left.runs, left.count, left.pieces
        else:
            for messages in _backwards(left.pieces or []):
                self.queue.settle(messages, Outcome.UNREAD, Held.RESERVED)
                yield
            yield from self._count_resting(reservation)  # messages that were not taken may wait for their key now

    def _count_resting(self, reservation: Reservation) -> Iterator[None]:
        reservation.resting = 0
        if (retries := self.queue.retries) is None or not retries.resting.held:
            return
        held, resting = retries.resting.held, 0
        for run in reservation.runs:
            for first in range(run.first, run.last + 1, STEP):
                resting += sum([seq in held for seq in range(first, min(run.last + 1, first + STEP))])
                yield
        reservation.resting = resting

    def _take(self, runs: list[ReservedRun]) -> Iterator[list[Message]]:
        """Take the ready messages of runs, with their original redelivered flags: repeated reads must
        see equal rows.
        """
        for run in runs:
            for first in range(run.first, run.last + 1, STEP):
                messages, last = list[Message](), min(run.last, first + STEP - 1)
                while more := self.queue.take_range(first, last, STEP):
                    messages += more
                if self.queue.view.by_priority:
                    messages.sort(key=attrgetter("seq"))  # in the order of a run, whatever the order of delivery
                for message in messages:
                    message.redelivered = run.redelivered
                if messages:
                    yield messages

    def _settle_pieces(self, pieces: list[Piece]) -> Iterator[None]:
        """Settle held pieces in order; pieces in memory are left to :meth:`free`."""
        while pieces:
            piece = pieces.pop(0)
            if self.unreadable and (unread := self.unreadable.intersection(numbers_of(piece))):
                self.unreadable -= unread
                messages = piece.without_bodies() if isinstance(piece, StoredRun) else _loaded(piece)
                piece = [message for message in messages if message.seq not in unread]
                self.queue.leave_unread([one for one in messages if one.seq in unread], Held.RESERVED)
                self.queue.settle(piece, Outcome.ACKNOWLEDGED, Held.RESERVED)
            elif isinstance(piece, Columns | StoredRun):
                self.queue.settle_columns(piece)
            else:
                self.queue.settle(_loaded(piece), Outcome.ACKNOWLEDGED, Held.RESERVED)
            if isinstance(piece, list):
                self._settled.append(piece)
            yield

    def _name(self, number: int) -> str:
        name = self.group.partition(OWNED)[0]
        return f"reservation {number} of group '{name}' in queue '{self.queue.name}'"


def exhaust(steps: Iterator[None]) -> None:
    """Take all steps of an operation at once."""
    for _ in steps:
        pass


def _why_gone(reservation: Reservation) -> str:
    if reservation.missing:
        return (
            f"lacks {reservation.missing} of {reservation.count} messages since the broker was restarted: transient "
            "messages do not outlive it, nor do those that others consumed after the reservation had lapsed"
        )
    return "has lapsed, and messages of it have left the queue: consumed by others, expired or dead-lettered"


def _loaded(piece: Piece) -> list[Message]:
    return piece if isinstance(piece, list) else piece.taken_back()


def _backwards(pieces: list[Piece]) -> Iterator[list[Message]]:
    """Yield messages from last to first, in parts whose bodies may be read back at a time."""
    while pieces:
        messages = _loaded(pieces.pop())
        while messages:
            begin = len(messages) - at_once(messages, last=True)
            yield messages[begin:]
            messages = messages[:begin]
