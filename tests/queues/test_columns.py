"""Reservations in columns behave as reservations of message objects."""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.queues.consumers import push
from tests.store.opened import Opened
from tests.store.test_damage import flip

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, columns
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.columns import Columns
from jumpmq.queues.memory import IN_COLUMNS, UNLIMITED, MemoryAccount, held_octets
from jumpmq.queues.parked import Parked
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.records import QueueRecords, records_of_queues
from jumpmq.queues.reservations import Reservations, exhaust
from jumpmq.queues.stored_run import StoredRun

KINDS: dict[str, tuple[type[ClassicQueue], dict[str, Any]]] = {
    "classic": (ClassicQueue, {}),
    "with expiry": (ClassicQueue, {"x-message-ttl": 3_600_000}),
    "with priorities": (ClassicQueue, {"x-max-priority": 9}),
    "with slots": (ClassicQueue, {"x-slots": 3}),
    "without duplicates": (ClassicQueue, {"x-message-deduplication": True}),
    "quorum": (QuorumQueue, {}),
    "quorum with limit": (QuorumQueue, {"x-delivery-limit": 20}),
    "quorum with retries": (QuorumQueue, {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000}),
}


def make_queue(opened: Opened, kind: str) -> tuple[ClassicQueue, MemoryAccount]:
    make, arguments = KINDS[kind]
    account = MemoryAccount()
    context = QueueContext(journal=opened.store, memory=account)
    queue = make("/", "q", id=7, durable=True, arguments=arguments, context=context)
    records = records_of_queues(opened.store.definitions(), clean=False).get(7, QueueRecords())
    queue.restore(opened.store.batches().get(7, []), records)
    return queue, account


def published(random: Random, first: int, count: int, *, mixed: bool) -> list[Message]:
    """Return messages in runs of equal kind, numbered in their bodies."""
    found: list[Message] = []
    while len(found) < count:
        persistent, priority = (random.random() < 0.8, random.choice([0, 0, 0, 7])) if mixed else (True, 0)
        for _ in range(random.randint(1, 12)):
            number = first + len(found)
            key = b"k%d" % random.randint(0, 9)
            properties = b"\x18\0" + bytes([1 + persistent, priority])
            found.append(Message("e", key, properties, b"%d " % number, persistent, 1_700_000_000.25 + number))
    return found


def rows(place: Reservations, queue: ClassicQueue, upto: int) -> list[tuple[Any, ...]]:
    """Return the readable fields of unacknowledged reservations."""
    pieces = place.held(None, upto, accept_loss=True)
    whole = [piece if isinstance(piece, list) else piece.messages() for piece in pieces]
    shown = chain.from_iterable(queue.taken.readable(part) for part in whole)
    names = ("seq", "exchange", "routing_key", "properties", "body", "redelivered", "persistent", "published_at")
    return [tuple(getattr(message, name) for name in names) for message in shown]


