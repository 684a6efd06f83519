"""Reservations of a reader group: taken, settled, returned, and restored."""

import json
from itertools import pairwise

import pytest

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, columns
from jumpmq.queues import reservations as module
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.reservations import ReservationGone, Reservations, exhaust


@pytest.fixture(autouse=True, params=["columns", "messages"])
def small_steps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Operations take several steps also with few messages, laid out as columns or not."""
    monkeypatch.setattr(module, "STEP", 3)
    monkeypatch.setattr(columns, "AT_LEAST", 1 if request.param == "columns" else 64)


def queue_of(count: int, *, id: int = 7) -> ClassicQueue:
    queue = ClassicQueue("/", "q", id=id, durable=True)
    queue.push([Message("", b"q", b"\0\0", b"%d" % number) for number in range(1, count + 1)])
    return queue


def reservations_of(queue: ClassicQueue, group: str = "g") -> Reservations:
    return Reservations(queue, group)


def reserve(place: Reservations, count: int, last_seq: int | None = None) -> int:
    exhaust(place.reserve(count, last_seq))
    return place.latest


def fitting(place: Reservations, count: int, octets: int, last_seq: int | None = None) -> tuple[int, int]:
    steps = place.fitting(count, octets, last_seq)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[int, int] = end.value
            return found


def rows(place: Reservations, after: int | None, upto: int) -> list[tuple[int, bool]]:
    pieces = place.held(after, upto)
    parts = [piece if isinstance(piece, list) else piece.messages() for piece in pieces]
    return [(message.seq, message.redelivered) for part in parts for message in part]


def fresh(first: int, last: int) -> list[tuple[int, bool]]:
    return [(seq, False) for seq in range(first, last + 1)]


def test_reserved_messages_are_unacknowledged_and_read_the_same_every_time() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    assert reserve(place, 7) == 1
    assert (queue.ready_count, queue.unacknowledged_count) == (3, 7)
    assert rows(place, 0, 1) == rows(place, None, 1) == fresh(1, 7)


def test_reservations_are_numbered_and_none_is_made_of_an_empty_queue() -> None:
    queue = queue_of(5)
    place = reservations_of(queue)
    assert [reserve(place, 2), reserve(place, 2), reserve(place, 2), reserve(place, 2)] == [1, 2, 3, 3]
    assert rows(place, 0, 3) == fresh(1, 5)
    assert rows(place, 1, 2) == fresh(3, 4)


def test_a_reservation_may_be_bounded_by_a_last_message() -> None:
    place = reservations_of(queue_of(10))
    assert place.available(4) == 4
    assert reserve(place, 100, last_seq=4) == 1
    assert rows(place, 0, 1) == fresh(1, 4)
    assert place.available(4) == 0
    assert reserve(place, 100, last_seq=4) == 1


def test_acknowledging_settles_and_frees() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    reserve(place, 4)
    reserve(place, 4)
    exhaust(place.acknowledge(1))
    assert (queue.ready_count, queue.unacknowledged_count, place.outstanding) == (2, 4, 4)
    assert rows(place, 1, 2) == fresh(5, 8)
    exhaust(place.acknowledge(2))
    assert (queue.message_count, place.outstanding) == (2, 0)


@pytest.mark.parametrize(
    ("after", "upto", "reason"),
    [
        (0, 1, "reservation 1 of group 'g' in queue 'q' is acknowledged already"),
        (0, 2, "reservation 1 of group 'g' in queue 'q' is acknowledged already"),
        (None, 1, "reservation 1 of group 'g' in queue 'q' is acknowledged already"),
        (1, 3, "reservation 3 of group 'g' in queue 'q' is not known"),
    ],
)
def test_what_cannot_be_read_is_said(after: int | None, upto: int, reason: str) -> None:
    place = reservations_of(queue_of(10))
    reserve(place, 4)
    reserve(place, 4)
    exhaust(place.acknowledge(1))
    with pytest.raises(ReservationGone) as error:
        place.held(after, upto)
    assert str(error.value) == reason


def test_lapsed_messages_are_back_in_their_places() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    reserve(place, 4)
    exhaust(place.lapse())
    assert place.lapsed
    assert queue.unacknowledged_count == 0
    assert [(message.seq, message.redelivered) for message in queue.peek(1, 6)] == [
        *((seq, True) for seq in range(1, 5)),
        (5, False),
        (6, False),
    ]


def test_a_lapsed_reservation_is_reinstated_with_the_same_rows() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    reserve(place, 4)
    reserve(place, 4)
    exhaust(place.lapse())
    exhaust(place.reinstate())
    assert rows(place, 0, 2) == fresh(1, 8)
    assert (queue.ready_count, queue.unacknowledged_count) == (2, 8)


def test_a_lapsed_reservation_that_others_consumed_of_is_gone_with_all_later_ones() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    for _ in range(3):
        reserve(place, 3)
    exhaust(place.lapse())
    queue.settle(queue.take_range(5, 5, 1), Outcome.ACKNOWLEDGED)
    exhaust(place.reinstate())
    assert rows(place, 0, 1) == fresh(1, 3)
    for upto in (2, 3):
        with pytest.raises(
            ReservationGone, match=r"reservation 2 of .* has lapsed, and messages of it have left the queue"
        ):
            place.held(0, upto)
    assert [message.seq for message in queue.peek(1, 99)] == [4, 6, 7, 8, 9, 10]


def test_a_lapsed_reservation_of_which_nothing_is_left_is_gone() -> None:
    queue = queue_of(6)
    place = reservations_of(queue)
    reserve(place, 4)
    exhaust(place.lapse())
    queue.settle(queue.take(4), Outcome.ACKNOWLEDGED)
    exhaust(place.reinstate())
    with pytest.raises(
        ReservationGone, match="messages of it have left the queue: consumed by others, expired or dead-lettered"
    ):
        place.held(0, 1)
    assert queue.unacknowledged_count == 0


def test_after_giving_up_the_next_reservation_has_the_rest_under_a_new_number() -> None:
    queue = queue_of(9)
    place = reservations_of(queue)
    for _ in range(3):
        reserve(place, 3)
    exhaust(place.lapse())
    queue.settle(queue.take_range(5, 5, 1), Outcome.ACKNOWLEDGED)
    exhaust(place.reinstate())
    place.give_up_lapsed()
    assert reserve(place, 100) == 4
    assert [seq for seq, _ in rows(place, 0, 4)] == [1, 2, 3, 4, 6, 7, 8, 9]
    with pytest.raises(ReservationGone, match=r"reservation 3 of .* was given up"):
        place.held(0, 3)


def test_a_lapsed_reservation_can_be_acknowledged_as_far_as_it_is_there() -> None:
    queue = queue_of(6)
    place = reservations_of(queue)
    reserve(place, 6)
    exhaust(place.lapse())
    queue.settle(queue.take(2), Outcome.ACKNOWLEDGED)
    exhaust(place.acknowledge(1))
    assert queue.message_count == 0
    assert not place.lapsed


def test_a_reader_that_remembers_more_goes_on_from_there() -> None:
    place = reservations_of(queue_of(3))
    exhaust(place.acknowledge(41))
    assert reserve(place, 2) == 42
    assert rows(place, 41, 42) == fresh(1, 2)


def test_groups_do_not_share_messages() -> None:
    queue = queue_of(10)
    one, other = reservations_of(queue, "one"), reservations_of(queue, "other")
    reserve(one, 6)
    reserve(other, 6)
    assert rows(one, 0, 1) == fresh(1, 6)
    assert rows(other, 0, 1) == fresh(7, 10)


def test_gaps_and_redeliveries_within_a_reservation_survive_a_restart() -> None:
    queue = queue_of(12)
    taken = queue.take(8)
    queue.settle([taken[1], taken[6]], Outcome.ACKNOWLEDGED)
    queue.settle([taken[3], taken[4]], Outcome.REQUEUED)
    queue.settle([taken[7]], Outcome.REQUEUED)
    place = reservations_of(queue)
    reserve(place, 5)
    expected = [(4, True), (5, True), (8, True), (9, False), (10, False)]
    assert rows(place, 0, 1) == expected

    again = queue_of(12)
    for message in again.peek(1, 99):
        message.redelivered = True
    restored = Reservations.restore(again, json.loads(json.dumps(place.record())))
    assert rows(restored, 0, 1) == expected
    assert again.unacknowledged_count == 5


def test_a_restart_in_the_middle_of_an_acknowledgement_ends_it() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    reserve(place, 6)
    reserve(place, 2)
    next(place.acknowledge(1))
    record = json.loads(json.dumps(place.record()))

    again = queue_of(10)
    again.settle(again.take_range(2, 3, 2), Outcome.ACKNOWLEDGED)
    restored = Reservations.restore(again, record)
    assert rows(restored, 1, 2) == fresh(7, 8)
    assert [message.seq for message in again.peek(1, 99)] == [9, 10]
    assert again.unacknowledged_count == 2


def test_what_is_left_of_a_lapsed_reservation_can_be_held() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    reserve(place, 6)
    exhaust(place.lapse())
    queue.settle(queue.take_range(2, 3, 2), Outcome.ACKNOWLEDGED)
    exhaust(place.reinstate(partly=True))
    assert [seq for seq, _ in rows(place, 0, 1)] == [1, 4, 5, 6]
    assert (queue.ready_count, queue.unacknowledged_count) == (4, 4)


def test_how_many_messages_fit_into_so_many_octets() -> None:
    place = reservations_of(queue_of(12))
    assert fitting(place, 12, 5) == (5, 5)
    assert fitting(place, 3, 5) == (3, 3)
    assert fitting(place, 12, 100) == (12, 15)
    assert fitting(place, 12, 100, last_seq=4) == (4, 4)


def test_no_step_handles_more_than_its_share() -> None:
    queue = queue_of(10)
    place = reservations_of(queue)
    unacknowledged = [0, *(queue.unacknowledged_count for _ in place.reserve(10))]
    assert all(later - earlier <= 3 for earlier, later in pairwise(unacknowledged))
    assert unacknowledged[-1] == 10


def gapped(count: int) -> ClassicQueue:
    """A queue without every second message, taken by consumers."""
    queue = queue_of(2 * count)
    for seq in range(2, 2 * count + 1, 2):
        queue.settle(queue.take_range(seq, seq, 1), Outcome.ACKNOWLEDGED)
    return queue


def test_a_reservation_of_a_queue_with_many_gaps_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 5)
    place = reservations_of(gapped(20))
    assert [reserve(place, 20), reserve(place, 20)] == [1, 2]
    assert [seq for seq, _ in rows(place, 0, 1)] == [1, 3, 5, 7, 9, 11]
    assert [seq for seq, _ in rows(place, 1, 2)] == [13, 15, 17, 19, 21, 23]


def test_a_gap_takes_few_octets_of_a_record() -> None:
    place = reservations_of(gapped(1000))
    reserve(place, 1000)
    assert len(json.dumps(place.record(), separators=(",", ":"))) < 5 * 1000
    restored = Reservations.restore(gapped(1000), json.loads(json.dumps(place.record())))
    assert rows(restored, 0, 1) == rows(place, 0, 1)


def test_a_record_of_an_earlier_version_is_read() -> None:
    queue = queue_of(12)
    runs = {"1": [[2, 4, False], [7, 7, True]]}
    record = {"queue": queue.id, "group": "g", "acknowledged": 0, "latest": 1, "reservations": runs}
    assert rows(Reservations.restore(queue, record), 0, 1) == [(2, False), (3, False), (4, False), (7, True)]


def prioritized() -> ClassicQueue:
    """A queue of the messages 1 to 5; 1 and 5 have the higher priority, and 2 is gone."""
    queue = ClassicQueue("/", "q", id=7, durable=True, arguments={"x-max-priority": 9})
    queue.push([Message("", b"q", b"\x08\x00" + bytes([priority]), b"x") for priority in (9, 0, 0, 0, 9)])
    queue.settle(queue.take_range(2, 2, 1), Outcome.ACKNOWLEDGED)
    return queue


def test_what_is_reserved_of_several_priorities_survives_a_restart() -> None:
    """Reservations of several priorities survive a restart, also if their numbers look like a range without gap."""
    place = reservations_of(prioritized())
    reserve(place, 3)
    expected = [(1, False), (5, False), (3, False)]
    assert rows(place, 0, 1) == expected
    restored = Reservations.restore(prioritized(), json.loads(json.dumps(place.record())))
    assert rows(restored, 0, 1) == expected
