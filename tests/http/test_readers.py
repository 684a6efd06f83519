"""Reader groups over HTTP: reservations are exclusive and durable, until acknowledged or expired."""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.store.test_damage import flip
from tests.waiting import punctually, until

import jumpmq
from jumpmq.broker.bulk import reader_groups
from jumpmq.spark.client import Client
from jumpmq.spark.options import SourceOptions
from jumpmq.store import Store
from jumpmq.store.kinds import READER_GROUP, RESERVATION
from jumpmq.testing import JumpMQ


def reserve(api: API, queues: dict[str, int | None], **wish: Any) -> dict[str, tuple[int, int]]:
    answer = api.post("readers", "/", "g", "reserve", body={"queues": queues, **wish})["queues"]
    return {name: (at["offset"], at["messages"]) for name, at in answer.items()}


def read(api: API, queue: str, upto: int, after: int | None = None) -> list[tuple[int, bytes, bool]]:
    """Sequence number, body and redelivered flag of reserved messages."""
    query = {"upto": upto} | ({} if after is None else {"after": after})
    table = api.table("readers", "/", "g", "queues", queue, "messages", **query)
    return list(zip(*(table[name].to_pylist() for name in ("seq", "body", "redelivered")), strict=True))


def rows(first: int, last: int) -> list[tuple[int, bytes, bool]]:
    return [(seq, b"%d" % seq, False) for seq in range(first, last + 1)]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % seq for seq in range(first, last + 1)]


@pytest.fixture
def queue(channel: BlockingChannel) -> str:
    """A durable queue with ten persistent messages."""
    channel.queue_declare("q", durable=True)
    publish(channel, "q", numbers(1, 10))
    return "q"


def test_reserve_read_acknowledge(api: API, queue: str) -> None:
    assert reserve(api, {"q": None}, max_messages=4) == {"q": (1, 4)}
    assert api.counts("q") == (6, 4)
    assert read(api, "q", 1) == read(api, "q", 1, after=0) == rows(1, 4)
    assert reserve(api, {"q": 1}, max_messages=4) == {"q": (2, 4)}
    assert api.counts("q") == (2, 4)
    assert read(api, "q", 2, after=1) == rows(5, 8)
    api.post("readers", "/", "g", "commit", body={"queues": {"q": 2}})
    assert api.counts("q") == (2, 0)
    (place,) = api.get("readers")
    shown = {
        "owner_epoch": place["owner_epoch"],
        "acknowledged": 2,
        "offset": 2,
        "messages": 0,
        "lapsed": False,
        "lease": 60.0,
        "ready": 2,
        "reservations": {},
    }
    assert api.get("readers", "/", "g") == {"queues": {"q": shown}}
    assert api.get("readers", "/") == [{"name": "g", "user": "guest", "queues": {"q": shown}}]


def test_a_session_that_takes_over_has_a_higher_owner_epoch(api: API, queue: str) -> None:
    def begin() -> str:
        return str(api.post("readers", "/", "g", "open", body={"query": "one", "lease": 60})["session"])

    def epoch(session: str) -> int:
        answer = api.post("readers", "/", "g", "reserve", body={"queues": {"q": None}, "session": session})
        return int(answer["queues"]["q"]["owner_epoch"])

    first = begin()
    before = epoch(first)
    assert epoch(first) == before == api.get("readers", "/", "g", session=first)["queues"]["q"]["owner_epoch"]
    second = begin()
    assert api.request("GET", "readers", "/", "g", params={"session": first}).status_code == 409
    assert before < api.get("readers", "/", "g", session=second)["queues"]["q"]["owner_epoch"] == epoch(second)


def test_nothing_new_is_the_same_offset(api: API, queue: str) -> None:
    assert reserve(api, {"q": 0}) == {"q": (1, 10)}
    assert reserve(api, {"q": 1}) == {"q": (1, 0)}
    assert reserve(api, {"q": 1}) == {"q": (1, 0)}


def test_what_is_reserved_but_not_acknowledged_counts_against_the_limit(api: API, queue: str) -> None:
    assert reserve(api, {"q": 0}, max_messages=4) == {"q": (1, 4)}
    assert reserve(api, {"q": 0}, max_messages=4) == {"q": (1, 4)}
    assert reserve(api, {"q": 0}, max_messages=6) == {"q": (2, 6)}
    assert read(api, "q", 2, after=0) == rows(1, 6)


