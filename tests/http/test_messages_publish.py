"""Publishing Arrow streams: complete, on disk, and once; malformed streams are refused."""

import contextlib
import json
import random
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pika
import pyarrow as pa
import pytest
import requests
from fuzzing import arrow
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.publishing import publish, stream, write, written

import jumpmq
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.broker.bulk.bulk_publishing import MAX_COPIES
from jumpmq.http.plumbing.arrow_messages import MAX_ROWS
from jumpmq.store import Store
from jumpmq.testing import JumpMQ


def answered(
    published: int = 0, unroutable: int = 0, refused: int = 0, undelivered: int = 0, repeated: bool = False
) -> dict[str, int | bool]:
    counts = {"published": published, "unroutable": unroutable, "refused": refused, "undelivered": undelivered}
    return counts | {"repeated": repeated}


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    return [body for _, _, body in iter(lambda: channel.basic_get(queue, auto_ack=True), (None, None, None))]


@pytest.fixture
def queue(channel: BlockingChannel) -> str:
    channel.queue_declare("q", durable=True)
    return "q"


def test_messages_are_as_they_were_published(api: API, channel: BlockingChannel, queue: str) -> None:
    channel.exchange_declare("x", "topic", durable=True)
    channel.queue_bind("q", "x", "#")
    sent = Properties(message_id="m", delivery_mode=2).encode()
    octets = stream(body=[b"1", b"2"], routing_key=[b"a", b"b"], properties=[sent, None])
    assert publish(api, octets, exchange="x", persistent="true").json() == answered(published=2)
    first, second = (channel.basic_get("q") for _ in range(2))
    assert (first[0].exchange, first[0].routing_key, first[1].message_id, first[2]) == ("x", "a", "m", b"1")
    assert (second[0].routing_key, second[1].delivery_mode, second[2]) == ("b", 2, b"2")


@pytest.mark.parametrize(("query", "left"), [({}, [0, 1, 2, 3, 4]), ({"persistent": "false"}, [])])
def test_rows_without_a_delivery_mode_outlive_a_restart_unless_told_otherwise(
    tmp_path: Path, query: dict[str, str], left: list[int]
) -> None:
    sent = [None, b"", Properties().encode(), Properties(headers=[Field("h", "S", "v")]).encode()]
    sent += [Properties(content_type="t", message_id="m").encode(), Properties(delivery_mode=1).encode()]
    octets = stream(body=[b"%d" % number for number in range(len(sent))], properties=sent)
    with jumpmq.running(data_dir=tmp_path) as broker:
        api = API(broker.http_url)
        api.request("PUT", "queues", "/", "q", json={"durable": True})
        assert publish(api, octets, queue="q", **query).json() == answered(published=len(sent))
    with (
        jumpmq.running(data_dir=tmp_path) as broker,
        pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection,
    ):
        assert bodies(connection.channel(), "q") == [b"%d" % number for number in left]


def test_rows_may_name_exchange_and_queue(api: API, channel: BlockingChannel, queue: str) -> None:
    channel.queue_declare("p")
    octets = stream(
        body=[b"1", b"2", b"3"], routing_key=[b"q", b"key", None], exchange=["", None, None], queue=[None, "p", None]
    )
    assert publish(api, octets, queue="q").json() == answered(published=3)
    assert bodies(channel, "q") == [b"1", b"3"]
    method, _, body = channel.basic_get("p")
    assert (method.routing_key, body) == ("key", b"2")


def test_what_reaches_no_queue_fails_before_anything_is_published_or_is_dropped(
    api: API, channel: BlockingChannel, queue: str
) -> None:
    octets = stream(body=[b"1", b"2"], routing_key=[b"q", b"nothing"])
    refused = publish(api, octets, exchange="")
    assert refused.status_code == 400
    assert "312 NO_ROUTE - 1 messages to exchange '' reach no queue, one of them with key 'nothing'" in refused.text
    assert api.counts("q") == (0, 0)
    assert publish(api, octets, exchange="", unroutable="drop").json() == answered(published=1, unroutable=1)
    assert publish(api, octets, queue="no", unroutable="drop").json() == answered(unroutable=2)