def story(opened: Opened, kind: str, seed: int) -> list[Any]:
    """Return observations of a queue with reservations, consumers, returned messages and restarts."""
    random, seen, number = Random(seed), list[Any](), 0
    queue, account = make_queue(opened, kind)
    place = Reservations(queue, "group")
    steps = ["push"] * 4 + ["reserve"] * 4 + ["acknowledge", "lapse", "consume", "page"]
    for _ in range(25):
        match random.choice([*steps, "restart"] if seed % 2 else steps):
            case "push":
                queue.push(published(random, number, random.randint(1, 60), mixed=seed in (2, 3)))
                number += 60
            case "reserve":
                exhaust(place.reserve(random.randint(1, 250), queue.next_seq - 1 - random.choice([0, 0, 0, 7])))
            case "acknowledge":
                exhaust(place.acknowledge(random.randint(place.acknowledged, place.latest)))
                exhaust(place.free())
            case "lapse":
                exhaust(place.lapse())
                exhaust(place.reinstate())
            case "consume":
                taken = queue.take_for_delivery(random.randint(1, 9))
                outcomes = random.choices([Outcome.ACKNOWLEDGED, Outcome.CONSUMER_GONE], [9, 1], k=len(taken))
                for message, outcome in zip(taken, outcomes, strict=True):
                    queue.settle([message], outcome)
            case "page":
                account.limit = 1
                for _ in range(2):
                    exhaust(place.page())
                    while queue.page_out(0):
                        pass
                    opened.commit()
                account.limit = UNLIMITED
            case "restart":
                opened.commit()
                record = place.record()
                opened = opened.restart()
                queue, account = make_queue(opened, kind)
                place = Reservations.restore(queue, record)
        place.give_up_lapsed()
        if place.outstanding:
            seen.append(rows(place, queue, place.latest))
        figures = replace(queue.figures(), unacknowledged_in_memory=0, octets_in_memory=0)  # a stored run stays on disk
        seen.append((figures, place.record(), queue.delivered, queue.redelivered, queue.acknowledged))
    exhaust(place.acknowledge(place.latest))
    exhaust(place.free())
    seen.append((queue.message_count, account.by_kind["reserved"], account.total - queue.memory))
    opened.commit()
    left, _ = make_queue(opened.restart(), kind)
    return [*seen, [(one.seq, one.body, one.redelivered) for one in left.peek(0, 1 << 60)]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_a_queue_does_with_columns_what_it_does_with_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    monkeypatch.setattr(columns, "AT_LEAST", 1 << 30)
    expected = story(Opened(tmp_path / "messages"), kind, seed)
    monkeypatch.setattr(columns, "AT_LEAST", 2)
    assert story(Opened(tmp_path / "columns"), kind, seed) == expected


@pytest.mark.parametrize("kind", ["classic", "with expiry", "quorum"])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("consumed", [0, 10, 110])
def test_what_is_on_disk_alone_is_read_as_columns(opened: Opened, kind: str, restart: bool, consumed: int) -> None:
    """Messages on disk are read as columns; the rest of a partly settled batch becomes message objects first."""
    queue, account = make_queue(opened, kind)
    messages = [
        Message("e", b"k", b"\x10\0\2", b"%d" % number, True, 1_700_000_000.0 + number) for number in range(300)
    ]
    for first in range(0, 300, 100):
        queue.push(messages[first : first + 100])
        opened.commit()
    queue.settle(queue.take_range(1, consumed, consumed or 1), Outcome.ACKNOWLEDGED)
    queue.checkpoint()
    opened.commit()
    if restart:
        queue, account = make_queue(opened.restart(), kind)
    else:
        account.limit = 1
        while queue.page_out(0):
            pass
        account.limit = UNLIMITED
        assert queue.memory == 0
    place = Reservations(queue, "group")
    exhaust(place.reserve(1000))
    read_later = kind != "with expiry" and not (restart and consumed)
    assert {type(piece) for piece in place.held(0, 1)} == {StoredRun if read_later else Columns}
    assert place.oldest == messages[consumed].published_at
    assert [(seq, body) for seq, _, _, _, body, *_ in rows(place, queue, 1)] == [
        (number + 1, b"%d" % number) for number in range(consumed, 300)
    ]
    assert (queue.ready_count, queue.unacknowledged_count) == (0, 300 - consumed)
    figures = queue.figures()
    assert (figures.ready_octets, figures.unacknowledged_octets) == (
        0,
        sum(len(b"%d" % n) for n in range(consumed, 300)),
    )
    exhaust(place.acknowledge(1))
    assert (account.total, queue.message_count, queue.figures().persistent_octets) == (0, 0, 0)


def test_columns_are_charged_without_an_object_for_each_message() -> None:
    account = MemoryAccount()
    queue = ClassicQueue("/", "q", id=1, context=QueueContext(memory=account))
    push(queue, *[bytes(1000)] * 300)
    place = Reservations(queue, "group")
    exhaust(place.reserve(100))
    exhaust(place.reserve(100))
    assert [type(piece) for piece in place.held(0, 2)] == [Columns, Columns]
    each = 1000 + len(b"q") + 2 + IN_COLUMNS
    ready = held_octets(queue.peek(201, 300))
    assert (account.by_kind["ready"], account.by_kind["reserved"]) == (ready, 200 * each)
    exhaust(place.acknowledge(1))
    assert account.by_kind["reserved"] == 100 * each
    exhaust(place.lapse())
    assert (account.by_kind["ready"], account.by_kind["reserved"]) == (2 * ready, 0)
    exhaust(place.reinstate())
    queue.delete()
    exhaust(place.drop())
    assert account.total == 0


def test_columns_leave_memory_where_that_is_tight(opened: Opened) -> None:
    queue, account = make_queue(opened, "classic")
    queue.push([Message("", b"q", b"\x10\0\2", b"%d" % number + bytes(500), True) for number in range(100)])
    place = Reservations(queue, "group")
    exhaust(place.reserve(100))
    expected = rows(place, queue, 1)
    opened.commit()
    account.limit = 1
    exhaust(place.page())
    assert [type(piece) for piece in place.held(0, 1)] == [Parked]
    assert account.by_kind["reserved"] < 100 * IN_COLUMNS
    assert rows(place, queue, 1) == expected


def on_disk(
    opened: Opened, count: int, *, persistent: bool = True, kind: str = "classic"
) -> tuple[ClassicQueue, MemoryAccount, Reservations]:
    """Return a queue with messages on disk only, all reserved by a group."""
    queue, account = make_queue(opened, kind)
    mode = 1 + persistent
    queue.push([Message("", b"q", b"\x10\0" + bytes([mode]), b"body %d" % n, persistent) for n in range(count)])
    opened.commit()
    account.limit = 1
    for _ in range(3):
        while queue.page_out(0):
            pass
        opened.commit()
    account.limit = UNLIMITED
    place = Reservations(queue, "group")
    exhaust(place.reserve(count))
    assert {type(piece) for piece in place.held(0, 1)} == {StoredRun}
    return queue, account, place


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("deletion", ["never", "before", "after"])
def test_a_reservation_on_disk_returns_to_its_queue(opened: Opened, persistent: bool, deletion: str) -> None:
    queue, account, place = on_disk(opened, 200, persistent=persistent)
    figures = queue.figures()
    assert (figures.unacknowledged_in_memory, figures.octets_in_memory) == (0, 0)
    assert figures.unacknowledged_octets == sum(len(b"body %d" % number) for number in range(200))
    if deletion == "before":
        queue.delete()
    exhaust(place.lapse())
    if deletion == "never":
        assert [(one.body, one.redelivered) for one in queue.peek(0, 1 << 60)] == [
            (b"body %d" % number, True) for number in range(200)
        ]
        assert queue.unacknowledged_count == 0
    exhaust(place.reinstate())
    if deletion == "after":
        queue.delete()
    if deletion == "never":
        exhaust(place.acknowledge(1))
        assert queue.message_count == 0
    else:
        exhaust(place.drop())
    exhaust(place.free())
    opened.commit()
    assert account.total == 0
    assert not list(opened.store.batches().get(7, []))


@pytest.mark.parametrize("settled", ["acknowledged", "returned"])
def test_damage_found_at_a_read_costs_the_damaged_messages(opened: Opened, settled: str) -> None:
    queue, account, place = on_disk(opened, 200)
    for path in opened.directory.glob("log/*.log"):
        octets = path.read_bytes()
        if b"body 150" in octets:
            flip(path, octets.index(b"body 150"))
    assert rows(place, queue, 1) == []
    if settled == "acknowledged":
        exhaust(place.acknowledge(1))
    else:
        exhaust(place.lapse())
    assert (queue.message_count, queue.unacknowledged_count, account.by_kind["reserved"]) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["quorum", "quorum with limit"])
def test_the_lapse_of_a_reservation_on_disk_counts_as_a_return(opened: Opened, kind: str) -> None:
    queue, _, place = on_disk(opened, 200, kind=kind)
    exhaust(place.lapse())
    assert {message.attempts for message in queue.take(200)} == {2}