@pytest.mark.parametrize(
    ("limit", "counts"),
    [(None, (3, 20, 20)), (43, (3, 20, 20)), (23, (3, 10, 10)), (6, (2, 2, 2)), (1, (0, 0, 1)), (0, (0, 0, 0))],
)
def test_a_limit_is_shared_evenly(
    api: API, channel: BlockingChannel, limit: int | None, counts: tuple[int, int, int]
) -> None:
    for name, count in {"a": 3, "b": 20, "c": 20}.items():
        channel.queue_declare(name, durable=True)
        publish(channel, name, numbers(1, count))
    reserved = reserve(api, {"a": None, "b": None, "c": None}, max_messages=limit)
    assert tuple(count for _, count in reserved.values()) == counts


def test_messages_beyond_a_bound_are_left(api: API, queue: str) -> None:
    assert reserve(api, {"q": None}, last_seq={"q": 3}) == {"q": (1, 3)}
    assert reserve(api, {"q": 1}, last_seq={"q": 3}) == {"q": (1, 0)}
    assert api.counts("q") == (7, 0)


def test_a_group_without_a_place_reads_nothing(api: API, queue: str) -> None:
    response = api.request("GET", "readers", "/", "g", "queues", "q", "messages", params={"upto": 1})
    assert response.status_code == 410
    assert response.json() == {"error": "gone", "reason": "reservation 1 of group 'g' in queue 'q' is not known"}


def test_acknowledged_reservations_are_gone(api: API, queue: str) -> None:
    reserve(api, {"q": 0})
    reserve(api, {"q": 1})
    response = api.request("GET", "readers", "/", "g", "queues", "q", "messages", params={"upto": 1, "after": 0})
    assert response.status_code == 410
    assert "is acknowledged already" in response.json()["reason"]


def test_release_gives_everything_back_in_its_place(api: API, channel: BlockingChannel, queue: str) -> None:
    reserve(api, {"q": 0}, max_messages=4)
    assert api.request("DELETE", "readers", "/", "g").status_code == 204
    assert api.counts("q") == (10, 0)
    assert api.get("readers", "/", "g") == {"queues": {}}
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(10)] == numbers(1, 10)


def test_a_consumer_gets_what_was_not_reserved(api: API, channel: BlockingChannel, queue: str) -> None:
    reserve(api, {"q": 0}, max_messages=4)
    assert channel.basic_get("q", auto_ack=True)[2] == b"5"


def test_a_silent_groups_messages_go_to_a_waiting_consumer_and_the_reservation_is_gone(
    api: API, broker: jumpmq.RunningBroker, channel: BlockingChannel, queue: str
) -> None:
    reserve(api, {"q": 0}, lease=0.5)
    method, _, body = next(channel.consume("q", inactivity_timeout=20))
    assert (method.redelivered, body) == (True, b"1")
    channel.basic_ack(method.delivery_tag)
    channel.connection.close()
    while api.counts("q") != (9, 0):
        time.sleep(0.01)
    response = api.request("GET", "readers", "/", "g", "queues", "q", "messages", params={"upto": 1, "after": 0})
    assert response.status_code == 410
    assert "has lapsed, and messages of it have left the queue" in response.json()["reason"]
    assert reserve(api, {"q": 0}) == {"q": (2, 9)}
    assert [seq for seq, _, _ in read(api, "q", 2, after=0)] == list(range(2, 11))


def test_a_lapsed_reservation_waits_for_what_rests_of_it(api: API, channel: BlockingChannel) -> None:
    retries = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000, "x-ordered-retries": True}
    channel.queue_declare("q", durable=True, arguments=retries)
    publish(channel, "q", numbers(1, 4))
    assert reserve(api, {"q": None}, lease=1.5) == {"q": (1, 4)}
    reserved = rows(1, 4)
    until(lambda: api.counts("q") == (4, 0))
    method, _, _ = channel.basic_get("q")
    channel.basic_nack(method.delivery_tag)
    until(lambda: api.get("queues", "/", "q")["messages_resting"] == 1)
    for _ in range(2):
        response = api.request("GET", "readers", "/", "g", "queues", "q", "messages", params={"upto": 1})
        assert (response.status_code, response.json()["error"]) == (503, "resting")
        assert "wait for a retry of their keys" in response.json()["reason"]
    api.post("queues", "/", "q", "retries", body={})
    until(lambda: api.counts("q") == (4, 0))
    assert read(api, "q", 1) == reserved