def test_a_full_queue_refuses(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    assert publish(api, stream(body=[b"1", b"2", b"3"]), queue="full").json() == answered(published=1, refused=2)


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"", "the body is no Arrow stream"),
        (b"\0" * 100, "the body is no Arrow stream"),
        (stream(routing_key=[b"a"]), "the stream has no column 'body'"),
        (stream(body=[b"1"], colour=[b"red"]), "column 'colour' of type binary is none of"),
        (stream(body=[b"1"]), "a row has no routing key"),
        (stream(body=[None], routing_key=[b"q"]), "a row has no body"),
        (stream(body=[b"1"], routing_key=[b"k" * 256]), "a row's routing key has more than 255 octets"),
        (
            stream(body=[b"1"], routing_key=[b"k"], properties=[b"p" * 131053]),
            "have 131053 octets; AMQP sends them in one",
        ),
        (stream(body=[b"1"], queue=["é" * 128]), "a row's queue has more than 255 octets"),
        (stream(body=[b"1"], exchange=["x" * 256], routing_key=[b"k"]), "a row's exchange has more than 255 octets"),
        (
            stream(body=[b"1"], routing_key=[b"q"], properties=[b"\xff\xff\xff"]),
            "properties of a message are malformed",
        ),
    ],
)
def test_what_cannot_be_published_is_said(api: API, queue: str, octets: bytes, reason: str) -> None:
    response = publish(api, octets, exchange="")
    assert (response.status_code, reason in response.json()["reason"]) == (400, True)
    assert api.counts("q") == (0, 0)


def test_no_queue_gets_a_routing_key_that_no_frame_can_hold(api: API, channel: BlockingChannel, queue: str) -> None:
    channel.exchange_declare("lost", "fanout")
    channel.queue_bind("q", "lost")
    response = publish(api, stream(body=[b"1"]), queue="n" * 256, **{"undelivered-to": "lost"})
    assert (response.status_code, response.json()["reason"]) == (400, "'queue' has more than 255 octets")
    response = publish(api, stream(body=[b"1"], queue=["n" * 256]), exchange="x", **{"undelivered-to": "lost"})
    assert response.status_code == 400
    assert publish(api, stream(body=[b"2"]), queue="n" * 255, **{"undelivered-to": "lost"}).status_code == 200
    assert bodies(channel, "q") == [b"2"]


def of_octets(name: str = "body", values: Sequence[bytes] = (b"1",)) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, pa.binary())})


TWICE = pa.record_batch([pa.array([b"1"]), pa.array([b"2"])], names=["body", "body"])
FAR = stream(body=[b"a" * 40, b"b"], queue=["q", "q"])
BEHIND_ITS_OCTETS = FAR.replace(struct.pack("<iii", 0, 40, 41), struct.pack("<iii", 0, 40, 1 << 24))
BEFORE_THEM = FAR.replace(struct.pack("<iii", 0, 40, 41), struct.pack("<iii", 0, -(1 << 24), 41))


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (BEHIND_ITS_OCTETS, "the body is no Arrow stream"),
        (BEFORE_THEM, "the body is no Arrow stream"),
        (stream(body=[b"1"], queue=["\uffff"]).replace("\uffff".encode(), b"\xff\xff\xff"), "Invalid UTF8"),
        (written(TWICE), "the stream has several columns 'body'"),
        (written(of_octets(values=[b"1" * 1000]), compression="zstd"), "buffers are compressed"),
        (written(of_octets(values=[b"1" * 1000]), compression="lz4"), "buffers are compressed"),
        (written(of_octets(values=[b""] * (MAX_ROWS + 1))), f"the stream has more than {MAX_ROWS} rows"),
        (written(of_octets()).replace(b"body", b"\xffody"), "the body is no Arrow stream"),
        (written(of_octets())[:100], "the body is no Arrow stream"),
    ],
)
def test_a_malformed_stream_is_refused_and_read_no_further(
    api: API, channel: BlockingChannel, queue: str, octets: bytes, reason: str
) -> None:
    response = publish(api, octets, queue="q")
    assert (response.status_code, reason in response.json()["reason"]) == (400, True), response.text
    assert api.counts("q") == (0, 0)


def test_damaged_streams_neither_crash_nor_show_memory_that_is_not_theirs() -> None:
    assert arrow.fuzz(seed=random.randrange(1 << 30), count=2000) == []


