"""Bindings end with the queue or the exchange; auto-delete exchanges end with the last binding."""

import pytest
from tests.topology.built import Built

from jumpmq.amqp.errors import NotFound
from jumpmq.topology import Arguments, Binding, DeleteExchange, Unbind


def test_what_must_exist_to_be_bound(built: Built) -> None:
    built.queue("q")
    for refusing, text in (
        (lambda: built.bind("amq.direct", "nope"), "no queue 'nope' in vhost '/'"),
        (lambda: built.bind("nope", "q"), "no exchange 'nope' in vhost '/'"),
        (lambda: built.bind("no exchange", "no queue"), "no exchange 'no exchange' in vhost '/'"),
        (lambda: built.feed("amq.direct", "nope"), "no exchange 'nope' in vhost '/'"),
        (lambda: built.feed("source", "destination"), "no exchange 'source' in vhost '/'"),
    ):
        with pytest.raises(NotFound) as refused:
            refusing()  # type: ignore[no-untyped-call]
        assert refused.value.text == text


def test_unbinding_what_is_not_bound_is_no_error(built: Built) -> None:
    built.queue("q")
    built.unbind("amq.direct", "q", "k")
    built.unbind("amq.direct", "nope", "k")
    built.unbind("nope", "q", "k")
    built.unbind("nope", "nope", "k")


def test_a_binding_is_its_key_and_arguments(built: Built) -> None:
    built.queue("q")
    built.bind("amq.direct", "q", "k", {"a": 1, "b": 2})
    built.bind("amq.direct", "q", "k", {"b": 2, "a": 1})
    built.bind("amq.direct", "q", "k")
    assert list(built.vhost.exchange("amq.direct").bindings) == [
        Binding("amq.direct", "queue", "q", b"k", Arguments.of({"a": 1, "b": 2})),
        Binding("amq.direct", "queue", "q", b"k"),
    ]


def test_the_list_of_bindings_shows_those_of_the_default_exchange(built: Built) -> None:
    built.exchange("e", "fanout")
    built.queue("q")
    built.bind("e", "q", "k")
    built.feed("amq.topic", "e", "#")
    assert list(built.vhost.bindings()) == [
        Binding("", "queue", "q", b"q"),
        Binding("amq.topic", "exchange", "e", b"#"),
        Binding("e", "queue", "q", b"k"),
    ]
    assert built.vhost.bindings_to(built.vhost.queue("q")) == [
        Binding("", "queue", "q", b"q"),
        Binding("e", "queue", "q", b"k"),
    ]


def test_a_deleted_queue_takes_its_bindings_along(built: Built) -> None:
    built.queue("q")
    built.bind("amq.direct", "q", "a")
    built.bind("amq.fanout", "q")
    built.delete_queue("q")
    assert list(built.vhost.bindings()) == []
    built.queue("q")
    assert built.reached("amq.fanout") == []


def test_a_deleted_exchange_takes_its_bindings_along(built: Built) -> None:
    built.exchange("e", "fanout")
    built.queue("q")
    built.bind("e", "q")
    built.feed("amq.fanout", "e")
    built.topology.apply(DeleteExchange("/", "e"))
    assert list(built.vhost.bindings()) == [Binding("", "queue", "q", b"q")]


def test_an_auto_delete_exchange_goes_with_its_last_binding(built: Built) -> None:
    built.exchange("e", "fanout", auto_delete=True)
    built.queue("q")
    assert "e" in built.vhost.exchanges  # an exchange that never had a binding
    built.bind("e", "q", "x")
    built.bind("e", "q", "y")
    built.unbind("e", "q", "x")
    assert "e" in built.vhost.exchanges
    built.unbind("e", "q", "y")
    assert "e" not in built.vhost.exchanges


def test_an_auto_delete_exchange_does_not_go_with_bindings_to_it(built: Built) -> None:
    built.exchange("e", "fanout", auto_delete=True)
    built.feed("amq.fanout", "e")
    built.topology.apply(Unbind("/", Binding("amq.fanout", "exchange", "e")))
    assert "e" in built.vhost.exchanges


def test_auto_deletion_goes_up_a_chain(built: Built) -> None:
    for name in ("first", "second"):
        built.exchange(name, "fanout", auto_delete=True)
    built.queue("q")
    built.feed("first", "second")
    built.bind("second", "q")
    built.delete_queue("q")
    assert not {"first", "second"} & set(built.vhost.exchanges)


def test_auto_deletion_survives_a_circle(built: Built) -> None:
    for name in ("one", "two"):
        built.exchange(name, "fanout", auto_delete=True)
    built.queue("q")
    built.feed("one", "two")
    built.feed("two", "one")
    built.bind("two", "q")
    built.topology.apply(DeleteExchange("/", "one"))
    assert list(built.vhost.exchange("two").bindings) == [Binding("two", "queue", "q")]
    built.delete_queue("q")
    assert "two" not in built.vhost.exchanges
    assert list(built.vhost.bindings()) == []
