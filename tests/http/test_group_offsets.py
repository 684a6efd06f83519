"""Offsets of consumer groups in streams over HTTP."""

import time
from typing import Any

import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def stream(channel: BlockingChannel) -> str:
    channel.queue_declare("s", durable=True, arguments=STREAM)
    publish(channel, "s", [b"0", b"1", b"2", b"3"])
    return "s"


def put(api: API, body: dict[str, Any], stream: str = "s", group: str = "g") -> requests.Response:
    return api.request("PUT", "group-offsets", "/", stream, group, json=body)


def offset(api: API) -> int:
    (found,) = api.get("group-offsets", "/")
    return int(found["offset"])


def test_an_offset_is_set_shown_and_deleted(api: API, stream: str) -> None:
    assert api.get("group-offsets") == []
    assert put(api, {"offset": 3}).status_code == 201
    assert api.get("group-offsets") == [
        {"vhost": "/", "queue": "s", "group": "g", "offset": 3, "end": 4, "lag": 1, "ready": 1, "unacknowledged": 0}
        | {"skipped": 0, "members": False}
    ]
    metrics = requests.get(f"{api.address}/metrics", auth=("guest", "guest"), timeout=30).text
    label = '{vhost="/",queue="s",group="g"}'
    for line in (
        f"jumpmq_group_stream_offset{label} 3",
        f"jumpmq_group_stream_lag_messages{label} 1",
        f"jumpmq_group_stream_skipped_messages_total{label} 0",
    ):
        assert line in metrics
    assert api.request("DELETE", "group-offsets", "/", "s", "g").status_code == 204
    assert api.get("group-offsets") == []
    missing = api.request("DELETE", "group-offsets", "/", "s", "g")
    assert (missing.status_code, missing.json()["reason"]) == (
        404,
        "consumer group 'g' has no offset in stream 's' in vhost '/'",
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"offset": "first"}, 0),
        ({"offset": "next"}, 4),
        ({"offset": 2}, 2),
        ({"offset": "2"}, 2),
        ({"offset": 1000}, 4),
        ({"offset": "1h"}, 0),
        ({"timestamp": 0}, 0),
        ({"timestamp": 32_000_000_000.5}, 4),
    ],
)
def test_where_a_group_may_go_on(api: API, stream: str, body: dict[str, Any], expected: int) -> None:
    assert put(api, body).status_code == 201
    assert offset(api) == expected
    assert put(api, {"offset": "last"}).status_code == 204
    assert 0 <= offset(api) < 4


def test_a_time_is_that_of_publishing(api: API, channel: BlockingChannel, stream: str) -> None:
    time.sleep(0.01)
    between = time.time()
    publish(channel, "s", [b"4"])
    assert put(api, {"timestamp": between}).status_code == 201
    assert offset(api) == 4


@pytest.mark.parametrize(
    "body",
    [
        {}, {"offset": "middle"}, {"offset": -1}, {"offset": True}, {"offset": 1.5}, {"offset": ["first"]},
        {"offset": "99999999999999999999999"}, {"timestamp": -1}, {"timestamp": "now"}, {"offset": 1, "timestamp": 1},
    ],
)  # fmt: skip
def test_where_it_may_not(api: API, stream: str, body: dict[str, Any]) -> None:
    assert put(api, body).status_code == 400
    assert api.get("group-offsets") == []


def test_only_streams_keep_offsets(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("plain")
    refused = put(api, {"offset": 1}, "plain")
    assert (refused.status_code, "only streams keep offsets" in refused.json()["reason"]) == (400, True)
    assert put(api, {"offset": 1}, "none").status_code == 404


def test_who_may_not_read_the_stream_neither_sees_nor_sets(api: API, stream: str) -> None:
    assert put(api, {"offset": 1}).status_code == 201
    api.request("PUT", "users", "other", json={"password": "other", "tags": "management"})
    other = API(api.address.replace("//", "//other:other@"))
    for read, shown, status in (("^none$", 0, 401), ("^s$", 1, 204)):
        api.request("PUT", "permissions", "/", "other", json={"configure": "", "write": ".*", "read": read})
        assert len(other.get("group-offsets")) == len(other.get("group-offsets", "/")) == shown
        assert put(other, {"offset": 2}).status_code == status
        assert other.request("DELETE", "group-offsets", "/", "s", "g").status_code == status


@pytest.mark.slow
def test_a_thousand_groups_have_an_offset_in_a_stream_at_most(api: API, stream: str) -> None:
    with requests.Session() as session:
        session.auth = ("guest", "guest")
        url = f"{api.address}/api/group-offsets/%2F/s"
        for number in range(1000):
            assert session.put(f"{url}/{number}", json={"offset": 1}, timeout=30).status_code == 201
        refused = session.put(f"{url}/more", json={"offset": 1}, timeout=30)
    assert (refused.status_code, "delete those that are not used" in refused.json()["reason"]) == (400, True)
