"""Reserved messages whose blocks cannot be read for a while."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.store.opened import Opened
from tests.store.test_damage import flip

from jumpmq.amqp.messages import Message
from jumpmq.broker.bulk.with_bodies import HeldPiece, with_bodies
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import UNLIMITED, MemoryAccount
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.records import QueueRecords, records_of_queues
from jumpmq.queues.reservations import ReservationGone, Reservations, exhaust


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path / "store")
    yield opened
    opened.close()


def make_queue(opened: Opened, make: type[ClassicQueue]) -> tuple[ClassicQueue, MemoryAccount]:
    account = MemoryAccount()
    queue = make("/", "q", id=7, durable=True, context=QueueContext(journal=opened.store, memory=account))
    records = records_of_queues(opened.store.definitions(), clean=True).get(7, QueueRecords())
    queue.restore(opened.store.batches().get(7, []), records)
    return queue, account


def page_out(opened: Opened, queue: ClassicQueue, account: MemoryAccount, place: Reservations) -> None:
    """Leave the messages of a queue on disk only."""
    account.limit = 1
    for _ in range(3):
        exhaust(place.page())
        while queue.page_out(0):
            pass
        opened.commit()
    account.limit = UNLIMITED


def read(place: Reservations) -> tuple[int, list[bytes]]:
    """Return the announced number of messages, and the bodies read."""
    pieces = [HeldPiece(place, piece) for piece in place.held(None, place.latest)]
    announced, bodies = sum(piece.readable for piece in pieces), list[bytes]()
    for _, part in with_bodies(pieces, ("body",)):
        bodies += [one.body for one in part] if isinstance(part, list) else part["body"].to_pylist()
    return announced, bodies


def flip_body(opened: Opened, body: bytes) -> Callable[[], None]:
    """Change one bit of a body; return a function that changes the bit again."""
    (path,) = [path for path in opened.directory.glob("log/*.log") if body in path.read_bytes()]
    offset = path.read_bytes().index(body)
    flip(path, offset)
    return lambda: flip(path, offset)


BODIES = [b"<body %d>" % number for number in range(200)]


def reserved(
    opened: Opened, queue: ClassicQueue, account: MemoryAccount, *, reserved_first: bool = False
) -> Reservations:
    """Return a reservation of messages on disk only, in two blocks."""
    place = Reservations(queue, "group")
    for first in (0, 100):
        queue.push([Message("", b"q", b"\x10\0\2", body, True) for body in BODIES[first : first + 100]])
        opened.commit()
    for step in ("reserve", "page")[:: 1 if reserved_first else -1]:
        if step == "page":
            page_out(opened, queue, account, place)
        else:
            exhaust(place.reserve(200))
    return place


@pytest.mark.parametrize("lapses", [False, True])
def test_readable_messages_are_announced_after_a_failed_read(opened: Opened, lapses: bool) -> None:
    """A reader repeats a read until as many rows come as were announced."""
    queue, account = make_queue(opened, ClassicQueue)
    place = reserved(opened, queue, account)
    repair = flip_body(opened, BODIES[150])
    assert read(place) == (200, BODIES[:100])
    assert read(place) == (100, BODIES[:100])
    repair()
    if lapses:
        exhaust(place.lapse())
        exhaust(place.reinstate())
        assert read(place) == (200, BODIES)
    else:
        assert read(place)[1] == BODIES
        assert read(place) == (200, BODIES)


@pytest.mark.parametrize("make", [ClassicQueue, QuorumQueue])
@pytest.mark.parametrize("reserved_first", [False, True])
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_an_acknowledgement_leaves_unread_messages_in_the_store(
    opened: Opened, make: type[ClassicQueue], reserved_first: bool, marked: bool, crash: bool
) -> None:
    """A later start, or another copy of the log, has them."""
    queue, account = make_queue(opened, make)
    place = reserved(opened, queue, account, reserved_first=reserved_first)
    ended = list[bool]()
    if marked:
        queue.barriers().markers.place(lambda: ended.append(True))
    repair = flip_body(opened, BODIES[150])
    assert read(place)[1] == BODIES[:100]
    steps = place.acknowledge(1)
    next(steps)
    record = place.record()
    if not crash:
        exhaust(steps)
        exhaust(place.free())
        assert (queue.message_count, queue.acknowledged, account.total, queue.memory) == (0, 100, 0, 0)
        assert (queue.figures().unacknowledged_octets, place.unreadable) == (0, set())
        assert ended == [True] * marked
    opened.commit()
    repair()
    opened.restart()
    queue, _ = make_queue(opened, make)
    Reservations.restore(queue, record)
    assert [message.body for message in queue.take(1000)] == BODIES[100:]


def test_a_read_that_ends_after_the_acknowledgement_leaves_no_note(opened: Opened) -> None:
    queue, account = make_queue(opened, ClassicQueue)
    place = reserved(opened, queue, account)
    parts = with_bodies([HeldPiece(place, piece) for piece in place.held(None, 1)], ("body",))
    exhaust(place.acknowledge(1))
    for _ in parts:
        pass
    exhaust(place.reserve(1))
    exhaust(place.acknowledge(2))
    assert place.unreadable == set()


def test_a_reservation_deleted_during_an_answer_is_gone(opened: Opened) -> None:
    """The messages are on disk only, and leave the store with their queue."""
    queue, account = make_queue(opened, ClassicQueue)
    queue.push([Message("", b"q", b"\x10\0\2", b"%d" % number, True) for number in range(100)])
    opened.commit()
    place = Reservations(queue, "group")
    page_out(opened, queue, account, place)
    exhaust(place.reserve(100))
    pieces = [HeldPiece(place, piece) for piece in place.held(None, 1)]
    queue.delete()
    opened.commit()
    with pytest.raises(
        ReservationGone, match="of queue 'q' are gone: acknowledged meanwhile, or the queue was deleted"
    ):
        list(with_bodies(pieces, ("body",)))
