"""Publishing Arrow streams: all of it, on disk, and once; and what is no stream of messages."""

import random
import struct

import pyarrow as pa
import pytest
from benchmarks.brokers import JumpMQ
from fuzzing import arrow
from tests.http.api import API

from jumpmq.amqp.properties import Properties
from jumpmq.http.plumbing.arrow_messages import MAX_ROWS


def stream(**columns):
    types = {"exchange": pa.string(), "queue": pa.string()}
    arrays = {name: pa.array(values, types.get(name, pa.binary())) for name, values in columns.items()}
    return written(pa.record_batch(arrays))


def written(*batches, **options):
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def publish(api, octets, **query):
    return api.request("POST", "messages", "/", "publish", data=octets, params=query)


def answered(published=0, unroutable=0, refused=0, repeated=False):
    return {"published": published, "unroutable": unroutable, "refused": refused, "repeated": repeated}


def bodies(channel, queue):
    return [body for _, _, body in iter(lambda: channel.basic_get(queue, auto_ack=True), (None, None, None))]


@pytest.fixture
def queue(channel):
    channel.queue_declare("q", durable=True)
    return "q"


def test_messages_are_as_they_were_published(api, channel, queue):
    channel.exchange_declare("x", "topic", durable=True)
    channel.queue_bind("q", "x", "#")
    sent = Properties(message_id="m", delivery_mode=2).encode()
    octets = stream(body=[b"1", b"2"], routing_key=[b"a", b"b"], properties=[sent, None])
    assert publish(api, octets, exchange="x", persistent="true").json() == answered(published=2)
    first, second = (channel.basic_get("q") for _ in range(2))
    assert (first[0].exchange, first[0].routing_key, first[1].message_id, first[2]) == ("x", "a", "m", b"1")
    assert (second[0].routing_key, second[1].delivery_mode, second[2]) == ("b", 2, b"2")


def test_rows_may_name_exchange_and_queue(api, channel, queue):
    channel.queue_declare("p")
    octets = stream(
        body=[b"1", b"2", b"3"], routing_key=[b"q", b"key", None], exchange=["", None, None], queue=[None, "p", None]
    )
    assert publish(api, octets, queue="q").json() == answered(published=3)
    assert bodies(channel, "q") == [b"1", b"3"]
    method, _, body = channel.basic_get("p")
    assert (method.routing_key, body) == ("key", b"2")


def test_what_reaches_no_queue_fails_before_anything_is_published_or_is_dropped(api, channel, queue):
    octets = stream(body=[b"1", b"2"], routing_key=[b"q", b"nothing"])
    refused = publish(api, octets, exchange="")
    assert refused.status_code == 400
    assert "312 NO_ROUTE - 1 messages to exchange '' reach no queue, one of them with key 'nothing'" in refused.text
    assert api.counts("q") == (0, 0)
    assert publish(api, octets, exchange="", unroutable="drop").json() == answered(published=1, unroutable=1)
    assert publish(api, octets, queue="no", unroutable="drop").json() == answered(unroutable=2)


def test_a_full_queue_refuses(api, channel):
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
        (stream(body=[b"1"], routing_key=[b"k" * 256]), "more than 255 octets"),
        (
            stream(body=[b"1"], routing_key=[b"q"], properties=[b"\xff\xff\xff"]),
            "properties of a message are malformed",
        ),
    ],
)
def test_what_cannot_be_published_is_said(api, queue, octets, reason):
    response = publish(api, octets, exchange="")
    assert (response.status_code, reason in response.json()["reason"]) == (400, True)
    assert api.counts("q") == (0, 0)


def of_octets(name="body", values=(b"1",)):
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
def test_a_malformed_stream_is_refused_and_read_no_further(api, channel, queue, octets, reason):
    response = publish(api, octets, queue="q")
    assert (response.status_code, reason in response.json()["reason"]) == (400, True), response.text
    assert api.counts("q") == (0, 0)


def test_damaged_streams_neither_crash_nor_show_memory_that_is_not_theirs():
    assert arrow.fuzz(seed=random.randrange(1 << 30), count=2000) == []


@pytest.mark.parametrize(
    ("write", "query"),
    [("", {}), ("", {"exchange": "x"}), ("^$", {}), ("^other$", {"exchange": "x"}), ("^x$", {"queue": "q"})],
)
def test_rights_are_looked_at_before_the_stream_is(broker, api, write, query):
    api.request("PUT", "users", "u", json={"password": "p", "tags": "management"})
    api.request("PUT", "permissions", "/", "u", json={"configure": "", "write": write, "read": ""})
    theirs = API(broker.http_url)
    theirs.session.auth = ("u", "p")
    assert publish(theirs, b"no stream", **query).status_code == 401


def test_a_writer_that_comes_back_publishes_nothing_twice(tmp_path):
    """Also if the broker was killed in between, right behind its answers."""

    def write(first, batch=0):
        place = {"writer": "w", "batch": batch, "first": first, "rows": first + 1, "digest": f"d{first}"}
        octets = stream(body=[b"%d" % first], routing_key=[b"q"])
        return publish(api, octets, exchange="", persistent="true", **place)

    with JumpMQ(tmp_path / "data") as process:
        api = API(f"http://127.0.0.1:{process.http_port}")
        api.request("PUT", "queues", "/", "q", json={"durable": True})
        assert api.get("messages", "/", "writers", "w") == {"batch": None, "rows": 0, "digest": ""}
        for number in (0, 1):
            assert write(number).json() == answered(published=1)
        process.kill()
        process.start()
        api = API(f"http://127.0.0.1:{process.http_port}")
        assert api.get("messages", "/", "writers", "w") == {"batch": 0, "rows": 2, "digest": "d1"}
        assert write(1).json() == answered(repeated=True)
        for number in (0, 3):
            assert f"{number} rows are said to be published of batch 0, not 2" in write(number).json()["reason"]
        assert write(2).json() == answered(published=1)
        assert write(0, batch=1).json() == answered(published=1)
        assert write(3).status_code == 400
        assert api.counts("q") == (4, 0)
        assert api.request("DELETE", "messages", "/", "writers", "w").status_code == 204
        assert write(0, batch=1).json() == answered(published=1)
