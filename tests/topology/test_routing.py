"""Routing between exchanges: bindings, alternate exchanges, carbon copies. Seen on RabbitMQ 3.10.8."""

import pytest
from tests.topology.built import Built, keys, message, message_of, shares

from jumpmq.amqp.errors import AccessRefused, NotFound, PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.topology import DeclareQueue


@pytest.mark.parametrize("plain", [True, False])
def test_exchanges_in_a_circle_deliver_once(built: Built, plain: bool) -> None:
    for exchange in ("one", "two"):
        built.exchange(exchange, "fanout")
    for queue in ("a", "b"):
        built.queue(queue)
    built.feed("one", "two")
    built.feed("two", "one")
    built.bind("one", "a")
    built.bind("two", "a")
    built.bind("two", "b")
    routes = built.route("one", message("x"), message("y"), plain=plain)
    assert keys(routes) == {"a": ["x", "y"], "b": ["x", "y"]}
    assert routes.unroutable == []


@pytest.mark.parametrize("plain", [True, False])
def test_messages_stay_in_order_over_paths_of_different_length(built: Built, plain: bool) -> None:
    for exchange in ("first", "second", "third"):
        built.exchange(exchange)
    built.queue("q")
    built.bind("first", "q", "short")
    built.feed("first", "second", "long")
    built.feed("second", "third", "long")
    built.bind("third", "q", "long")
    routes = built.route("first", *map(message, ["long", "short", "long", "short"]), plain=plain)
    assert keys(routes) == {"q": ["long", "short", "long", "short"]}


@pytest.mark.parametrize("plain", [True, False])
def test_what_reaches_an_exchange_but_no_queue_is_unroutable(built: Built, plain: bool) -> None:
    built.exchange("front", "fanout")
    built.exchange("back")
    built.queue("q")
    built.feed("front", "back")
    built.bind("back", "q", "known")
    routes = built.route("front", message("unknown"), message("known"), plain=plain)
    assert keys(routes) == {"q": ["known"]}
    assert [one.routing_key for one in routes.unroutable] == [b"unknown"]


def alternates(built: Built) -> None:
    built.exchange("spare", "fanout")
    built.queue("stray")
    built.bind("spare", "stray")
    built.exchange("main", "direct", {"alternate-exchange": "spare"})
    built.queue("q")
    built.bind("main", "q", "known")


@pytest.mark.parametrize("plain", [True, False])
def test_the_alternate_exchange_gets_what_matches_nothing(built: Built, plain: bool) -> None:
    alternates(built)
    routes = built.route("main", message("known"), message("x"), message("known"), message("y"), plain=plain)
    assert keys(routes) == {"q": ["known", "known"], "stray": ["x", "y"]}
    assert routes.unroutable == []


def test_a_message_that_one_of_its_keys_routes_needs_no_alternate(built: Built) -> None:
    alternates(built)
    assert built.reached("main", "known", {"CC": ["x"]}) == ["q"]


def test_an_alternate_exchange_serves_behind_another_exchange(built: Built) -> None:
    alternates(built)
    built.exchange("front", "fanout")
    built.feed("front", "main")
    assert built.reached("front", "x") == ["stray"]
    built.bind("front", "q")
    assert built.reached("front", "x") == ["q", "stray"]


@pytest.mark.parametrize("alternate", ["missing", "circle", ""])
def test_an_alternate_that_leads_nowhere(built: Built, alternate: str) -> None:
    built.queue("q")
    built.exchange("main", "direct", {"alternate-exchange": alternate})
    built.exchange("circle", "direct", {"alternate-exchange": "main"})
    lost = message("q")
    assert built.route("main", lost).unroutable == [lost]


def test_an_alternate_exchange_may_be_internal_or_made_later(built: Built) -> None:
    built.exchange("main", "direct", {"alternate-exchange": "later"})
    built.queue("q")
    assert built.reached("main", "x") == []
    built.exchange("later", "fanout", internal=True)
    built.bind("later", "q")
    assert built.reached("main", "x") == ["q"]


def test_cc_and_bcc_are_further_routing_keys(built: Built) -> None:
    for queue in "abc":
        built.queue(queue)
    assert built.reached("", "a", {"CC": ["b"]}) == ["a", "b"]
    assert built.reached("", "a", {"BCC": ["c"], "CC": ["b", "a", "b"]}) == ["a", "b", "c"]
    assert built.reached("", "nobody", {"BCC": ["c"]}) == ["c"]
    assert built.reached("", "a", {"cc": ["b"]}) == ["a"]
    assert built.reached("", "a", {"CC": []}) == ["a"]


