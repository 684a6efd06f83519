"""Declaring and deleting queues: RabbitMQ 3.10.8's rules and texts."""

from typing import Any

import pytest
from tests.topology.built import Built, message

from jumpmq.amqp.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from jumpmq.amqp.fields import Field
from jumpmq.queues import Queue
from jumpmq.topology import Arguments, Bind, Binding, DeclareQueue, DeleteQueue, Unbind

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)

INEQUIVALENT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"x-max-length": 5}, {"x-max-length": 6}, "'x-max-length' {}: received '6' but current is '5'"),
    ({"x-max-length": 5}, {"x-max-length": "5"}, "'x-max-length' {}: received '5' but current is '5'"),
    ({"x-max-length": 5}, {"x-max-length": True}, "'x-max-length' {}: received 'true' but current is '5'"),
    ({"x-max-length": 5}, {"x-max-length": None}, "'x-max-length' {}: received none but current is '5'"),
    (
        {"x-max-length": 5},
        {"x-max-length": [1, "a"]},
        "'x-max-length' {}: received '[{{signedint,1}},{{longstr,<<\"a\">>}}]' but current is '5'",
    ),
    (
        {"x-max-length": 5},
        {"x-max-length": {"a": "b"}},
        "'x-max-length' {}: received '[{{<<\"a\">>,longstr,<<\"b\">>}}]' but current is '5'",
    ),
    (
        {"x-max-length": 5},
        {},
        "'x-max-length' {}: received none but current is the value '5' of type 'signedint'",
    ),
    (
        {},
        {"x-overflow": "drop-head"},
        "'x-overflow' {}: received the value 'drop-head' of type 'longstr' but current is none",
    ),
    (
        {},
        {"x-single-active-consumer": True},
        "'x-single-active-consumer' {}: received the value 'true' of type 'bool' but current is none",
    ),
    (
        {"x-dead-letter-exchange": "e"},
        {"x-dead-letter-exchange": "f"},
        "'x-dead-letter-exchange' {}: received 'f' but current is 'e'",
    ),
]


def test_a_second_equivalent_declaration_returns_the_queue_with_its_messages(built: Built) -> None:
    queue = built.queue("q", {"x-max-length": 5}, durable=True)
    queue.push([message("q")])
    again = built.queue("q", {"x-max-length": 5, "unknown": "z", "x-queue-type": "classic"}, durable=True)
    assert again is queue
    assert again.ready_count == 1


def test_integers_are_equivalent_whatever_their_size_on_the_wire(built: Built) -> None:
    queue = built.queue("q", {"x-max-length": 5})
    again = built.topology.define_queue("/", "q", arguments=Arguments([Field("x-max-length", "l", 5)]))
    built.topology.apply(DeclareQueue(again))
    assert built.vhost.queue("q") is queue


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
def test_other_flags_are_refused(built: Built, flag: str) -> None:
    built.queue("q")
    with pytest.raises(PreconditionFailed) as refused:
        built.queue("q", {}, **{flag: True})
    assert refused.value.reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg '{flag}' for queue 'q' in vhost '/': "
        "received 'true' but current is 'false'"
    )


@pytest.mark.parametrize(("current", "received", "text"), INEQUIVALENT)
def test_other_arguments_are_refused(
    built: Built, current: dict[str, Any], received: dict[str, Any], text: str
) -> None:
    built.queue("q", current)
    with pytest.raises(PreconditionFailed) as refused:
        built.queue("q", received)
    assert refused.value.text == "inequivalent arg " + text.format("for queue 'q' in vhost '/'")


def test_reserved_names_are_the_servers(built: Built) -> None:
    built.queue("amqx")
    for name in ("amq.", "amq.mine", "amq.gen-mine"):
        with pytest.raises(AccessRefused) as refused:
            built.queue(name)
        assert refused.value.text == f"queue name '{name}' contains reserved prefix 'amq.*'"
    assert built.queue("amq.gen-theirs", server_named=True).name == "amq.gen-theirs"


def test_queues_are_numbered_and_know_their_home(built: Built) -> None:
    first, second = built.queue("a"), built.queue("b")
    built.delete_queue("b")
    third = built.queue("b")
    assert [number - (1 << 40) for number in (first.id, second.id, third.id)] == [1, 2, 3]
    assert third.node == "jumpmq@test"


def test_looking_up_what_is_not_there(built: Built) -> None:
    with pytest.raises(NotFound) as refused:
        built.vhost.queue("x")
    assert refused.value.text == "no queue 'x' in vhost '/'"


def test_deleting_a_queue_that_is_not_there_changes_nothing(built: Built) -> None:
    queue = built.queue("q")
    built.delete_queue("q")
    assert queue.deleted
    built.delete_queue("q")
    assert built.reached("", "q") == []


def test_a_deletion_is_of_one_queue_not_of_its_name(built: Built) -> None:
    """A deletion spares a queue of the same name that was declared meanwhile."""
    first = built.queue("q")
    built.delete_queue("q")
    second = built.queue("q")
    built.topology.apply(DeleteQueue("/", "q", first.id))
    assert built.vhost.queue("q") is second


def test_if_empty(built: Built) -> None:
    queue = built.queue("q")
    queue.push([message("q")])
    with pytest.raises(PreconditionFailed) as refused:
        built.delete_queue("q", if_empty=True)
    assert refused.value.text == "queue 'q' in vhost '/' not empty"
    queue.take(1)
    built.delete_queue("q", if_empty=True)
    assert queue.deleted


def exclusive(built: Built) -> Queue:
    return built.queue("q", exclusive=True, owner="mine")


def test_an_exclusive_queue_is_its_connections(built: Built) -> None:
    queue = exclusive(built)
    assert exclusive(built) is queue
    assert built.vhost.queue("q", "mine") is queue
    assert built.vhost.queue("q") is queue
    assert [one.contents for one in built.vhost.exclusive_queues("mine")] == [queue]


def test_others_are_locked_out_of_an_exclusive_queue(built: Built) -> None:
    exclusive(built)
    binding = Binding("amq.direct", "queue", "q", b"k")
    built.topology.apply(Bind("/", binding, "mine"))
    for refusing in (
        lambda: built.vhost.queue("q", "other"),
        lambda: built.queue("q", exclusive=True, owner="other"),
        lambda: built.queue("q", durable=True),
        lambda: built.queue("q"),  # the owner, but not exclusive
        lambda: built.delete_queue("q", connection="other"),
        lambda: built.topology.apply(Bind("/", binding, "other")),
        lambda: built.topology.apply(Unbind("/", binding, "other")),
    ):
        with pytest.raises(ResourceLocked) as refused:
            refusing()
        assert refused.value.reply_text == LOCKED
    assert built.reached("amq.direct", "k") == ["q"]


def test_a_shared_queue_cannot_become_exclusive(built: Built) -> None:
    built.queue("q")
    with pytest.raises(ResourceLocked) as refused:
        exclusive(built)
    assert refused.value.reply_text == LOCKED


def test_a_deleted_exclusive_queue_is_nobodys(built: Built) -> None:
    exclusive(built)
    built.delete_queue("q", connection="mine")
    assert built.vhost.exclusive_queues("mine") == []
