"""Declaring and deleting exchanges: RabbitMQ 3.10.8's rules and texts."""

from typing import Any

import pytest
from tests.topology.built import Built

from jumpmq.amqp.errors import AccessRefused, NotFound, PreconditionFailed
from jumpmq.topology import DeleteExchange
from jumpmq.topology.rules import passive_exchange

INEQUIVALENT: list[tuple[str, dict[str, Any], dict[str, bool], str]] = [
    ("fanout", {}, {}, "'type' for exchange 'e' in vhost '/': received 'fanout' but current is 'direct'"),
    (
        "direct",
        {},
        {"durable": True},
        "'durable' for exchange 'e' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "direct",
        {},
        {"auto_delete": True},
        "'auto_delete' for exchange 'e' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "direct",
        {},
        {"internal": True},
        "'internal' for exchange 'e' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "direct",
        {"alternate-exchange": "z"},
        {},
        "'alternate-exchange' for exchange 'e' in vhost '/': "
        "received the value 'z' of type 'longstr' but current is none",
    ),
]


def test_a_virtual_host_begins_with_the_predeclared_exchanges(built: Built) -> None:
    found = [(one.name, one.type, one.durable, one.internal) for one in built.vhost.exchanges.values()]
    assert sorted(found) == [
        ("", "direct", True, False),
        ("amq.direct", "direct", True, False),
        ("amq.fanout", "fanout", True, False),
        ("amq.headers", "headers", True, False),
        ("amq.match", "headers", True, False),
        ("amq.rabbitmq.trace", "topic", True, True),
        ("amq.topic", "topic", True, False),
    ]


def test_a_second_equivalent_declaration_changes_nothing(built: Built) -> None:
    built.queue("q")
    first = built.exchange("e", "topic", {"alternate-exchange": "z"}, durable=True)
    built.bind("e", "q", "#")
    second = built.exchange("e", "topic", {"alternate-exchange": "z", "unknown": 1}, durable=True)
    assert second is first
    assert built.reached("e") == ["q"]


@pytest.mark.parametrize(("type", "arguments", "flags", "text"), INEQUIVALENT)
def test_another_declaration_is_refused(
    built: Built, type: str, arguments: dict[str, Any], flags: dict[str, bool], text: str
) -> None:
    built.exchange("e")
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange("e", type, arguments, **flags)
    assert refused.value.text == f"inequivalent arg {text}"


def test_another_alternate_exchange_is_refused(built: Built) -> None:
    built.exchange("e", "direct", {"alternate-exchange": "z"})
    subject = "inequivalent arg 'alternate-exchange' for exchange 'e' in vhost '/'"
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange("e", "direct", {"alternate-exchange": "y"})
    assert refused.value.text == f"{subject}: received 'y' but current is 'z'"
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange("e", "direct")
    assert refused.value.text == f"{subject}: received none but current is the value 'z' of type 'longstr'"


def test_an_alternate_exchange_is_a_string(built: Built) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange("e", "direct", {"alternate-exchange": 1})
    assert refused.value.text == "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'e' in vhost '/'"


@pytest.mark.parametrize("name", ["e", "new", "amq.new"])
def test_an_unknown_type_is_refused(built: Built, name: str) -> None:
    built.exchange("e")
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange(name, "bogus")
    assert refused.value.reply_text == "PRECONDITION_FAILED - unknown exchange type 'bogus'"


def test_reserved_names(built: Built) -> None:
    built.exchange("amq.direct", "direct", durable=True)
    built.exchange("amqx")
    for name in ("amq.", "amq.mine"):
        with pytest.raises(AccessRefused) as refused:
            built.exchange(name)
        assert refused.value.text == f"exchange name '{name}' contains reserved prefix 'amq.*'"


def test_the_default_exchange_is_nobodys(built: Built) -> None:
    for refusing in (
        lambda: built.exchange(""),
        lambda: passive_exchange(built.vhost, ""),
        lambda: built.topology.apply(DeleteExchange("/", "")),
        lambda: built.bind("", "q", "k"),
        lambda: built.unbind("", "q", "k"),
        lambda: built.feed("", "amq.direct"),
        lambda: built.feed("amq.direct", ""),
    ):
        with pytest.raises(AccessRefused) as refused:
            refusing()
        assert refused.value.text == "operation not permitted on the default exchange"


def test_deleting(built: Built) -> None:
    built.exchange("e")
    built.topology.apply(DeleteExchange("/", "e"))
    built.topology.apply(DeleteExchange("/", "e"))
    with pytest.raises(NotFound) as refused:
        passive_exchange(built.vhost, "e")
    assert refused.value.text == "no exchange 'e' in vhost '/'"


@pytest.mark.parametrize("name", ["amq.direct", "amq.rabbitmq.trace", "amq.nothere"])
def test_predeclared_exchanges_stay(built: Built, name: str) -> None:
    with pytest.raises(AccessRefused) as refused:
        built.topology.apply(DeleteExchange("/", name))
    assert refused.value.text == f"deletion of system exchange '{name}' in vhost '/' not allowed"


def test_if_unused_spares_an_exchange_with_bindings_of_its_own(built: Built) -> None:
    built.exchange("e")
    built.queue("q")
    built.bind("e", "q", "k")
    with pytest.raises(PreconditionFailed) as refused:
        built.topology.apply(DeleteExchange("/", "e", if_unused=True))
    assert refused.value.text == "exchange 'e' in vhost '/' in use"
    built.unbind("e", "q", "k")
    built.feed("amq.direct", "e", "k")
    built.topology.apply(DeleteExchange("/", "e", if_unused=True))
    assert "e" not in built.vhost.exchanges
    assert list(built.vhost.exchange("amq.direct").bindings) == []
