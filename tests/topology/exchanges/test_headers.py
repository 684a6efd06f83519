"""Headers exchanges: by the values of headers. The tables were read off RabbitMQ 3.10.8."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topology.built import Built, message, message_of

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.topology import AddVirtualHost, Arguments, Bind, Binding, Topology

Headers = dict[str, Any]

MATCHES: list[tuple[Headers, Headers | None, bool]] = [
    # No conditions: all of none are met, any of none is not.
    ({}, None, True),
    ({}, {"a": 1}, True),
    ({"x-match": "all"}, {}, True),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "any"}, {"x-match": "any"}, False),
    ({"x-match": "all-with-x"}, {"a": 1}, True),
    ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
    # All conditions must be met: the default.
    ({"a": 1}, None, False),
    ({"a": 1}, {}, False),
    ({"a": 1}, {"a": 1}, True),
    ({"a": 1}, {"a": 1, "b": 2}, True),
    ({"a": 1, "b": "x"}, {"a": 1}, False),
    ({"a": 1, "b": "x"}, {"b": "x", "a": 1}, True),
    ({"a": 1, "b": "x"}, {"a": 1, "b": "y"}, False),
    # Any condition suffices.
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 2}, False),
    ({"x-match": "any", "a": 1, "b": 2}, {"c": 1}, False),
    # Types count.
    ({"a": 1}, {"a": "1"}, False),
    ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": None}, False),
    ({"a": 1}, {"a": 1.0}, False),
    ({"a": True}, {"a": True}, True),
    ({"a": True}, {"a": False}, False),
    ({"a": "x"}, {"a": "x"}, True),
    ({"a": Decimal("1.5")}, {"a": Decimal("1.5")}, True),
    ({"a": datetime(2020, 1, 1, tzinfo=UTC)}, {"a": datetime(2020, 1, 1, tzinfo=UTC)}, True),
    ({"a": datetime(2020, 1, 1, tzinfo=UTC)}, {"a": datetime(2020, 1, 2, tzinfo=UTC)}, False),
    ({"a": [1, "b"]}, {"a": [1, "b"]}, True),
    ({"a": [1, "b"]}, {"a": [1]}, False),
    ({"a": {"k": 1, "j": 2}}, {"a": {"k": 1, "j": 2}}, True),
    ({"a": {"k": 1, "j": 2}}, {"a": {"j": 2, "k": 1}}, False),
    # A void condition requires the header, with any value.
    ({"a": None}, {"a": 1}, True),
    ({"a": None}, {"a": None}, True),
    ({"a": None}, {"b": 1}, False),
    # Names that start with x- are ignored, unless x-match says otherwise.
    ({"x-match": "all", "a": 1, "x-foo": 5}, {"a": 1, "x-foo": 6}, True),
    ({"x-match": "any", "x-foo": 5}, {"x-foo": 5}, False),
    ({"x-match": "all-with-x", "a": 1, "x-foo": 5}, {"a": 1}, False),
    ({"x-match": "all-with-x", "a": 1, "x-foo": 5}, {"a": 1, "x-foo": 5}, True),
    ({"x-match": "any-with-x", "x-foo": 5}, {"x-foo": 5}, True),
    ({"x-match": "any-with-x", "x-foo": 5}, {"x-foo": 6}, False),
    ({"x": 1}, {"x": 2}, False),
    ({"X-a": 1}, {}, False),
]


@pytest.mark.parametrize(("arguments", "headers", "matches"), MATCHES)
def test_what_a_binding_matches(built: Built, arguments: Headers, headers: Headers | None, matches: bool) -> None:
    built.queue("q")
    built.bind("amq.headers", "q", "ignored", arguments)
    assert built.reached("amq.headers", "other", headers) == (["q"] if matches else [])


@pytest.mark.parametrize("octet", "bBsuIil")
def test_an_integer_is_an_integer_of_any_size(built: Built, octet: str) -> None:
    built.queue("q")
    built.bind("amq.headers", "q", "", {"a": 7})
    assert built.route("amq.headers", message_of("", [Field("a", octet, 7)])).queues


def test_messages_without_headers_match_bindings_without_conditions(built: Built) -> None:
    built.queue("open")
    built.queue("closed")
    built.bind("amq.match", "open")
    built.bind("amq.match", "closed", "", {"a": 1})
    routes = built.route("amq.match", message("k"), plain=True)
    assert [queue.name for queue in routes.queues] == ["open"]


def test_an_unknown_x_match_is_refused(built: Built) -> None:
    built.queue("q")
    with pytest.raises(PreconditionFailed) as refused:
        built.bind("amq.headers", "q", "", {"x-match": "bogus"})
    assert refused.value.text == (
        'Invalid x-match field value <<"bogus">>; expected all, any, all-with-x, or any-with-x'
    )


def test_an_x_match_that_is_no_string_is_refused(built: Built) -> None:
    built.queue("q")
    arguments = Arguments([Field("x-match", "I", 1)])
    with pytest.raises(PreconditionFailed) as refused:
        built.topology.apply(Bind("/", Binding("amq.headers", "queue", "q", b"", arguments)))
    assert refused.value.text == "Invalid x-match field type signedint (value 1); expected longstr"


HEADERS = st.dictionaries(st.sampled_from(["a", "b", "c", "x-d"]), st.integers(0, 2), max_size=4)
MODES = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])


@given(st.lists(st.tuples(MODES, HEADERS), max_size=12), st.sets(st.integers(0, 11)), HEADERS)
def test_many_bindings_match_as_each_alone(bindings: list[tuple[str, Headers]], gone: set[int], sent: Headers) -> None:
    topology = Topology("jumpmq@test")
    topology.apply(AddVirtualHost("/"))
    built = Built(topology)
    expected = []
    for number, (mode, wanted) in enumerate(bindings):
        built.queue(f"q{number}")
        built.bind("amq.headers", f"q{number}", "", {"x-match": mode, **wanted})
        compared = {name: wanted[name] for name in wanted if mode.endswith("-x") or name != "x-d"}
        outcomes = [sent.get(name) == value for name, value in compared.items()]
        if number not in gone and (all(outcomes) if mode.startswith("all") else any(outcomes)):
            expected.append(f"q{number}")
    for number in gone & set(range(len(bindings))):
        mode, wanted = bindings[number]
        built.unbind("amq.headers", f"q{number}", "", {"x-match": mode, **wanted})
    assert built.reached("amq.headers", "", sent) == sorted(expected)
