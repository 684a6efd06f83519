"""Modulus hash exchanges: the hash of the routing keys modulo the number of destinations."""

import json
from pathlib import Path

import pytest
from tests.topology.built import Built, message

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.topology.exchanges.placement import restored

LINES = [
    json.loads(line) for line in (Path(__file__).parents[2] / "data" / "routing_keys.jsonl").read_text().splitlines()
]
MURMUR = [json.loads(line) for line in (Path(__file__).parents[2] / "data" / "murmur.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("size", [1, 2, 3, 10, 17, 128, 1000, 10000])
@pytest.mark.parametrize("plain", [True, False])
def test_routing_keys_go_where_rabbitmq_sends_them(built: Built, size: int, plain: bool) -> None:
    built.exchange("m", "x-modulus-hash")
    for number in reversed(range(size)):  # the order of binding does not matter
        built.queue(f"{number:05}")
        built.bind("m", f"{number:05}", "not a weight")
    routes = built.route("m", *[message(line["routing_key"]) for line in LINES], plain=plain)
    found = {one.routing_key.decode(): int(queue.name) for queue, messages in routes.queues.items() for one in messages}
    assert [found[line["routing_key"]] for line in LINES] == [line["modulus_hash"][str(size)] for line in LINES]


def test_carbon_copies_are_hashed_too(built: Built) -> None:
    """RabbitMQ 3.10.8 sends the keys k0 to k11, each without and with a CC header, to the queues of the table."""
    built.exchange("m", "x-modulus-hash")
    for queue in "ABC":
        built.queue(queue)
        built.bind("m", queue)
    found = ""
    for number in range(12):
        for headers in ({}, {"CC": [f"zz{number}"]}):
            found += "".join(built.reached("m", f"k{number}", headers))
    assert found == "CAAAABABBBABCACACAABACBB"


def test_exchanges_come_before_queues(built: Built) -> None:
    built.exchange("m", "x-modulus-hash")
    built.exchange("z", "fanout")
    for queue in ("a", "b", "behind"):
        built.queue(queue)
    built.bind("z", "behind")
    for queue in ("b", "a"):
        built.bind("m", queue)
    built.feed("m", "z")
    order = ["behind", "a", "b"]
    for line in LINES[:50]:
        assert built.reached("m", line["routing_key"]) == [order[line["modulus_hash"]["3"]]]


def test_two_bindings_count_once_and_nothing_bound_routes_nothing(built: Built) -> None:
    built.exchange("m", "x-modulus-hash")
    assert built.reached("m", "k") == []
    built.queue("a")
    built.bind("m", "a", "1")
    built.bind("m", "a", "2")
    built.unbind("m", "a", "1")
    assert built.reached("m", "k") == ["a"]
    built.unbind("m", "a", "2")
    assert len(built.route("m", message("k"), plain=True).unroutable) == 1


@pytest.mark.parametrize("plain", [True, False])
def test_a_header_takes_the_place_of_the_routing_key(built: Built, plain: bool) -> None:
    exchanges = [built.exchange("h", "x-modulus-hash", {"hash-header": "h"}), built.exchange("m", "x-modulus-hash")]
    for number in range(10):
        built.queue(f"{number}")
        for exchange in ("h", "m"):
            built.bind(exchange, f"{number}")

    def queue(exchange: str, sent: Message) -> str:
        ((found, _),) = built.route(exchange, sent, plain=plain).queues.items()
        return found.name

    for line in LINES[:50]:
        assert queue("h", message("same", {"h": line["routing_key"]})) == str(line["modulus_hash"]["10"])
    for number in range(50):
        assert queue("h", message("same", {"h": number})) == queue("m", message(f"{number}"))
    assert queue("h", message("same", {"other": 1})) == queue("h", message("k")) == queue("m", message())
    assert [exchange.missing_count for exchange in exchanges] == [2, 0]  # type: ignore[attr-defined]
    placement = exchanges[0].placement()
    assert placement is not None
    assert restored(json.loads(json.dumps(placement.state()))).places(
        [message("same", {"h": line["routing_key"]}) for line in LINES]
    ) == [line["modulus_hash"]["10"] for line in LINES]


def test_a_property_takes_the_place_of_the_routing_key(built: Built) -> None:
    built.exchange("m", "x-modulus-hash", {"hash-property": "message_id"})
    for number in range(3):
        built.queue(f"{number}")
        built.bind("m", f"{number}")
    for line in LINES[:50]:
        (found,) = built.route("m", message("same", message_id=line["routing_key"])).queues
        assert found.name == str(line["modulus_hash"]["3"])


def test_what_cannot_be_hashed_is_refused(built: Built) -> None:
    with pytest.raises(PreconditionFailed, match="mutually exclusive"):
        built.exchange("m", "x-modulus-hash", {"hash-header": "h", "hash-property": "message_id"})
    with pytest.raises(PreconditionFailed, match="Unsupported property: priority"):
        built.exchange("m", "x-modulus-hash", {"hash-property": "priority"})


@pytest.mark.parametrize(("function", "vector"), [("murmur2", "kafka"), ("murmur3", "super_stream")])
@pytest.mark.parametrize("plain", [True, False])
def test_partition_n_of_a_topic_or_super_stream_is_the_queue_of_that_number(
    built: Built, function: str, vector: str, plain: bool
) -> None:
    built.exchange("m", "x-modulus-hash", {"hash-function": function})
    for number in reversed(range(12)):
        built.queue(f"orders-{number}")
        built.bind("m", f"orders-{number}", str(number))
    found = built.vhost.exchanges["m"].placement()
    assert found is not None
    again = restored(json.loads(json.dumps(found.state())))
    for line in MURMUR:
        sent = Message("m", bytes.fromhex(line["key"]), b"\0\0", b"")
        ((queue, _),) = built.route("m", sent, plain=plain).queues.items()
        assert queue.name == f"orders-{line[vector] % 12}"
        assert again.names[again.place(sent.routing_key)] == queue.name
        assert [again.names[place] for place in again.places([sent])] == [queue.name]


def test_copies_do_not_count_with_the_functions_of_others(built: Built) -> None:
    built.exchange("m", "x-modulus-hash", {"hash-function": "murmur2"})
    for number in range(7):
        built.queue(f"q{number}")
        built.bind("m", f"q{number}")
    for number in range(40):
        assert built.reached("m", f"k{number}", {"CC": ["zz"]}) == built.reached("m", f"k{number}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("md5", "Unsupported hash-function: md5; expected phash2, xxh64, murmur2 or murmur3"),
        (2, "invalid type 'signedint' for arg 'hash-function' in exchange 'm' in vhost '/'"),
    ],
)
def test_an_unknown_function_is_refused(built: Built, value: object, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange("m", "x-modulus-hash", {"hash-function": value})
    assert refused.value.text == text