def test_a_lapsed_reservation_that_nobody_touched_is_read_as_before(api: API, queue: str) -> None:
    reserve(api, {"q": 0}, max_messages=4, lease=1.5)  # the lease restarts on every read
    until(lambda: api.counts("q") == (10, 0))
    assert api.get("readers", "/", "g")["queues"]["q"]["lapsed"]
    assert read(api, "q", 1, after=0) == rows(1, 4)
    assert api.counts("q") == (6, 4)


def test_a_lease_without_a_session_outlives_a_restart(tmp_path: Path) -> None:
    """The broker's default lease of a minute does not replace a longer or a shorter one."""
    with jumpmq.running(data_dir=tmp_path) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            connection.channel().queue_declare("q", durable=True)
            publish(connection.channel(), "q", numbers(1, 4))
        assert reserve(API(broker.http_url), {"q": None}, lease=2) == {"q": (1, 4)}
    with jumpmq.running(data_dir=tmp_path) as broker:
        api = API(broker.http_url)
        assert api.get("readers", "/", "g")["queues"]["q"]["lease"] == 2
        until(lambda: api.counts("q") == (4, 0))
        reserve(api, {"q": 1})
        assert api.get("readers", "/", "g")["queues"]["q"]["lease"] == 60


def test_renewing_keeps_a_lease(api: API, queue: str) -> None:
    def trial() -> None:
        api.request("DELETE", "readers", "/", "g")
        reserve(api, {"q": None}, lease=1)
        for _ in range(20):
            api.post("readers", "/", "g", "renew", body={})
            assert api.counts("q") == (0, 10)
            time.sleep(0.1)

    punctually(2.9, trial)


def test_a_deleted_queue_is_said(api: API, channel: BlockingChannel, queue: str) -> None:
    reserve(api, {"q": 0})
    channel.queue_delete("q")
    for path, query in (("messages", {"upto": 1}),):
        response = api.request("GET", "readers", "/", "g", "queues", "q", path, params=query)
        assert (response.status_code, response.json()["reason"]) == (404, "no queue 'q' in vhost '/'")


def test_a_queue_declared_anew_starts_anew(api: API, channel: BlockingChannel, queue: str) -> None:
    reserve(api, {"q": 0})
    channel.queue_delete("q")
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [b"1"])
    assert reserve(api, {"q": 7}) == {"q": (8, 1)}
    assert read(api, "q", 8, after=7) == rows(1, 1)


