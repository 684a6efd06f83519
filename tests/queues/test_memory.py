"""The account of memory adds up, by kind and in all."""

from pathlib import Path

import pytest
from tests.queues.consumers import message, push
from tests.store.opened import Opened

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import OVERHEAD, PAGED, MemoryAccount, held_octets
from jumpmq.queues.reservations import Reservations, exhaust
from jumpmq.queues.stream import Stream
from jumpmq.store.stream_files import StreamFiles


def test_what_is_charged_counts_by_kind_and_in_all_until_it_is_released() -> None:
    account = MemoryAccount(limit=1000)
    account.charge("ready", 300)
    account.charge("unsent", 150)
    assert (account.total, account.by_kind["ready"], account.by_kind["unsent"]) == (450, 300, 150)
    account.move("ready", "unacknowledged", 100)
    account.charge("unsent", -150)
    assert (account.total, account.by_kind["ready"], account.by_kind["unacknowledged"]) == (300, 200, 100)


def test_bodies_are_paged_above_half_of_the_limit_and_publishers_blocked_at_it() -> None:
    account = MemoryAccount(limit=1000)
    assert (account.tight, account.exhausted) == (False, False)
    account.charge("ready", 501)
    assert (account.tight, account.exhausted) == (True, False)
    account.charge("unfinished", 499)
    assert (account.tight, account.exhausted) == (True, True)


def test_a_limit_of_nothing_blocks_always() -> None:
    assert MemoryAccount(limit=0).exhausted
    assert not MemoryAccount().exhausted


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError):
        MemoryAccount().charge("other", 1)


def test_what_is_reserved_has_a_kind_of_its_own_until_it_goes_or_comes_back() -> None:
    account = MemoryAccount()
    queue = ClassicQueue("/", "q", id=1, context=QueueContext(memory=account))
    push(queue, *[bytes(1000)] * 10)
    place = Reservations(queue, "group")
    exhaust(place.reserve(4))
    exhaust(place.reserve(4))
    each = held_octets(queue.peek(10, 10))
    assert each == OVERHEAD + 1000 + len(b"q") + 2
    assert (account.by_kind["ready"], account.by_kind["reserved"]) == (2 * each, 8 * each)
    exhaust(place.acknowledge(1))
    assert account.by_kind["reserved"] == 4 * each
    exhaust(place.lapse())
    assert (account.by_kind["ready"], account.by_kind["reserved"]) == (6 * each, 0)
    exhaust(place.reinstate())
    assert (account.by_kind["ready"], account.by_kind["reserved"]) == (2 * each, 4 * each)
    queue.delete()
    exhaust(place.drop())
    assert account.total == 0
    assert account.by_kind["unacknowledged"] == 0


def test_messages_of_a_stream_are_charged_until_they_are_written(tmp_path: Path) -> None:
    account, files = MemoryAccount(), StreamFiles(tmp_path)
    context = QueueContext(memory=account, streams=files)
    stream, other = (Stream("/", "s", id=number, durable=True, context=context) for number in (1, 2))
    stream.push([message(bytes(1000)) for _ in range(10)])
    other.push([message(bytes(1000))])
    each = held_octets([message(bytes(1000))])
    assert account.by_kind["staged"] == 11 * each
    assert stream.memory == 10 * each
    other.delete()
    files.flush()
    assert (account.total, stream.memory) == (0, 0)
    files.close()


def test_what_came_back_out_of_order_is_paged_and_has_its_bodies_again_when_it_is_taken(opened: Opened) -> None:
    account = MemoryAccount(1)
    queue = ClassicQueue("/", "q", id=1, durable=True, context=QueueContext(journal=opened.store, memory=account))
    bodies = [b"%d " % number + bytes(1000) for number in range(40)]
    queue.push([message(body, persistent=number % 2 == 0) for number, body in enumerate(bodies)])
    held = queue.take(40)
    for number in range(40):
        queue.settle([held[number]], Outcome.REQUEUED)
    for _ in range(2):
        while queue.page_out(0):
            pass
        opened.commit()
    while queue.page_out(0):
        pass
    assert queue.memory < 40 * (OVERHEAD + 20)
    assert account.total == queue.memory
    assert [one.body for one in queue.peek(1, 40)] == bodies
    assert queue.memory < 40 * (OVERHEAD + 20)
    taken = queue.take(40)
    assert [one.body for one in taken] == bodies
    assert (account.by_kind["ready"], queue.ready_count) == (0, 0)
    assert account.by_kind["unacknowledged"] == held_octets(taken) > sum(map(len, bodies)) + 40 * OVERHEAD


@pytest.mark.parametrize("persistent", [True, False])
def test_a_large_header_counts_and_is_paged_like_a_body(opened: Opened, persistent: bool) -> None:
    """A large header counts and is paged like a body, in a ready, delivered, or returned message."""
    account, count = MemoryAccount(1), 20
    queue = ClassicQueue("/", "q", id=1, durable=True, context=QueueContext(journal=opened.store, memory=account))
    properties = b"\x20\0" + (7 + 50_000).to_bytes(4) + b"\1hS" + (50_000).to_bytes(4) + bytes(50_000)
    if persistent:
        properties = b"\x30\0" + properties[2:] + b"\2"
    queue.push([Message("", b"q", properties, b"m", persistent) for _ in range(count)])
    assert account.by_kind["ready"] > count * 50_000
    held = queue.take(count)
    returned, delivered = held[5:15:2], held[:5] + held[6:15:2] + held[15:]
    assert account.by_kind["unacknowledged"] > count * 50_000
    queue.settle(returned, Outcome.REQUEUED)
    for _ in range(3):
        while queue.page_out(0):
            pass
        queue.taken.page(delivered)
        opened.commit()
    assert account.total <= count * (OVERHEAD + len(PAGED))
    queue.settle(delivered, Outcome.REQUEUED)
    assert {one.properties for one in queue.take(count)} == {properties}
    assert account.total == account.by_kind["unacknowledged"] > count * 50_000
