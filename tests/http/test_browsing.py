"""Messages are browsed by number, time, key, header and text, without removal, and moved by the same criteria."""

import time
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from requests import Response
from tests.http.api import API
from tests.waiting import until

from jumpmq.broker.bulk import searching

KINDS = ["classic", "quorum", "stream"]
COUNT = 30


@pytest.fixture(params=KINDS)
def filled(request: pytest.FixtureRequest, api: API, channel: BlockingChannel) -> tuple[str, int]:
    """A queue of every kind with thirty messages, every third with a header. Return its name and first number."""
    name, first = request.param, int(request.param != "stream")
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": name})
    channel.exchange_declare("x", "fanout")
    channel.queue_bind(name, "x")
    channel.confirm_delivery()
    for number in range(COUNT):
        headers = {"customer": f"acme-{number}", "size": number} if number % 3 == 0 else {"other": "customer"}
        properties = pika.BasicProperties(headers=headers, delivery_mode=2, content_type="text/plain")
        if number == 7:
            properties.correlation_id, properties.timestamp = "acme-7", 1234567890
        channel.basic_publish("x", f"key-{number % 2}", b"number %d." % number, properties)
    until(lambda: api.counts(name) == (COUNT, 0))
    return name, first


def numbers(api: API, queue: str, **query: Any) -> list[int]:
    """The numbers in the bodies of the found messages."""
    return [int(one["payload"].split()[1][:-1]) for one in api.get("queues", "/", queue, "browse", **query)["messages"]]


def move(api: API, source: str, **body: Any) -> Response:
    return api.request("POST", "queues", "/", source, "contents", "move", json=body)


def test_all_that_is_known_of_a_message(api: API, filled: tuple[str, int]) -> None:
    name, first = filled
    answer = api.get("queues", "/", name, "browse", count=1, truncate=6)
    (message,) = answer["messages"]
    assert abs(message.pop("published_at") - time.time()) < 60
    assert message == {
        "seq": first,
        "payload_bytes": 9,
        "redelivered": False,
        "exchange": "x",
        "routing_key": "key-0",
        "properties": {
            "headers": {"customer": "acme-0", "size": 0},
            "delivery_mode": 2,
            "content_type": "text/plain",
        },
        "payload": "number",
        "payload_encoding": "string",
    }
    assert (answer["next"], answer["searched"], answer["last_seq"]) == (first + 1, 1, first + COUNT - 1)
    assert api.counts(name) == (COUNT, 0), "nothing is taken"


def test_they_are_found(api: API, filled: tuple[str, int]) -> None:
    for query, found in (
        ({}, range(COUNT)),
        ({"key": "key-1"}, range(1, COUNT, 2)),
        ({"key": "key"}, []),
        ({"header": "customer"}, range(0, COUNT, 3)),
        ({"header": "customer", "value": "acme-9"}, [9]),
        ({"header": "size", "value": "12"}, [12]),
        ({"header": "size", "value": "1"}, []),
        ({"text": "number 2"}, [2, *range(20, 30)]),
        ({"text": "number 2", "key": "key-0", "header": "customer"}, [24]),
        ({"since": time.time() - 3600, "text": "7."}, [7, 17, 27]),
        ({"since": time.time() + 3600}, []),
    ):
        assert numbers(api, filled[0], **query) == list(found), query


def test_a_range_goes_on_where_the_last_answer_ended(api: API, filled: tuple[str, int]) -> None:
    name, first = filled
    assert numbers(api, name, **{"from": first + 5, "to": first + 7}) == [5, 6, 7]
    seen, position = [], 0
    while position is not None:
        answer = api.get("queues", "/", name, "browse", count=7, **{"from": position})
        seen += [one["seq"] for one in answer["messages"]]
        position = answer["next"]
    assert seen == list(range(first, first + COUNT))


def test_a_request_looks_at_a_bounded_number_of_messages(
    api: API, filled: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "MAX_SEARCHED", 10)
    name, first = filled
    answer = api.get("queues", "/", name, "browse", text="number 15")
    assert (answer["messages"], answer["searched"], answer["next"]) == ([], 10, first + 10)
    answer = api.get("queues", "/", name, "browse", text="number 15", **{"from": answer["next"]})
    assert [one["seq"] for one in answer["messages"]] == [first + 15]
    monkeypatch.setattr(searching, "MAX_OCTETS", 1)
    assert api.get("queues", "/", name, "browse")["searched"] == 1


def test_by_number_whatever_the_priority(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 5})
    for number in range(9):
        channel.basic_publish("", "ranked", b"number %d." % number, pika.BasicProperties(priority=number % 3))
    until(lambda: api.counts("ranked") == (9, 0))
    assert numbers(api, "ranked", count=4) == [0, 1, 2, 3]
    assert numbers(api, "ranked", **{"from": 5}) == [4, 5, 6, 7, 8]