@pytest.mark.parametrize(
    ("write", "query"),
    [("", {}), ("", {"exchange": "x"}), ("^$", {}), ("^other$", {"exchange": "x"}), ("^x$", {"queue": "q"})],
)
def test_rights_are_looked_at_before_the_stream_is(
    broker: jumpmq.RunningBroker, api: API, write: str, query: dict[str, str]
) -> None:
    api.request("PUT", "users", "u", json={"password": "p", "tags": "management"})
    api.request("PUT", "permissions", "/", "u", json={"configure": "", "write": write, "read": ""})
    theirs = API(broker.http_url)
    theirs.session.auth = ("u", "p")
    assert publish(theirs, b"no stream", **query).status_code == 401


def with_headers(*fields: Field) -> bytes:
    return Properties(headers=list(fields)).encode()


def test_blind_copies_arrive_without_their_header(api: API, channel: BlockingChannel, queue: str) -> None:
    channel.queue_declare("blind")
    octets = stream(
        body=[b"1"],
        routing_key=[b"q"],
        properties=[with_headers(Field("BCC", "A", [("S", "blind")]), Field("n", "I", 1))],
    )
    assert publish(api, octets, exchange="").json() == answered(published=1)
    assert [channel.basic_get(name)[1].headers for name in ("q", "blind")] == [{"n": 1}, {"n": 1}]


@pytest.mark.parametrize("unroutable", ["fail", "drop"])
def test_a_malformed_row_is_refused_before_any_is_published(api: API, queue: str, unroutable: str) -> None:
    good, bad = with_headers(), with_headers(Field("CC", "S", "q"))
    octets = stream(body=[b"1", b"2"], routing_key=[b"q", b"q"], properties=[good, bad])
    refused = publish(api, octets, exchange="", unroutable=unroutable)
    assert (refused.status_code, "unacceptable_type_in_header" in refused.text) == (400, True)
    assert api.counts("q") == (0, 0)


def test_keys_are_counted_once_and_only_when_they_are_published(api: API, channel: BlockingChannel, queue: str) -> None:
    arguments = {"hash-header": "h"}
    channel.exchange_declare("x", "x-consistent-hash", durable=True, arguments=arguments)
    assert publish(api, stream(body=[b"1"], routing_key=[b"a"]), exchange="x").status_code == 400
    channel.queue_bind("q", "x", "1")
    octets = stream(body=[b"1", b"2"], routing_key=[b"a", b"b"], exchange=["x", ""])
    assert publish(api, octets).status_code == 400, "the second row reaches no queue"
    assert api.get("exchanges", "/", "x", "ring", "traffic")["missing_since_start"] == 0
    assert publish(api, stream(body=[b"1"], routing_key=[b"a"]), exchange="x").json() == answered(published=1)
    assert api.get("exchanges", "/", "x", "ring", "traffic")["missing_since_start"] == 1


class Writers(Protocol):
    def __call__(self, name: str, write: str = ".*") -> API: ...


@pytest.fixture
def writers(broker: jumpmq.RunningBroker, api: API) -> Writers:
    """A function that returns the API as a new user with a write permission."""

    def made(name: str, write: str = ".*") -> API:
        api.request("PUT", "users", name, json={"password": "p", "tags": "management"})
        api.request("PUT", "permissions", "/", name, json={"configure": "", "write": write, "read": ""})
        theirs = API(broker.http_url)
        theirs.session.auth = (name, "p")
        return theirs

    return made


def test_attempts_at_the_same_time_publish_a_chunk_once(broker: jumpmq.RunningBroker, api: API, queue: str) -> None:
    """Concurrent attempts publish a chunk once, also if a rate limit delays the publishing after the duplicate
    check.
    """
    api.request("PUT", "user-limits", "guest", "max-publish-rate", json={"value": 1000})
    write(api, writer="other", rows=1500)
    refused = publish(api, stream(body=[b"1"] * 8193, routing_key=[b"q"] * 8193), exchange="")
    assert (refused.status_code, "publish fewer at once" in refused.text) == (413, True)
    with ThreadPoolExecutor(3) as attempts:
        found = [one.json() for one in attempts.map(lambda _: write(API(broker.http_url), rows=300), range(3))]
    assert sorted(one["repeated"] for one in found) == [False, True, True]
    assert api.counts("q") == (1800, 0)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_of_a_chunk_that_a_full_queue_refuses_no_queue_gets_any(api: API, channel: BlockingChannel, kind: str) -> None:
    """A refused chunk is not recorded, so that a retry would duplicate a partly published chunk."""
    channel.queue_declare("q", durable=True)
    limits = {"x-max-length": 3, "x-overflow": "reject-publish", "x-queue-type": kind}
    channel.queue_declare("full", durable=True, arguments=limits)
    channel.exchange_declare("x", "fanout", durable=True)
    for name in ("q", "full"):
        channel.queue_bind(name, "x")

    def chunk(first: int, rows: int) -> Any:
        place = {"writer": "w", "batch": 0, "first": first, "rows": first + rows, "digest": f"d{first}"}
        return publish(api, stream(body=[b"b"] * rows, routing_key=[b""] * rows), exchange="x", **place).json()

    assert chunk(0, 2) == answered(published=2)
    assert chunk(2, 3) == answered(refused=2)
    assert [api.counts(name)[0] for name in ("q", "full")] == [2, 2]
    assert chunk(2, 1) == answered(published=1)
    assert chunk(3, 2) == answered(refused=2)
    channel.queue_purge("full")
    assert chunk(3, 2) == answered(published=2)
    assert [api.counts(name)[0] for name in ("q", "full")] == [5, 2]