@pytest.mark.parametrize("type", ["topic", "direct"])
def test_a_queue_that_several_keys_reach_gets_one_message(built: Built, type: str) -> None:
    built.exchange("e", type)
    built.queue("q")
    for key in ("x", "y"):
        built.bind("e", "q", key)
    assert shares(built.route("e", message("x", {"CC": ["y", "z"]}))) == {"q": 1}


def test_cc_stays_in_the_message_and_bcc_does_not(built: Built) -> None:
    built.queue("q")
    sent = message("q", {"BCC": ["z"], "CC": ["y"], "kind": 1}, message_id="m", delivery_mode=2)
    before = sent.properties
    routes = built.route("", sent)
    assert sent.properties is before, "routing changes nothing"
    routes.strip()
    properties = Properties.parse(sent.properties)
    assert properties.headers == [Field("CC", "A", [("S", "y")]), Field("kind", "I", 1)]
    assert (properties.message_id, properties.delivery_mode) == ("m", 2)


def test_a_message_without_bcc_is_not_touched(built: Built) -> None:
    built.queue("q")
    sent = message("q", {"CC": ["y"], "note": "BCC"})
    before = sent.properties
    built.route("", sent)
    assert sent.properties is before


def test_what_is_no_string_in_a_cc_header_is_passed_over(built: Built) -> None:
    built.queue("a")
    built.queue("b")
    copies = Field("CC", "A", [("I", 1), ("S", "b")])
    assert shares(built.route("", message_of("a", [copies]))) == {"a": 1, "b": 1}


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_a_copy_header_that_is_no_array_stops_the_run_there(built: Built, name: str) -> None:
    built.queue("a")
    routes = built.route("", message("a"), message("a", {name: "a"}), message("a"))
    assert shares(routes) == {"a": 1}
    assert isinstance(routes.error, PreconditionFailed)
    assert routes.error.text == f'invalid message: {{unacceptable_type_in_header,"{name}",longstr}}'


@pytest.mark.parametrize("keys", [["k"] * 1001, ["k" * 250] * 132])
def test_too_many_keys_in_copy_headers_stop_the_run_there(built: Built, keys: list[str]) -> None:
    built.queue("a")
    routes = built.route("", message("a"), message("a", {"CC": keys[:500], "BCC": keys[500:]}), message("a"))
    assert shares(routes) == {"a": 1}
    assert isinstance(routes.error, PreconditionFailed)
    assert "CC and BCC" in routes.error.text
    assert built.reached("", "a", {"CC": keys[:130]}) == ["a"]


def test_nobody_publishes_to_an_internal_exchange_directly(built: Built) -> None:
    built.exchange("inner", "fanout", internal=True)
    built.exchange("outer", "fanout")
    built.queue("q")
    built.bind("inner", "q")
    built.feed("outer", "inner")
    assert built.reached("outer") == ["q"]
    with pytest.raises(AccessRefused) as refused:
        built.route("inner", message("k"))
    assert refused.value.text == "cannot publish to internal exchange 'inner' in vhost '/'"


def test_nobody_publishes_to_an_exchange_that_is_not_there(built: Built) -> None:
    with pytest.raises(NotFound) as refused:
        built.route("nope", message("k"))
    assert refused.value.text == "no exchange 'nope' in vhost '/'"


def test_a_queue_pushes_what_it_is_routed(built: Built) -> None:
    """A message routed to two queues becomes two objects, each numbered by its queue."""
    first, second = built.queue("a"), built.queue("b")
    for name in "ab":
        built.bind("amq.fanout", name)
    second.push([message("earlier")])
    for queue, messages in built.route("amq.fanout", message("x"), message("y"), plain=True).queues.items():
        queue.push(messages)
    assert [(one.routing_key, one.seq) for one in first.take(9)] == [(b"x", 1), (b"y", 2)]
    assert [(one.routing_key, one.seq) for one in second.take(9)] == [(b"earlier", 1), (b"x", 2), (b"y", 3)]


def test_messages_of_queues_of_another_home_are_told_apart(built: Built) -> None:
    for name, home in (("here", 1), ("there", 2)):
        built.topology.apply(DeclareQueue(built.topology.define_queue("/", name, home=home)))
        built.bind("amq.fanout", name)
    built.exchange("x", "fanout")
    built.feed("x", "amq.fanout")
    for exchange, headers in (("amq.fanout", None), ("x", None), ("", {"CC": ["here", "there", "nowhere"]})):
        published = message("there", headers)
        routes = built.route(exchange, published)
        assert {queue.name: found for queue, found in routes.queues.items()} == {"here": [published]}
        assert {queue.name: found for queue, found in (routes.remote or {}).items()} == {"there": [published]}
        assert routes.unroutable == []
    with pytest.raises(NotFound, match="queue 'there' in vhost '/' is at home 2"):
        built.vhost.queue("there")