def test_by_what_hash_exchanges_may_hash_of_the_properties(api: API, filled: tuple[str, int]) -> None:
    assert numbers(api, filled[0], property="correlation_id", value="acme-7") == [7]
    assert numbers(api, filled[0], property="timestamp", value="1234567890") == [7]
    assert numbers(api, filled[0], property="message_id", value="acme-7") == []
    oldest = until(lambda: api.get("queues", "/", filled[0]).get("head_published_at", 0) or filled[0] == "stream")
    assert filled[0] == "stream" or abs(oldest - time.time()) < 600


def test_what_makes_no_sense_is_refused(api: API, filled: tuple[str, int]) -> None:
    for query, reason in (
        ({"value": "x"}, "'value' needs a 'header' or a 'property'"),
        ({"property": "correlation_id"}, "'property' needs a 'value'"),
        ({"property": "app_id", "value": "x"}, "'property'"),
        ({"property": "message_id", "header": "h", "value": "x"}, "both are given"),
        ({"from": "-1"}, "'from' must be a whole number"),
        ({"since": "yesterday"}, "'since' must be a number of seconds"),
        ({"count": "1001"}, "'count' must be a whole number from 0 to 1000"),
        ({"like": "x"}, "unknown key 'like'"),
    ):
        answer = api.request("GET", "queues", "/", filled[0], "browse", params=query)
        assert (answer.status_code, reason in answer.json()["reason"]) == (400, True), answer.text
    assert api.request("GET", "queues", "/", "none", "browse").status_code == 404


def test_browsing_needs_the_permission_to_read(api: API, filled: tuple[str, int]) -> None:
    api.request("PUT", "users", "clerk", json={"password": "secret", "tags": "management"})
    clerk = API(api.address.replace("//", "//clerk:secret@"))
    for read, status in (("^other$", 401), (f"^{filled[0]}$", 200)):
        api.request("PUT", "permissions", "/", "clerk", json={"configure": "", "write": "", "read": read})
        assert clerk.request("GET", "queues", "/", filled[0], "browse").status_code == status


MOVABLE = pytest.mark.parametrize("filled", ["classic", "quorum"], indirect=True)


@pytest.fixture
def source(channel: BlockingChannel, filled: tuple[str, int]) -> str:
    """A queue of a kind that supports moves, and an empty target."""
    channel.queue_declare("target", durable=True)
    return filled[0]


@MOVABLE
def test_a_selection_is_moved_by_numbers(api: API, source: str) -> None:
    wanted = [2, 3, 4, 10, 29, 30, 77]
    assert move(api, source, queue="target", numbers=wanted).json() == {"moved": 6, "kept": {}}
    until(lambda: api.counts(source) == (COUNT - 6, 0))
    assert numbers(api, "target") == [1, 2, 3, 9, 28, 29]
    assert numbers(api, source) == [0, *range(4, 9), *range(10, 28)]
    assert move(api, source, queue="target", numbers=wanted).json() == {"moved": 0, "kept": {}}


@MOVABLE
def test_what_a_search_finds_is_moved(api: API, source: str) -> None:
    asked = {"queue": "target", "header": "customer", "key": "key-1"}
    assert move(api, source, **asked, count=2).json() == {"moved": 2, "kept": {}, "next": 11}
    assert move(api, source, **asked, **{"from": 11}).json() == {"moved": 3, "kept": {}, "next": None}
    assert numbers(api, "target") == [3, 9, 15, 21, 27]
    assert numbers(api, source) == [number for number in range(COUNT) if number % 6 != 3]


@MOVABLE
def test_a_selection_that_is_refused_stays_in_its_place(api: API, channel: BlockingChannel, source: str) -> None:
    channel.queue_declare("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    answer = move(api, source, queue="full", numbers=[5, 6, 7]).json()
    assert (answer["moved"], sum(answer["kept"].values())) == (1, 2)
    until(lambda: api.counts(source) == (COUNT - 1, 0))
    assert numbers(api, "full") == [4]
    assert numbers(api, source) == [number for number in range(COUNT) if number != 4]


@MOVABLE
def test_a_selection_that_makes_no_sense(api: API, source: str) -> None:
    for body, reason in (
        ({"numbers": [1], "key": "key-1"}, "'numbers' excludes all other conditions"),
        ({"numbers": [-1]}, "'numbers' must be a list of at most 10000 whole numbers"),
        ({"numbers": [True]}, "'numbers' must be a list"),
        ({"numbers": "1"}, "'numbers' must be a list"),
        ({"numbers": list(range(10_001))}, "too many numbers"),
    ):
        answer = move(api, source, queue="target", **body)
        assert (answer.status_code, reason in answer.json()["reason"]) == (400, True), answer.text
    assert api.counts(source) == (COUNT, 0)