def test_what_is_unroutable_or_refused_goes_elsewhere_in_the_same_commit(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_declare("lost", arguments={"x-max-length": 4, "x-overflow": "reject-publish"})
    channel.exchange_declare("instead", "fanout")
    octets = stream(
        body=[b"1", b"2", b"3"],
        routing_key=[b"full", b"full", b"nothing"],
        properties=[None, with_headers(Field("n", "I", 1), Field("CC", "A", [("S", "full")])), None],
    )

    def sent(first: int) -> requests.Response:
        place = {"writer": "w", "batch": 0, "first": first, "rows": first + 3, "digest": f"d{first}"}
        return publish(api, octets, exchange="", **{"undelivered-to": "instead"}, **place)

    assert "and reach no queue there" in sent(0).text
    assert api.get("messages", "/", "writers", "w")["batch"] is None
    channel.queue_bind("lost", "instead")
    assert sent(0).json() == answered(published=1, undelivered=2)
    assert sent(0).json() == answered(repeated=True)
    assert sent(3).json() == answered(refused=2), "as the other queue has no room either, none is published"
    assert api.counts("full")[0] == 1
    letters = [channel.basic_get("lost", auto_ack=True) for _ in range(2)]
    assert sorted((key.routing_key, properties.headers, body) for key, properties, body in letters) == [
        ("full", {"n": 1, "x-undelivered-exchange": "", "x-undelivered-reason": "full"}, b"2"),
        ("nothing", {"x-undelivered-exchange": "", "x-undelivered-reason": "unroutable"}, b"3"),
    ]


def test_a_chunk_whose_octets_a_queue_has_no_room_for_is_refused(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", arguments={"x-max-length-bytes": 10, "x-overflow": "reject-publish"})
    assert write(api, rows=10).json() == answered(published=10)
    assert write(api, 10).json() == answered(refused=1)
    assert api.counts("q")[0] == 10


def test_more_copies_than_are_pushed_at_once_are_refused(api: API, channel: BlockingChannel) -> None:
    channel.exchange_declare("many", "fanout")
    for number in range(MAX_COPIES // 10_000 + 1):
        channel.queue_declare(str(number))
        channel.queue_bind(str(number), "many")
    assert publish(api, stream(body=[b""] * 10_000, routing_key=[b""] * 10_000), exchange="many").status_code == 413
    assert publish(api, stream(body=[b""] * 10, routing_key=[b""] * 10), exchange="many").json() == answered(10)
    assert api.counts("0") == (10, 0)


def test_a_writer_is_its_users(api: API, queue: str, writers: Writers) -> None:
    mine, theirs, nothing = writers("mine"), writers("theirs"), writers("nothing", write="")
    assert write(theirs, batch=5).json() == answered(published=1)
    assert write(nothing).status_code == 401
    assert write(nothing, rows=0).status_code == 401
    assert mine.get("messages", "/", "writers", "w")["batch"] is None
    assert write(mine, batch=0).json() == answered(published=1)
    assert mine.request("DELETE", "messages", "/", "writers", "w").status_code == 204
    assert theirs.get("messages", "/", "writers", "w")["batch"] == 5


def test_a_writer_is_forgotten_with_its_parts_and_no_other(api: API, queue: str) -> None:
    for writer, part in (("w", ""), ("w", "1"), ("w", "2"), ("w 1", ""), ("wide", "")):
        assert write(api, writer=writer, part=part).json() == answered(published=1)
    api.request("DELETE", "messages", "/", "writers", "w")
    found = {
        (writer, part): api.get("messages", "/", "writers", writer, part=part)["batch"]
        for writer, part in (("w", ""), ("w", "1"), ("w", "2"), ("w 1", ""), ("wide", ""))
    }
    assert found == {("w", ""): None, ("w", "1"): None, ("w", "2"): None, ("w 1", ""): 0, ("wide", ""): 0}


def test_an_attempt_that_comes_after_its_writer_was_closed_is_refused(api: API, queue: str) -> None:
    assert "is not open" in write(api, part="1", opened="true").text
    assert api.request("PUT", "messages", "/", "writers", "w").status_code == 204
    assert write(api, part="1", opened="true").json() == answered(published=1)
    api.request("DELETE", "messages", "/", "writers", "w")
    for first in (0, 1):
        assert "is not open" in write(api, first, part="1", opened="true").text
    assert api.counts("q") == (1, 0)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"batch": 1 << 62}, "'batch' must be at most"),
        ({"rows": 7}, "the stream has 1 rows, not 7"),
        ({"writer": ""}, "'writer' must have 1 to 255 octets"),
        ({"part": "p" * 256}, "'part' must have at most 255 characters"),
    ],
)
def test_what_no_chunk_can_say(api: API, queue: str, place: dict[str, Any], reason: str) -> None:
    sent = {"writer": "w", "batch": 0, "first": 0, "rows": 1, "digest": "d"} | place
    refused = publish(api, stream(body=[b"1"], routing_key=[b"q"]), exchange="", **sent)
    assert (refused.status_code, reason in refused.text) == (400, True)
    assert api.get("messages", "/", "writers", "w")["batch"] is None


