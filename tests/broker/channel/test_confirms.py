"""Publisher confirms come after the sync of persistent messages, in order unless a slow source delays some."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.store.opened import Opened, killed_now, left
from tests.wire import Basic, Content, Queue, WireChannel, login

from jumpmq import RunningBroker
from jumpmq.amqp import methods as m
from jumpmq.broker.channel.confirms import Confirms
from jumpmq.broker.commit.receipts import NOT_TAKEN, Part, ReceiptState

Name = Callable[[str], str]
PERSISTENT = Basic.Properties(delivery_mode=2)


class Disk:
    """A source of receipts with a settable number of completed receipts."""

    def __init__(self, refused: frozenset[int] = frozenset()) -> None:
        self.completed = 0
        self.refused = set(refused)

    def state(self, number: int) -> ReceiptState:
        if number in self.refused:
            return ReceiptState.REFUSED
        return ReceiptState.DONE if number <= self.completed else ReceiptState.PENDING


def answered(confirms: Confirms) -> list[tuple[str, int, bool]]:
    return [
        ("ack" if isinstance(answer, m.BasicAck) else "nack", answer.delivery_tag, answer.multiple)
        for answer in confirms.answers()
    ]


def test_publishes_are_answered_when_their_receipt_is_done() -> None:
    confirms, disk = Confirms(), Disk()
    confirms.add(3, 1)
    confirms.assign_receipts({1: Part(disk, 1)})
    confirms.add(2, 1)
    confirms.assign_receipts({1: Part(disk, 2)})
    assert answered(confirms) == []
    disk.completed = 1
    assert answered(confirms) == [("ack", 3, True)]
    assert confirms.waiting
    disk.completed = 2
    assert answered(confirms) == [("ack", 5, True)]
    assert not confirms.waiting


def test_one_publish_is_answered_alone_and_many_at_once() -> None:
    confirms, disk = Confirms(), Disk()
    confirms.add(1, 1)
    confirms.assign_receipts({1: Part(disk, 1)})
    disk.completed = 1
    assert answered(confirms) == [("ack", 1, False)]
    for commit in (2, 3, 4):
        confirms.add(10, 1)
        confirms.assign_receipts({1: Part(disk, commit)})
    disk.completed = 3
    assert answered(confirms) == [("ack", 21, True)]
    disk.completed = 4
    assert answered(confirms) == [("ack", 31, True)]


def test_what_needs_no_disk_still_waits_for_what_came_before() -> None:
    confirms, disk = Confirms(), Disk()
    for commit in (5, 0):
        confirms.add(1, 1)
        confirms.assign_receipts({1: Part(disk, commit)})
    disk.completed = 4
    assert answered(confirms) == []
    disk.completed = 5
    assert answered(confirms) == [("ack", 2, True)]


def test_refused_publishes_are_told_one_by_one_between_the_others() -> None:
    confirms, disk = Confirms(), Disk()
    confirms.add(2, 1)
    confirms.refuse()
    confirms.refuse()
    confirms.add(1, 1)
    confirms.assign_receipts({1: Part(disk, 0)})
    assert answered(confirms) == [("ack", 2, True), ("nack", 3, False), ("nack", 4, False), ("ack", 5, False)]


def test_what_was_taken_before_a_refusal_waits_for_its_own_receipt() -> None:
    confirms, disk = Confirms(), Disk()
    confirms.add(2, 1)
    confirms.refuse()
    assert answered(confirms) == []
    confirms.assign_receipts({1: Part(disk, 1)})
    assert answered(confirms) == []
    disk.completed = 1
    assert answered(confirms) == [("ack", 2, True), ("nack", 3, False)]


def test_receipts_of_two_sources_are_answered_in_the_order_of_the_publishes() -> None:
    confirms, disk, link = Confirms(), Disk(), Disk(refused=frozenset({8}))
    for part in (Part(link, 7), Part(disk, 1), Part(link, 8), Part(disk, 2)):
        confirms.add(2, 1)
        confirms.assign_receipts({1: part})
    disk.completed = 2
    assert answered(confirms) == []
    link.completed = 7
    assert answered(confirms) == [("ack", 4, True), ("nack", 6, True), ("ack", 8, True)]


def test_a_part_that_is_refused_is_nacked_and_no_other_of_its_turn() -> None:
    confirms, disk, link = Confirms(), Disk(), Disk(refused=frozenset({8}))
    for count, sources in ((2, 1), (1, 2), (1, 1), (1, 1 | 2), (1, 0)):
        confirms.add(count, sources)
    confirms.assign_receipts({1: Part(disk, 1), 2: Part(link, 8)})
    assert answered(confirms) == []
    disk.completed = 1
    assert answered(confirms) == [
        ("ack", 2, True),
        ("nack", 3, False),
        ("ack", 4, False),
        ("nack", 5, False),
        ("ack", 6, False),
    ]


def test_what_is_complete_is_acknowledged_up_to_the_first_that_is_not() -> None:
    confirms, disk, streams = Confirms(), Disk(), Disk()
    for count, sources in ((2, 1), (1, 1 | 2), (1, 1)):
        confirms.add(count, sources)
    confirms.assign_receipts({1: Part(disk, 1), 2: Part(streams, 1)})
    disk.completed = 1
    assert answered(confirms) == [("ack", 2, True)]
    assert confirms.waiting
    streams.completed = 1
    assert answered(confirms) == [("ack", 4, True)]


def test_a_publish_that_waits_is_overtaken_by_those_to_other_sources() -> None:
    """Publishes before the first waiting publish share a multiple ack; publishes behind it have one ack each."""
    confirms, disk, link = Confirms(), Disk(), Disk()
    for count, sources in ((2, 1), (1, 2), (2, 1), (1, 1 | 2), (1, 0), (1, 2)):
        confirms.add(count, sources)
    confirms.assign_receipts({1: Part(disk, 1), 2: Part(link, 1)})
    disk.completed = 1
    assert answered(confirms) == [("ack", 2, True)]
    confirms.look()
    assert answered(confirms) == []
    confirms.look()
    assert answered(confirms) == [("ack", 4, False), ("ack", 5, False), ("ack", 7, False)]
    assert (confirms.unanswered, confirms.acknowledged) == (3, 5)
    confirms.refuse()
    confirms.add(2, 1)
    assert answered(confirms) == [("nack", 9, False)]
    confirms.assign_receipts({1: Part(disk, 1), 2: Part(link, 2)})
    assert answered(confirms) == [("ack", 10, False), ("ack", 11, False)]
    link.completed = 1
    assert answered(confirms) == [("ack", 8, True)]
    assert (confirms.unanswered, confirms.acknowledged) == (0, 10)
    confirms.add(3, 1)
    confirms.add(1, 2)
    confirms.assign_receipts({1: Part(disk, 2), 2: Part(link, 1)})
    assert answered(confirms) == []
    disk.completed = 2
    assert answered(confirms) == [("ack", 15, True)]


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_each_publish_is_answered_once_and_as_its_sources_say(data: st.DataObject) -> None:
    """Each publish is answered once, for any order of completion and any time of the checks."""
    confirms, sources = Confirms(), {1 << bit: Disk() for bit in range(3)}
    given_to: dict[int, list[Part]] = {}
    waiting: set[int] = set()
    unassigned: list[tuple[int, int]] = []
    turn = 0

    def take() -> None:
        for kind, tag, multiple in answered(confirms):
            assert tag in waiting
            told = [one for one in waiting if one == tag or (multiple and one < tag)]
            waiting.difference_update(told)
            states = {part.state for one in told for part in given_to[one]}
            assert states <= {ReceiptState.DONE} if kind == "ack" else states & {ReceiptState.REFUSED}
        assert (confirms.unanswered, confirms.waiting) == (len(waiting), bool(waiting))

    steps = st.sampled_from(["add", "add", "refuse", "assign", "complete", "lose", "look", "answers"])
    for step in [*data.draw(st.lists(steps, max_size=60)), "assign"]:
        if step == "add":
            mask, count = data.draw(st.integers(0, 7)), data.draw(st.integers(1, 3))
            unassigned += [(confirms.published + place + 1, mask) for place in range(count)]
            waiting.update(range(confirms.published + 1, confirms.published + count + 1))
            confirms.add(count, mask)
        elif step == "refuse":
            confirms.refuse()
            waiting.add(confirms.published)
            given_to[confirms.published] = [NOT_TAKEN]
        elif step == "assign":
            turn += 1
            parts = {bit: Part(disk, turn) for bit, disk in sources.items()}
            for tag, mask in unassigned:
                given_to[tag] = [part for bit, part in parts.items() if bit & mask]
            unassigned.clear()
            confirms.assign_receipts(parts)
        elif step in ("complete", "lose"):
            disk = sources[data.draw(st.sampled_from(list(sources)))]
            upto = data.draw(st.integers(disk.completed, turn))
            if step == "lose":  # as for a broken link
                disk.refused |= set(range(disk.completed + 1, upto + 1))
            disk.completed = upto
        elif step == "look":
            confirms.look()
        else:
            take()
    for disk in sources.values():
        disk.completed = turn
    take()
    assert not waiting


def test_whoever_holds_a_confirm_finds_the_message_on_disk(
    broker: RunningBroker, channel: WireChannel, tmp_path: Path
) -> None:
    queues = [channel.queue(f"kept-{number}", durable=True, exclusive=False) for number in range(3)]
    channel.confirm_select()
    assert broker.data_dir is not None
    for round in range(1, 6):
        for queue in queues:
            for _ in range(20):
                channel.publish("", queue, bytes(100), PERSISTENT)
        channel.wait_for_confirms()
        opened = Opened(killed_now(broker.data_dir, tmp_path / f"round {round}"))
        assert [len(seqs) for seqs in left(opened).values()] == [20 * round] * 3
        opened.close()


def test_many_connections_that_publish_at_once_are_each_confirmed(
    broker: RunningBroker, channel: WireChannel, unique: Name
) -> None:
    """Many connections that publish at once all get confirms, and other requests are answered meanwhile."""
    queue = channel.queue(unique("crowd"), durable=True, exclusive=False, auto_delete=False)
    with ExitStack() as stack:
        crowd = [stack.enter_context(login(broker.port)).channel() for _ in range(30)]
        for one in crowd:
            one.confirm_select()
        for round in range(1, 21):
            for one in crowd:
                one.publish("", queue, b"one of many", PERSISTENT)
            assert channel.call(Basic.Qos(prefetch_count=round)).name == "Basic.QosOk"
            assert [one.next().delivery_tag for one in crowd] == [round] * len(crowd)
    assert channel.ready(queue) == 600
    channel.call(Queue.Delete(queue=queue))


@pytest.mark.parametrize("count", [1, 500])
def test_transient_and_persistent_messages_are_confirmed_and_returned_before(
    channel: WireChannel, unique: Name, count: int
) -> None:
    queue = channel.queue(unique("mixed"), durable=True)
    channel.confirm_select()
    for number in range(count):
        channel.publish("", queue if number % 5 else "nowhere", b"", PERSISTENT if number % 2 else None, mandatory=True)
    waiting, returned = set(range(1, count + 1)), 0
    while waiting:
        event = channel.next()
        if isinstance(event, Content):
            returned += 1
            continue
        assert event.delivery_tag in waiting
        assert returned > (event.delivery_tag - 1) // 5
        waiting -= set(range(1, event.delivery_tag) if event.multiple else ()) | {event.delivery_tag}
    assert returned == (count + 4) // 5


def test_answers_to_a_reply_queue_are_confirmed_too(channel: WireChannel) -> None:
    """Answers to a reply queue are confirmed, though they pass through no queue."""
    asking = channel.connection.channel()
    asking.consume("amq.rabbitmq.reply-to", no_ack=True)
    requests = channel.queue()
    asking.publish("", requests, b"question", Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    request = channel.get(requests)
    assert request is not None and request.properties.reply_to is not None
    channel.confirm_select()
    for body in (b"one", b"two"):
        channel.publish("", request.properties.reply_to, body)
    channel.publish("", requests, b"other")
    channel.wait_for_confirms()
    assert [asking.next().body, asking.next().body] == [b"one", b"two"]