@pytest.mark.parametrize("end", [JumpMQ.stop, JumpMQ.kill])
def test_a_restarted_broker_serves_the_same_rows_and_brings_back_nothing(
    tmp_path: Path, end: Callable[..., int]
) -> None:
    """A broker restarted after a stop or a kill serves the same reserved rows, and no acknowledged row again."""
    with JumpMQ(tmp_path / "data") as process:
        api = API(f"http://127.0.0.1:{process.http_port}")
        with pika.BlockingConnection(pika.ConnectionParameters(port=process.port)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            publish(channel, "q", numbers(1, 10))
            channel.queue_declare("other", durable=True)
            reserve(api, {"q": None}, max_messages=3)
            reserve(api, {"q": 1}, max_messages=3)
            reserve(api, {"q": 2}, max_messages=2)
            before = read(api, "q", 3, after=2)
            assert before == rows(7, 8)
        end(process)
        process.start()
        api = API(f"http://127.0.0.1:{process.http_port}")
        assert api.counts("q") == (2, 2)
        assert read(api, "q", 3, after=2) == before
        assert reserve(api, {"q": 3}) == {"q": (4, 2)}
        assert [seq for seq, _, _ in read(api, "q", 4, after=3)] == [9, 10]
        api.post("readers", "/", "g", "commit", body={"queues": {"q": 4}})
        end(process)
        process.start()
        assert API(f"http://127.0.0.1:{process.http_port}").counts("q") == (0, 0)


def test_a_broker_that_keeps_nothing_reserves_too() -> None:
    with jumpmq.running() as broker, pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        publish(channel, "q", numbers(1, 3))
        api = API(broker.http_url)
        assert reserve(api, {"q": None}) == {"q": (1, 3)}
        assert read(api, "q", 1) == rows(1, 3)
        assert reserve(api, {"q": 1}) == {"q": (1, 0)}


def post(api: API, action: str, **body: Any) -> requests.Response:
    return api.request("POST", "readers", "/", "g", action, json=body)


def read_slices(api: API, *slices: Sequence[object], **body: Any) -> list[tuple[str, bytes]]:
    response = post(api, "read", slices=slices, columns=["queue", "body"], **body)
    assert response.status_code == 200, response.text
    table = pa.ipc.open_stream(response.content).read_all()
    assert response.headers["JumpMQ-Messages"] == str(len(table))
    return list(zip(table["queue"].to_pylist(), table["body"].to_pylist(), strict=True))


def test_one_request_reads_parts_of_several_queues(api: API, channel: BlockingChannel, queue: str) -> None:
    channel.queue_declare("p", durable=True)
    publish(channel, "p", numbers(1, 3))
    reserve(api, {"q": None, "p": None}, max_messages=6)
    reserve(api, {"q": None, "p": None}, max_messages=9)
    found = read_slices(api, ["q", 0, 2, 2, 3], ["p", None, 1, 0, None], ["q", 0, 2, 5, 100])
    assert found == [
        *[("q", body) for body in numbers(3, 5)],
        *[("p", body) for body in numbers(1, 3)],
        ("q", b"6"),
    ]


def test_any_part_of_long_reservations_is_read(api: API, channel: BlockingChannel) -> None:
    """Any range of a reservation of several pieces, in columnar layout, is readable; a range ends with the
    reservation.
    """
    channel.queue_declare("long")
    publish(channel, "long", numbers(1, 300))
    for upto in (1, 2, 3):
        reserve(api, {"long": None}, max_messages=100 * upto)
    for first, count in ((0, 300), (0, 100), (50, 100), (99, 2), (100, 100), (150, 1), (250, None), (290, 99)):
        expected = numbers(first + 1, 300 if count is None else min(first + count, 300))
        assert read_slices(api, ["long", 0, 3, first, count]) == [("long", body) for body in expected]


def test_octets_bound_a_reservation_and_a_larger_message_comes_alone(api: API, channel: BlockingChannel) -> None:
    for name, size in {"a": 10, "b": 100}.items():
        channel.queue_declare(name, durable=True)
        publish(channel, name, [b"x" * size] * 20)
    assert reserve(api, {"a": None, "b": None}, max_octets=500) == {"a": (1, 20), "b": (1, 3)}
    api.post("readers", "/", "g", "commit", body={"queues": {"a": 1, "b": 1}})
    assert reserve(api, {"b": 1}, max_octets=50) == {"b": (2, 1)}


def test_the_queues_of_an_exchange_are_added(api: API, channel: BlockingChannel, queue: str) -> None:
    channel.exchange_declare("x", "fanout")
    channel.exchange_declare("y", "fanout")
    channel.exchange_bind("y", "x")
    channel.exchange_bind("x", "y")
    channel.queue_bind("q", "y")
    assert reserve(api, {}, exchange="x") == {"q": (1, 10)}
    assert post(api, "reserve", exchange="nothing").json()["reason"] == "no exchange 'nothing' in vhost '/'"


def test_a_second_query_is_refused_while_the_first_is_alive_and_the_first_when_it_comes_back(
    api: API, queue: str
) -> None:
    first = post(api, "open", query="one", lease=60).json()["session"]
    refused = post(api, "open", query="two", lease=60)
    assert (refused.status_code, refused.json()["error"]) == (409, "in_use")
    for session in (None, "wrong"):
        assert post(api, "reserve", queues={"q": None}, session=session).status_code == 409
    assert post(api, "reserve", queues={"q": None}, session=first, lease=0.5, max_messages=2).status_code == 200
    while (second := post(api, "open", query="two", lease=60)).status_code == 409:
        time.sleep(0.05)
    assert post(api, "reserve", queues={"q": 1}, session=first).status_code == 409
    assert post(api, "commit", queues={"q": 1}, session=first).status_code == 409
    assert post(api, "renew", session=first).status_code == 409
    assert post(api, "reserve", queues={"q": None}, session=second.json()["session"]).status_code == 200


def test_a_restarted_query_takes_over_at_once(api: API, queue: str) -> None:
    first = post(api, "open", query="one", lease=60).json()["session"]
    again = post(api, "open", query="one", lease=60).json()["session"]
    assert post(api, "reserve", queues={"q": None}, session=first).status_code == 409
    assert post(api, "reserve", queues={"q": None}, session=again).status_code == 200


@pytest.mark.slow
def test_a_query_that_attends_is_gone_with_its_connection(api: API, queue: str) -> None:
    session = post(api, "open", query="one", lease=60).json()["session"]
    path = f"{api.address}/api/readers/%2F/g/attend"
    with requests.post(path, json={"session": session}, auth=api.session.auth, stream=True, timeout=30) as attended:
        assert attended.status_code == 200
        time.sleep(2.5)
        assert post(api, "open", query="two", lease=60).status_code == 409
    while post(api, "open", query="two", lease=60).status_code == 409:
        time.sleep(0.1)


def test_a_broker_that_stops_ends_the_answers_of_those_that_attend(tmp_path: Path) -> None:
    """A stopping broker ends the answers of `attend`; otherwise the stop would wait a second and cut the
    connections.
    """
    with jumpmq.running(data_dir=tmp_path) as broker:
        api = API(broker.http_url)
        session = post(api, "open", query="one", lease=60).json()["session"]
        path = f"{api.address}/api/readers/%2F/g/attend"
        attended = requests.post(path, json={"session": session}, auth=api.session.auth, stream=True, timeout=30)
    assert attended.content == b"\n"


def test_only_an_open_session_is_attended(api: API, queue: str) -> None:
    assert post(api, "attend").status_code == 400
    assert post(api, "attend", session="none").status_code == 412
    post(api, "open", query="one", lease=60)
    assert post(api, "attend", session="another").status_code == 409


def test_a_session_that_the_broker_forgot_is_said(api: API, queue: str) -> None:
    assert post(api, "reserve", queues={"q": None}, session="old").status_code == 412


def test_a_deleted_queue_is_lost_to_the_group_with_what_it_held(api: API, channel: BlockingChannel, queue: str) -> None:
    channel.queue_declare("drained", durable=True)
    publish(channel, "drained", numbers(1, 2))
    reserve(api, {"q": None, "drained": None})
    reserve(api, {"q": None, "drained": 1})
    for name in ("q", "drained"):
        channel.queue_delete(name)
    answer = post(api, "reserve", queues={"q": None, "drained": 1}).json()
    assert (answer["queues"], answer["lost"]) == ({}, {"q": 10, "drained": 0})
    assert post(api, "reserve", queues={"never": None}).status_code == 404
    assert post(api, "reserve", queues={"never": None}, accept_loss=True).json()["lost"] == {"never": None}
    assert post(api, "read", slices=[["q", 0, 1, 0, None]], columns=["body"]).status_code == 404
    assert read_slices(api, ["q", 0, 1, 0, None], accept_loss=True) == []


def test_a_silent_group_that_holds_nothing_is_forgotten(api: API, queue: str) -> None:
    session = post(api, "open", query="one", lease=60).json()["session"]
    assert post(api, "reserve", queues={"q": None}, session=session).status_code == 200
    assert post(api, "reserve", queues={"q": 1}, session=session, lease=0.3).status_code == 200
    while api.get("readers", "/"):
        time.sleep(0.05)
    assert reserve(api, {"q": 1}) == {"q": (1, 0)}


def test_queues_that_have_messages_and_no_reader_are_named(api: API, channel: BlockingChannel, queue: str) -> None:
    """Queues with messages and without a reader are named, also a queue bound and unbound before a query's first
    plan.
    """
    channel.exchange_declare("x", "fanout")
    for name in ("between", "consumed", "empty"):
        channel.queue_declare(name)
    channel.queue_bind("between", "x")
    channel.queue_bind(queue, "x")
    channel.basic_publish("x", "", b"")
    channel.queue_unbind("between", "x")
    channel.basic_publish("", "consumed", b"")
    assert len(api.get("unread", "/")) == 3
    channel.basic_consume("consumed", lambda *delivery: None)
    session = post(api, "open", query="one", lease=60).json()["session"]
    post(api, "reserve", queues={queue: None}, max_messages=1, session=session)
    assert api.get("unread", "/") == [{"name": "between", "ready": 1, "bound": False}]
    assert 'jumpmq_queues_unread{vhost="/"} 1' in api.session.get(f"{api.address}/metrics").text


@pytest.mark.parametrize(
    "slices", [None, ["q"], [["q"]], [["q", 0, 1, 0, -1]], [[1, 0, 1, 0, 1]], [["q", 0, "1", 0, 1]]]
)
def test_wrong_slices(api: API, queue: str, slices: list[str | list[object]] | None) -> None:
    assert post(api, "read", slices=slices).status_code == 400


def test_what_is_reserved_is_paged_where_memory_is_tight_and_read_as_it_was(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path / "data", memory_limit="8000000") as broker:
        api = API(broker.http_url)
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            bodies = [b"%d" % number + b"x" * 10_000 for number in range(600)]
            publish(channel, "q", bodies)
            assert reserve(api, {"q": None}) == {"q": (1, 600)}
            while api.get("queues", "/", "q")["memory"] > 4_000_000:
                time.sleep(0.05)
        for _ in range(2):
            assert [body for _, body, _ in read(api, "q", 1)] == bodies
        reserve(api, {"q": 1})
        assert api.counts("q") == (0, 0)


def test_a_broker_that_is_read_loads_no_pandas(tmp_path: Path) -> None:
    """Clients would wait for the import, which pyarrow makes at its first array."""
    assert find_spec("pandas") is not None
    with JumpMQ(tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
            connection.channel().queue_declare("q", durable=True)
            publish(connection.channel(), "q", numbers(1, 10))
        api = API(f"http://127.0.0.1:{broker.http_port}")
        assert reserve(api, {"q": None}) == {"q": (1, 10)}
        assert read(api, "q", 1) == rows(1, 10)
        loaded = Path(f"/proc/{broker.pid}/maps").read_text()
        assert "pyarrow" in loaded and "pandas" not in loaded


def test_damage_found_after_the_reservation_costs_the_damaged_block(tmp_path: Path) -> None:
    """A resting backlog stays on disk when it is reserved. A reader asks again for an answer that lacks rows."""
    with jumpmq.running(data_dir=tmp_path / "data") as broker:
        api = API(broker.http_url)
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            bodies = [b"%d" % number + b"x" * 100_000 for number in range(400)]
            publish(channel, "q", bodies)
        until(lambda: api.get("queues", "/", "q")["message_bytes_ram"] < 20_000_000)
        assert reserve(api, {"q": None}) == {"q": (1, 400)}
        assert api.get("queues", "/", "q")["message_bytes_ram"] < 20_000_000
        damaged = bodies[390][:50]
        (path,) = [path for path in tmp_path.glob("data/log/*.log") if damaged in path.read_bytes()]
        flip(path, path.read_bytes().index(damaged))
        first = post(api, "read", slices=[["q", 0, 1, 0, None]], columns=["queue", "seq", "body"])
        again = post(api, "read", slices=[["q", 0, 1, 0, None]], columns=["queue", "seq", "body"])
        found = pa.ipc.open_stream(again.content).read_all()["body"].to_pylist()
        assert (first.headers["JumpMQ-Messages"], again.headers["JumpMQ-Messages"]) == ("400", str(len(found)))
        assert first.content == again.content
        assert bodies[390] not in found and [body for body in bodies if body in found] == found
        assert 300 < len(found) < 400
        client = Client(SourceOptions.parse({"url": f"{broker.http_url}", "queue": "q"}).broker, met=True)
        batches = client.reserved("g", [["q", 0, 1, 0, 200], ["q", 0, 1, 200, None]], ["body"], accept_loss=False)
        assert [body for batch in batches for body in batch.column("body").to_pylist()] == found
        assert reserve(api, {"q": 1}) == {"q": (1, 0)}
        until(lambda: api.counts("q") == (0, 0))


@pytest.fixture
def other(broker: jumpmq.RunningBroker, api: API) -> API:
    """The API as a second user, with a read permission for a single queue."""
    api.request("PUT", "users", "other", json={"password": "p", "tags": "management"})
    api.request("PUT", "permissions", "/", "other", json={"configure": "", "write": "", "read": "^theirs$"})
    theirs = API(broker.http_url)
    theirs.session.auth = ("other", "p")
    return theirs


def test_a_group_is_its_users(api: API, channel: BlockingChannel, queue: str, other: API) -> None:
    """A group belongs to its user: a group of the same name of another user does not interfere."""
    channel.queue_declare("theirs")
    assert other.post("readers", "/", "g", "open", body={"query": "squatter", "lease": 86400})["session"]
    assert other.request("POST", "readers", "/", "g", "reserve", json={"queues": {"theirs": None}}).status_code == 409
    session = api.post("readers", "/", "g", "open", body={"query": "mine"})["session"]
    api.post("readers", "/", "g", "reserve", body={"queues": {queue: None}, "session": session})
    assert list(api.get("readers", "/", "g")["queues"]) == [queue]
    assert other.get("readers", "/", "g")["queues"] == {}
    assert [one["user"] for one in api.get("readers", "/")] == ["other", "guest"]
    assert [one["user"] for one in other.get("readers", "/")] == ["other"]


def test_an_administrator_releases_another_users_group(api: API, channel: BlockingChannel, other: API) -> None:
    channel.queue_declare("theirs")
    other.post("readers", "/", "g", "reserve", body={"queues": {"theirs": None}})
    assert api.request("DELETE", "readers", "/", "g", params={"user": "nobody"}).status_code == 404
    assert api.request("DELETE", "readers", "/", "g").status_code == 204
    assert api.get("readers", "/") == []


def test_who_may_read_nothing_opens_no_group_and_nobody_opens_many(
    api: API, other: API, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_groups, "MAX_GROUPS", 2)
    for name in ("a", "b"):
        other.post("readers", "/", name, "open", body={"query": "q"})
    refused = other.request("POST", "readers", "/", "c", "open", json={"query": "q"})
    assert (refused.status_code, "the user has 2 reader groups" in refused.text) == (400, True)
    other.post("readers", "/", "a", "open", body={"query": "q"})
    api.request("PUT", "permissions", "/", "other", json={"configure": "", "write": "", "read": ""})
    assert other.request("POST", "readers", "/", "a", "open", json={"query": "q"}).status_code == 401
    api.post("readers", "/", "a", "open", body={"query": "q"})


def test_a_group_of_an_earlier_version_is_gone_on_with(tmp_path: Path) -> None:
    """A group of an earlier version, recorded without a user, is continued."""
    with jumpmq.running(data_dir=tmp_path / "data") as broker:
        api = API(broker.http_url)
        api.request("PUT", "queues", "/", "q", json={"durable": True})
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            publish(connection.channel(), "q", numbers(1, 10))
        session = api.post("readers", "/", "g", "open", body={"query": "mine"})["session"]
        assert reserve(api, {"q": None}, max_messages=4, session=session) == {"q": (1, 4)}
    with contextlib.closing(Store.open(tmp_path / "data", on_commit=lambda number: None)) as store:
        for kind, key, record in store.definitions():
            if kind in (READER_GROUP, RESERVATION):
                store.delete(kind, key)
                is_place = kind == RESERVATION
                older = record | {"group" if is_place else "name": "g"}
                store.put(kind, f"{record['queue']} g" if is_place else json.dumps(["/", "g"]), older)
    with jumpmq.running(data_dir=tmp_path / "data") as broker:
        api = API(broker.http_url)
        assert reserve(api, {"q": 0}, max_messages=4, session=session) == {"q": (1, 4)}
        assert read(api, "q", 1) == rows(1, 4)