def test_writers_go_with_their_user_and_virtual_host(api: API, queue: str, writers: Writers) -> None:
    assert write(writers("mine")).json() == answered(published=1)
    api.request("DELETE", "users", "mine")
    assert writers("mine").get("messages", "/", "writers", "w")["batch"] is None


def test_places_that_were_noted_without_a_user_are_gone_on_from(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path / "data"):
        pass
    with contextlib.closing(Store.open(tmp_path / "data", on_commit=lambda number: None)) as store:
        store.put("writer", json.dumps(["/", "query-1 3"]), [time.time(), 4, 1, "d0"])
        store.put("writer", json.dumps(["/", "app"]), [time.time(), 2, 1, "d0"])
    with jumpmq.running(data_dir=tmp_path / "data") as broker:
        api = API(broker.http_url)
        api.request("PUT", "queues", "/", "q", json={"durable": True})
        assert api.get("messages", "/", "writers", "query-1", part="3") == {"batch": 4, "rows": 1, "digest": "d0"}
        assert write(api, writer="query-1", part="3", batch=4).json() == answered(repeated=True)
        assert write(api, 1, writer="query-1", part="3", batch=4).json() == answered(published=1)
        assert write(api, writer="app", batch=2).json() == answered(repeated=True)
        api.request("DELETE", "messages", "/", "writers", "app")
        assert write(api, writer="app", batch=2).json() == answered(published=1)


@pytest.mark.slow
def test_a_writer_that_comes_back_publishes_nothing_twice(tmp_path: Path) -> None:
    """A returning writer publishes nothing twice, also after a kill of the broker directly after its answers."""

    with JumpMQ(tmp_path / "data") as process:
        api = API(f"http://127.0.0.1:{process.http_port}")
        api.request("PUT", "queues", "/", "q", json={"durable": True})
        assert api.get("messages", "/", "writers", "w") == {"batch": None, "rows": 0, "digest": ""}
        for number in (0, 1):
            assert write(api, number, persistent="true").json() == answered(published=1)
        process.kill()
        process.start()
        api = API(f"http://127.0.0.1:{process.http_port}")
        assert api.get("messages", "/", "writers", "w") == {"batch": 0, "rows": 2, "digest": "d1"}
        assert write(api, 1).json() == answered(repeated=True)
        for number in (0, 3):
            assert (
                f"batch 0 has 2 published rows, not {number}" in write(api, number, persistent="true").json()["reason"]
            )
        assert write(api, 2).json() == answered(published=1)
        assert write(api, batch=1).json() == answered(published=1)
        assert write(api, 3).status_code == 400
        assert api.counts("q") == (4, 0)
        assert api.request("DELETE", "messages", "/", "writers", "w").status_code == 204
        assert write(api, batch=1).json() == answered(published=1)
