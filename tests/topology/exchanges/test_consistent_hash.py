"""Consistent hash exchanges: every key in one queue, by weight, as RabbitMQ decides."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.topology.built import Built, message, message_of, shares

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import HashRing
from jumpmq.hashing.functions import NAMES, HashFunction
from jumpmq.topology import ConsistentHashExchange

VECTORS = Path(__file__).parents[2] / "data"
SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 20, 32, 64, 100, 128, 1000, 4096, 10000]


def vectors(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


def ring(built: Built, weights: dict[str, int], name: str = "e", **arguments: Any) -> ConsistentHashExchange:
    """A consistent hash exchange with bound queues."""
    exchange = built.exchange(name, "x-consistent-hash", arguments)
    for queue, weight in weights.items():
        built.queue(queue)
        built.bind(name, queue, str(weight))
    assert isinstance(exchange, ConsistentHashExchange)
    return exchange


def placed(built: Built, count: int = 2000, exchange: str = "e") -> dict[str, str]:
    """Return the queue of each of many keys."""
    routes = built.route(exchange, *[message(str(n)) for n in range(count)], plain=True)
    return {one.routing_key.decode(): queue.name for queue, messages in routes.queues.items() for one in messages}


@pytest.mark.parametrize("size", SIZES)
def test_routing_keys_go_where_rabbitmq_sends_them(built: Built, size: int) -> None:
    ring(built, {str(bucket): 1 for bucket in range(size)})
    lines = vectors("routing_keys")
    wanted = [line["consistent_hash"][str(size)] for line in lines]
    for plain in (True, False):
        routes = built.route("e", *[message(line["routing_key"]) for line in lines], plain=plain)
        found = {id(one): int(queue.name) for queue, messages in routes.queues.items() for one in messages}
        assert sorted(found.values()) == sorted(wanted)
        by_key = {one.routing_key.decode(): int(q.name) for q, messages in routes.queues.items() for one in messages}
        assert [by_key[line["routing_key"]] for line in lines] == wanted


@pytest.mark.parametrize("size", SIZES)
def test_headers_go_where_rabbitmq_4_sends_them(built: Built, size: int) -> None:
    ring(built, {str(bucket): 1 for bucket in range(size)}, **{"hash-header": "h"})
    for line in vectors("headers"):
        headers = [] if line["type"] == "missing" else [Field("h", *read(line["type"], line["value"]))]
        (queue,) = built.route("e", message_of("", [Field("other", "I", 1), *headers])).queues
        assert int(queue.name) == line["consistent_hash"][str(size)], line


def read(kind: str, value: Any) -> tuple[str, Any]:
    """Return a field of the vectors as the protocol layer decodes it."""
    match kind:
        case "S" | "x":
            return kind, bytes.fromhex(value)
        case "D":
            return kind, tuple(value)
        case "A":
            return kind, [read(*item) for item in value]
        case "F":
            return kind, [Field(name, *read(*item)) for name, item in value.items()]
    return kind, value


def test_the_documents_example_spreads_as_on_rabbitmq(built: Built) -> None:
    ring(built, {"q1": 1, "q2": 1, "q3": 2, "q4": 2})
    routes = built.route("e", *[message(str(n)) for n in range(100_000)], plain=True)
    assert shares(routes) == {"q1": 16638, "q2": 16631, "q3": 33441, "q4": 33290}


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
@pytest.mark.parametrize("plain", [True, False])
def test_a_property_may_be_hashed(built: Built, name: str, plain: bool) -> None:
    weights = {"q1": 1, "q2": 1, "q3": 2, "q4": 2}
    exchange = ring(built, weights, **{"hash-property": name})
    ring(built, weights, "by-key")
    values: list[Any] = list(range(500)) if name == "timestamp" else [str(n) for n in range(500)]
    routes = built.route("e", *[message("", **{name: value}) for value in values], plain=plain)
    assert shares(routes) == shares(built.route("by-key", *[message(str(n)) for n in range(500)]))
    assert exchange.missing_count == 0


@pytest.mark.parametrize("arguments", [{"hash-header": "h"}, {"hash-property": "message_id"}])
def test_messages_that_lack_what_is_hashed_share_a_queue_and_are_counted(
    built: Built, arguments: dict[str, str]
) -> None:
    exchange = ring(built, {"q1": 1, "q2": 1, "q3": 1}, **arguments)
    first = built.route("e", *[message(str(n)) for n in range(10)], plain=True)
    second = built.route("e", *[message(str(n), {"other": 1}) for n in range(10)])
    assert list(first.queues) == list(second.queues)
    assert shares(first) == shares(second)
    assert list(shares(first).values()) == [10]
    assert exchange.missing_count == 20


@pytest.mark.parametrize("plain", [True, False])
def test_a_message_that_goes_on_to_another_exchange_is_counted_once(built: Built, plain: bool) -> None:
    exchange = ring(built, {"q1": 1}, **{"hash-header": "h"})
    built.exchange("next", "fanout")
    built.queue("behind")
    built.bind("next", "behind", "")
    built.feed("e", "next", "1")
    exchange.count_traffic()
    built.route("e", *[message(str(n)) for n in range(10)], plain=plain)
    assert exchange.missing_count == 10
    assert exchange.traffic is not None
    counted = exchange.traffic.counted()
    assert (counted.missing, sum(counted.messages)) == (10, 10)


def test_previewed_messages_are_counted_by_the_ring_of_their_publishing(built: Built) -> None:
    exchange = ring(built, {"q1": 1, "q2": 1})
    exchange.count_traffic()
    found = [exchange.preview([message(str(n)) for n in range(10)]) for _ in range(2)]
    assert exchange.traffic is not None
    assert sum(exchange.traffic.counted().messages) == 0
    (groups, _), tally = found[0]
    assert tally is not None
    tally()
    counted = exchange.traffic.counted()
    assert counted.messages == [len(groups[exchange.placed()[name]]) for name in counted.names]
    built.unbind("e", "q2", "1")
    (_, tally) = found[1]
    assert tally is not None
    tally()
    assert exchange.traffic.counted().messages == [10]


def test_carbon_copies_do_not_change_what_is_hashed(built: Built) -> None:
    ring(built, {f"q{n}": 1 for n in range(5)})
    for key in map(str, range(50)):
        assert built.reached("e", key, {"CC": ["elsewhere"]}) == built.reached("e", key)


def test_a_key_goes_nowhere_without_bindings(built: Built) -> None:
    ring(built, {})
    lost = message("k")
    assert built.route("e", lost, plain=True).unroutable == [lost]
    assert built.route("e", lost).unroutable == [lost]


def test_unbinding_any_queue_moves_its_keys_only(built: Built) -> None:
    ring(built, {f"q{n}": n + 1 for n in range(6)})
    before = placed(built)
    built.unbind("e", "q2", "3")
    after = placed(built)
    assert all(after[key] == queue for key, queue in before.items() if queue != "q2")
    assert {after[key] for key, queue in before.items() if queue == "q2"} == {"q0", "q1", "q3", "q4", "q5"}


def test_binding_a_queue_moves_keys_to_it_only(built: Built) -> None:
    ring(built, {f"q{n}": 1 for n in range(9)})
    before = placed(built, 10_000)
    built.queue("new")
    built.bind("e", "new", "1")
    moved = [queue for key, queue in placed(built, 10_000).items() if queue != before[key]]
    assert set(moved) == {"new"}
    assert 900 < len(moved) < 1100


def test_ring_removal_shift_moves_the_buckets_above_down(built: Built) -> None:
    """A removal leaves the ring that the remaining queues alone would make, as in RabbitMQ."""
    ring(built, {f"q{n}": 1 for n in range(10)}, **{"ring-removal": "shift"})
    built.unbind("e", "q0", "1")
    ring(built, {f"q{n}": 1 for n in range(1, 10)}, "made-anew")
    assert placed(built) == placed(built, exchange="made-anew")


def test_of_two_bindings_the_first_gives_the_weight(built: Built) -> None:
    exchange = ring(built, {"q1": 2, "q2": 1})
    before = placed(built)
    built.bind("e", "q1", "9")
    assert dict(exchange.ring.destinations) == {"q1": 2, "q2": 1}
    assert placed(built) == before
    built.unbind("e", "q1", "9")
    assert placed(built) == before


def test_a_queue_stays_on_the_ring_until_its_last_binding_goes(built: Built) -> None:
    exchange = ring(built, {"q1": 2, "q2": 1})
    built.bind("e", "q1", "5")
    built.unbind("e", "q1", "2")
    assert dict(exchange.ring.destinations) == {"q2": 1, "q1": 5}
    built.unbind("e", "q1", "5")
    assert dict(exchange.ring.destinations) == {"q2": 1}


def test_a_queue_that_is_deleted_leaves_the_ring(built: Built) -> None:
    exchange = ring(built, {"q1": 1, "q2": 1})
    built.delete_queue("q1")
    assert set(placed(built).values()) == {"q2"}
    assert dict(exchange.ring.destinations) == {"q2": 1}


def test_a_queue_and_an_exchange_of_one_name_are_two_destinations(built: Built) -> None:
    ring(built, {"twin": 1, "exchange:twin": 1})
    built.exchange("twin", "fanout")
    built.queue("behind")
    built.bind("twin", "behind")
    built.feed("e", "twin", "1")
    assert set(placed(built).values()) == {"twin", "exchange:twin", "behind"}


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        ("heavy", 'The binding key must be an integer: <<"heavy">>'),
        ("x", 'The binding key must be an integer: <<"x">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        (" 1", 'The binding key must be an integer: <<" 1">>'),
        ("1_0", 'The binding key must be an integer: <<"1_0">>'),
        ('a"b', 'The binding key must be an integer: <<"a\\"b">>'),
        ("é", 'The binding key must be an integer: <<"é">>'),
        ("\u0663", 'The binding key must be an integer: <<"\u0663">>'),
        ("\u03c0", "The binding key must be an integer: <<207,128>>"),
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
        ("10001", "The binding key must not be greater than 10000"),
        ("9" * 200, "The binding key must not be greater than 10000"),
    ],
)
def test_a_weight_is_an_integer_from_1_to_10000(built: Built, weight: str, text: str) -> None:
    exchange = ring(built, {"q1": 1})
    built.queue("q2")
    with pytest.raises(PreconditionFailed) as refused:
        built.bind("e", "q2", weight)
    assert refused.value.text == text
    assert dict(exchange.ring.destinations) == {"q1": 1}
    assert len(exchange.bindings) == 1


@pytest.mark.parametrize(("key", "weight"), [("+3", 3), ("007", 7), ("10000", 10000)])
def test_a_weight_is_read_as_erlang_reads_integers(built: Built, key: str, weight: int) -> None:
    exchange = ring(built, {})
    built.queue("q")
    built.bind("e", "q", key)
    assert dict(exchange.ring.destinations) == {"q": weight}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash-header": "a", "hash-property": "message_id"}, "hash-header and hash-property are mutually exclusive"),
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        ({"hash-property": ""}, "Unsupported property: "),
        ({"hash-header": 1}, "invalid type 'signedint' for arg 'hash-header' in exchange 'e' in vhost '/'"),
        ({"hash-function": "md5"}, "Unsupported hash-function: md5; expected phash2, xxh64, murmur2 or murmur3"),
        ({"hash-function": ""}, "Unsupported hash-function: ; expected phash2, xxh64, murmur2 or murmur3"),
        ({"hash-function": 64}, "invalid type 'signedint' for arg 'hash-function' in exchange 'e' in vhost '/'"),
        ({"ring-removal": "none"}, "Unsupported ring-removal: none; expected minimal or shift"),
    ],
)
def test_arguments_that_make_no_ring(built: Built, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange("e", "x-consistent-hash", arguments)
    assert refused.value.text == text
    assert "e" not in built.vhost.exchanges


@pytest.mark.parametrize(("argument", "value"), [("ring-removal", "shift"), ("hash-function", "xxh64")])
def test_another_ring_is_another_exchange(built: Built, argument: str, value: str) -> None:
    ring(built, {}, **{argument: value})
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange("e", "x-consistent-hash")
    assert refused.value.text == (
        f"inequivalent arg '{argument}' for exchange 'e' in vhost '/': "
        f"received none but current is the value '{value}' of type 'longstr'"
    )


@pytest.mark.parametrize("function", NAMES[1:])
@pytest.mark.parametrize("arguments", [{}, {"hash-header": "h"}, {"hash-property": "message_id"}])
def test_an_exchange_decides_as_the_ring_with_its_function(
    built: Built, arguments: dict[str, Any], function: HashFunction
) -> None:
    exchange = ring(built, {"q1": 1, "q2": 2, "q3": 3}, **arguments, **{"hash-function": function})
    expected = HashRing(function=function)
    for queue, weight in {"q1": 1, "q2": 2, "q3": 3}.items():
        expected.add(queue, weight)
    assert exchange.ring.state() == expected.state()
    sent = {f"key {number}": number % 7 for number in range(100)}
    messages = [
        Message("e", key.encode(), Properties(message_id=key, headers=[Field("h", "I", number)]).encode(), b"")
        for key, number in sent.items()
    ]
    found = built.vhost.route("e", messages).queues
    for target, routed in found.items():
        for key in (one.routing_key for one in routed):
            assert expected.route(sent[key.decode()] if "hash-header" in arguments else key) == target.name
    assert sum(map(len, found.values())) == 100
    assert len(found) == 3
