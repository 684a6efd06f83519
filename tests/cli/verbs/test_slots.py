"""`list_slots` and `explain`."""

import json

from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.verbs.control import Control, Output

from jumpmq.queues.slots import slot_of


def test_slots_are_listed_and_explained(channel: BlockingChannel, control: Control, output: Output) -> None:
    channel.queue_declare("slotted", arguments={"x-slots": 8, "x-in-flight-per-slot": 1})
    channel.confirm_delivery()
    for _ in range(2):
        channel.basic_publish("", "slotted", b"x")
    slot = slot_of(b"slotted", 8)
    channel.basic_get("slotted")
    [found] = json.loads(output("list_slots", "slotted", "--formatter", "json"))
    assert (found["slot"], found["state"], found["messages_ready"]) == (slot, "blocked", 1)
    assert f"slot {slot} has 1 unacknowledged messages" in output("explain", "slotted", "--key", "slotted")
    assert "the queue has no consumer" in output("explain", "slotted")
    assert "message 1 was delivered to a basic.get" in output("explain", "slotted", "--message", "1")
    assert f"slot {slot_of(bytes([255]), 8)}" in output("explain", "slotted", "--key", "\udcff")
    both = control("explain", "slotted", "--key", "a", "--slot", "1")
    assert (both.returncode, "give one of a key, a slot and a message" in both.stderr) == (64, True)


def test_a_key_that_waits_in_a_queue_without_slots(channel: BlockingChannel, output: Output) -> None:
    channel.exchange_declare("ring", "x-consistent-hash", arguments={"ordered-scaling": True})
    for name in ("old", "new"):
        channel.queue_declare(name)
    channel.queue_bind("old", "ring", "1")
    channel.confirm_delivery()
    for again in (False, True):
        for number in range(20):
            channel.basic_publish("ring", f"k{number}", b"x")
        if not again:
            channel.queue_bind("new", "ring", "1")
    frame, _, _ = channel.basic_get("old")
    reasons = [output("explain", "new", "--key", f"k{number}") for number in range(20)]
    assert any("its messages wait until" in reason and "20 messages of queue 'old'" in reason for reason in reasons)
    assert "the queue has no consumer" in output("explain", "old", "--key", "k0")
    channel.basic_nack(frame.delivery_tag)


def test_a_queue_without_slots_has_none(channel: BlockingChannel, control: Control) -> None:
    channel.queue_declare("plain")
    for arguments in (["list_slots", "plain"], ["explain", "plain", "--slot", "0"]):
        result = control(*arguments)
        assert (result.returncode, "has no slots" in result.stderr) == (65, True)
    assert control("list_slots", "none").returncode
