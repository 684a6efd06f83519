"""A returned message rests before its next delivery, with all messages of its key; other keys go on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queues.consumers import Taker

from jumpmq.amqp.frames import with_entries
from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, clock
from jumpmq.queues.arguments import Limits
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.resting import HEADER, carrying

MINUTE: dict[str, Any] = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000}
ORDERED = {**MINUTE, "x-ordered-retries": True}
SLOTS = {**MINUTE, "x-slots": 2, "x-in-flight-per-slot": 1}


def queue_of(kind: type[ClassicQueue] = ClassicQueue, /, **arguments: Any) -> ClassicQueue:
    return kind("/", "q", id=1, durable=True, arguments=arguments)


def push(queue: ClassicQueue, *bodies: bytes) -> None:
    """Publish messages; the first letter is the key."""
    queue.push([Message("", body[:1], b"\0\0", body, True, 1_700_000_000.0) for body in bodies])


def settle(taker: Taker, body: bytes, outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
    (message,) = [one for one in taker.held if one.body == body]
    taker.held.remove(message)
    taker.queue.settle([message], outcome)
    taker.resume()


def later(queue: ClassicQueue, seconds: float) -> None:
    """Trim the queue as if so many seconds had passed, until nothing is due."""
    for _ in range(100):
        queue.trim(clock.now() + seconds)


@pytest.mark.parametrize("kind", [ClassicQueue, QuorumQueue])
@pytest.mark.parametrize("arguments", [ORDERED, SLOTS], ids=["ordered", "slots"])
def test_a_key_rests_with_its_message_and_the_others_go_on(kind: type[ClassicQueue], arguments: dict[str, Any]) -> None:
    queue = queue_of(kind, **arguments)
    push(queue, b"a1", b"a2", b"b1", b"a3", b"b2")
    taker = Taker(queue, 1).start()
    settle(taker, b"a1", Outcome.REQUEUED)
    for body in (b"b1", b"b2"):
        assert taker.bodies == [body]
        settle(taker, body)
    assert not taker.held and queue.ready_count == 0 and queue.message_count == 3
    push(queue, b"a4", b"c1")
    assert taker.bodies == [b"c1"]
    settle(taker, b"c1")
    later(queue, 59.0)
    assert not taker.held
    assert queue.status()["messages_resting"] == 4 and queue.status()["keys_resting"] == 1
    later(queue, 61.0)
    for body in (b"a1", b"a2", b"a3", b"a4"):
        assert taker.bodies == [body]
        assert taker.held[0].redelivered == (body == b"a1")
        settle(taker, body)
    assert queue.message_count == 0 and queue.memory == 0
    assert queue.status()["next_retry_at"] is None


def test_without_keys_a_message_rests_alone() -> None:
    queue = queue_of(**MINUTE)
    push(queue, b"a1", b"a2")
    taker = Taker(queue, 1).start()
    settle(taker, b"a1", Outcome.REQUEUED)
    assert taker.bodies == [b"a2"]
    settle(taker, b"a2")
    later(queue, 61.0)
    assert taker.bodies == [b"a1"]


@pytest.mark.parametrize(
    "kind, resting",
    [
        ("all", {Outcome.REQUEUED, Outcome.FAILED, Outcome.CONSUMER_GONE}),
        ("failed", {Outcome.FAILED, Outcome.CONSUMER_GONE}),
        ("returned", {Outcome.REQUEUED}),
        ("disabled", set()),
    ],
)
def test_which_messages_rest(kind: str, resting: set[Outcome]) -> None:
    for outcome in (Outcome.REQUEUED, Outcome.FAILED, Outcome.CONSUMER_GONE):
        queue = queue_of(**{**MINUTE, "x-delayed-retry-type": kind})
        push(queue, b"a1")
        queue.settle(queue.take(1), outcome)
        assert (queue.ready_count, queue.unacknowledged_count) == ((0, 1) if outcome in resting else (1, 0)), outcome


def test_how_long_a_message_rests() -> None:
    def delays(**more: Any) -> list[float]:
        limits = Limits(delayed_retry_type="all", delayed_retry_min=100, **more)
        return [limits.retry_delay(count) for count in (1, 2, 3, 1000)]

    assert delays() == [0.1, 0.2, 0.3, 100.0]
    assert delays(delayed_retry_max=250) == [0.1, 0.2, 0.25, 0.25]
    assert delays(delayed_retry_multiplier=1) == [0.1] * 4
    assert delays(delayed_retry_multiplier=3, delayed_retry_max=800) == [0.1, 0.3, 0.8, 0.8]
    assert delays(delayed_retry_multiplier=9)[-1] == 10 * 365 * 86400


def test_each_time_it_rests_longer() -> None:
    queue = queue_of(**{**MINUTE, "x-delayed-retry-max": 150_000})
    push(queue, b"a1")
    for seconds in (60.0, 120.0, 150.0, 150.0):
        queue.settle(queue.take(1), Outcome.REQUEUED)
        later(queue, seconds - 1)
        assert queue.take(1) == []
        later(queue, seconds + 1)


def test_a_message_that_is_beyond_its_delivery_limit_makes_way_for_its_key() -> None:
    queue = queue_of(QuorumQueue, **ORDERED, **{"x-delivery-limit": 1})
    push(queue, b"a1", b"a2")
    taker = Taker(queue, 1).start()
    settle(taker, b"a1", Outcome.FAILED)
    later(queue, 61.0)
    settle(taker, b"a1", Outcome.FAILED)
    assert taker.bodies == [b"a2"]
    settle(taker, b"a2")
    assert queue.message_count == 0


def test_many_behind_one_return_in_steps_and_in_order() -> None:
    queue = queue_of(**ORDERED)
    push(queue, *(b"a%d" % number for number in range(3500)))
    (first,) = queue.take(1)
    queue.settle([first], Outcome.REQUEUED)
    push(queue, b"b1")
    assert [one.body for one in queue.take(1)] == [b"b1"], "what is behind all of the key is found"
    queue.trim(clock.now() + 61.0)
    some = queue.take(5000)
    assert 0 < len(some) < 3500
    push(queue, b"a3500")
    later(queue, 61.0)
    found = some + queue.take(5000)
    assert [one.body for one in found] == [b"a%d" % number for number in range(3501)]


def test_a_key_rests_on_when_its_consumer_group_is_gone() -> None:
    class Group:
        name = "g"

    queue = queue_of(**MINUTE)
    queue.consumer_group = Group()
    push(queue, b"a1", b"a2", b"b1")
    queue.settle(queue.take(1), Outcome.CONSUMER_GONE)
    queue.consumer_group = None
    assert [one.body for one in queue.take(5)] == [b"b1"]


def test_by_hand_all_go_on_at_once() -> None:
    queue = queue_of(**ORDERED)
    push(queue, b"a1", b"b1")
    queue.settle(queue.take(2), Outcome.REQUEUED)
    assert queue.take(2) == []
    assert queue.retries is not None and queue.retries.hasten() == 2
    later(queue, 0.0)
    assert [one.body for one in queue.take(2)] == [b"a1", b"b1"]


def test_without_the_setting_all_go_on() -> None:
    queue = queue_of(**{"x-ordered-retries": True})
    queue.set_limits(queue.limits_under({"delayed-retry-type": "all", "delayed-retry-min": 60_000}))
    push(queue, b"a1")
    queue.settle(queue.take(1), Outcome.REQUEUED)
    assert queue.take(1) == []
    queue.set_limits(queue.limits_under({}))
    later(queue, 0.0)
    assert [one.body for one in queue.take(1)] == [b"a1"]


def test_a_queue_that_is_deleted_charges_nothing() -> None:
    queue = queue_of(**ORDERED)
    push(queue, b"a1", b"a2")
    queue.settle(queue.take(1), Outcome.REQUEUED)
    assert queue.take(1) == []
    queue.delete()
    assert queue.memory == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "ack", "nack", "fail", "gone", "time", "now", "purge"]), st.integers(0, 3)
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([ORDERED, SLOTS, {**ORDERED, "x-message-ttl": 100_000_000}]))
def test_a_key_is_in_order_whatever_comes_back(steps: list[tuple[str, int]], arguments: dict[str, Any]) -> None:
    queue, now, sent, delivered = queue_of(**arguments), 0.0, [0] * 4, [0] * 4
    purged: set[bytes] = set()
    taker = Taker(queue, 1).start()

    def look() -> None:
        for message in taker.held:
            key, number = b"abcd".index(message.body[:1]), int(message.body[1:])
            missed = [b"abcd"[key : key + 1] + b"%d" % one for one in range(delivered[key] + 1, number)]
            assert number >= delivered[key] and set(missed) <= purged, (message.body, delivered)

    for step, key in steps:
        name = b"abcd"[key : key + 1]
        if step == "push":
            sent[key] += 1
            push(queue, name + b"%d" % sent[key])
        elif step == "time":
            now += 70.0
            later(queue, now)
        elif step == "now":
            if queue.retries is not None:
                queue.retries.hasten()
            queue.trim(now)
        elif step == "purge":
            held = set(taker.bodies)
            if (retries := queue.retries) is not None:
                resting = retries.resting.held
                held |= {resting[seq].body for seqs in resting.tables() for seq in seqs}
            ready = {one.body for one in queue.peek(0, queue.next_seq)}
            purged |= ready - held
            queue.purge()
        elif step == "gone":
            taker.give_back()
            taker = Taker(queue, 1).start()
        elif taker.held:
            body = taker.held[0].body
            outcome = {"ack": Outcome.ACKNOWLEDGED, "nack": Outcome.REQUEUED, "fail": Outcome.FAILED}[step]
            if step == "ack":
                delivered[b"abcd".index(body[:1])] = int(body[1:])
            settle(taker, body, outcome)
        look()
    for _ in range(400):
        now += 10_000.0
        later(queue, now)
        if not taker.held:
            break
        look()
        body = taker.held[0].body
        delivered[b"abcd".index(body[:1])] = int(body[1:])
        settle(taker, body)
    assert queue.message_count == 0 and queue.memory == 0


def moved(queue: ClassicQueue, kind: type[ClassicQueue], **arguments: Any) -> ClassicQueue:
    """Return the queue after its move to another home, with all messages."""
    queue.moved = True
    queue.leave_consumers()
    later(queue, 0.0)
    new = queue_of(kind, **arguments)
    while messages := queue.take_for_delivery(1):
        new.push_ahead(queue.departing(messages))
        queue.settle(messages, Outcome.ACKNOWLEDGED)
    return new


@pytest.mark.parametrize("kind", [ClassicQueue, QuorumQueue])
def test_the_rest_and_the_count_go_along_to_another_home(
    kind: type[ClassicQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {**ORDERED, "x-delayed-retry-multiplier": 2, "x-delayed-retry-max": 3_600_000}
    queue = queue_of(kind, **arguments)
    push(queue, b"a1", b"a2", b"b1")
    taker = Taker(queue, 1).start()
    settle(taker, b"a1", Outcome.REQUEUED)
    settle(taker, b"b1")
    due = queue.status()["next_retry_at"]
    for _ in range(2):
        queue = moved(queue, kind, **arguments)
        taker = Taker(queue, 1).start()
        assert not taker.held and queue.status()["messages_resting"] == 2
        assert queue.status()["next_retry_at"] == due
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 61.0)
    later(queue, 0.0)
    assert taker.bodies == [b"a1"] and taker.held[0].properties == b"\0\0"
    settle(taker, b"a1", Outcome.REQUEUED)
    assert queue.status()["next_retry_at"] == pytest.approx(clock.now() + 120)


def test_a_home_whose_clock_is_ahead_lets_nothing_rest_longer_than_a_whole_delay() -> None:
    queue = queue_of(**MINUTE)
    message = Message("", b"k", carrying(b"\0\0", (clock.now() + 1e6, 1)), b"a1", True)
    queue.push_ahead([message])
    Taker(queue, 1).start()
    assert queue.status()["next_retry_at"] < clock.now() + 61


@pytest.mark.parametrize("value", [b"", b"1e99 1", b"nan 1", b"soon"])
def test_a_header_of_a_publisher_comes_along_as_it_is(value: bytes) -> None:
    sent = with_entries(b"\0\0", bytes((len(HEADER),)) + HEADER.encode() + b"S" + len(value).to_bytes(4) + value)
    queue = queue_of(**MINUTE)
    queue.push([Message("", b"k", sent, b"a1", True)])
    taker = Taker(moved(queue, ClassicQueue, **MINUTE), 1).start()
    assert taker.bodies == [b"a1"] and taker.held[0].properties == sent


@pytest.mark.parametrize("value", [b"1e99 1", b"nan 1", b"soon", b"1 " + b"9" * 5000])
def test_a_header_of_a_publisher_by_an_earlier_version_holds_up_nothing_for_long(
    value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = with_entries(b"\0\0", bytes((len(HEADER),)) + HEADER.encode() + b"S" + len(value).to_bytes(4) + value)
    queue = queue_of(**MINUTE)
    queue.push_ahead([Message("", b"k", sent, b"a1", True)])
    taker = Taker(queue, 1).start()
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 61.0)
    later(queue, 0.0)
    assert taker.bodies == [b"a1"]
