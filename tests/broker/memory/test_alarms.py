"""While memory or disk is short publishers wait, are told so, and go on by themselves; consumers are always served."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cli.commands import run, serving
from tests.http.api import API
from tests.waiting import until
from tests.wire import Basic, Connection, WireChannel, WireConnection, login

import jumpmq

BODY = bytes(100_000)
TOLD = ("connection.blocked", "consumer_cancel_notify")
PERSISTENT = Basic.Properties(delivery_mode=2)


@pytest.fixture(scope="module")
def broker() -> Iterator[jumpmq.RunningBroker]:
    """A broker without a disk, with 4 MiB for messages."""
    with jumpmq.running(memory_limit="4MiB") as running:
        yield running


def publisher(port: int) -> WireConnection:
    return login(port, capabilities=TOLD)


def publish_until_blocked(api: API, channel: WireChannel, queue: str, properties: Any = None) -> tuple[int, str]:
    """Publish one by one until the broker blocks; return the number of messages, and the reason."""
    for number in range(1, 2000):
        channel.publish("", queue, BODY, properties or Basic.Properties())
        while sum(api.counts(queue)) < number:
            pass
        try:
            blocked = channel.connection.next_event(0, timeout=0.005)
        except TimeoutError:
            continue
        assert isinstance(blocked, Connection.Blocked)
        return number, blocked.reason
    raise AssertionError("it was never blocked")


def test_a_publisher_is_blocked_at_the_limit_and_goes_on_when_there_is_room(broker: jumpmq.RunningBroker) -> None:
    api = API(broker.http_url)
    with publisher(broker.port) as connection, login(broker.port) as bystander:
        channel, other = connection.channel(), bystander.channel()
        queue = channel.queue(exclusive=False)
        count, reason = publish_until_blocked(api, channel, queue)
        assert reason == "low on memory"
        assert 30 <= count <= 60
        channel.publish("", queue, b"last")
        # A client that does not publish is served, and sees the alarm.
        (node,) = api.get("nodes")
        assert (node["mem_alarm"], node["disk_free_alarm"], node["mem_limit"]) == (True, False, 4 << 20)
        assert node["mem_messages"] >= 4 << 20
        for check in ("alarms", "local-alarms"):
            answer = api.request("GET", "health", "checks", check)
            assert answer.status_code == 503
            assert answer.json()["alarms"] == [{"node": node["name"], "resource": "memory"}]
        states = sorted(one["state"] for one in api.get("connections"))
        assert states == ["blocked", "blocking"]
        metrics = api.session.get(f"{api.address}/metrics").text
        assert "rabbitmq_alarms_memory_used_watermark 1.0" in metrics
        assert other.ready(queue) == count
        # After consumption there is room again.
        bodies = other.bodies(queue)
        assert isinstance(connection.next_event(0), Connection.Unblocked)
        if len(bodies) == count:  # otherwise the room came before the last delivery
            until(lambda: other.ready(queue) == 1)
            bodies += other.bodies(queue)
        assert bodies == [BODY] * count + [b"last"]
        until(lambda: not api.get("nodes")[0]["mem_alarm"])
        assert api.request("GET", "health", "checks", "alarms").status_code == 200


def test_a_client_that_does_not_know_the_method_is_not_sent_it(broker: jumpmq.RunningBroker) -> None:
    api = API(broker.http_url)
    with login(broker.port) as connection, login(broker.port) as bystander:
        channel, other = connection.channel(), bystander.channel()
        queue = channel.queue(exclusive=False)
        for _ in range(60):
            channel.publish("", queue, BODY)
        until(lambda: api.get("nodes")[0]["mem_alarm"])
        assert channel.is_silent(0.1)
        other.consume(queue, no_ack=True)
        assert len(other.take(60)) == 60
        with pytest.raises(TimeoutError):
            connection.next_event(0, timeout=0.1)


def test_unacknowledged_messages_count(broker: jumpmq.RunningBroker) -> None:
    api = API(broker.http_url)
    with publisher(broker.port) as connection, login(broker.port) as consumer:
        channel, other = connection.channel(), consumer.channel()
        queue = channel.queue(exclusive=False)
        other.consume(queue)
        assert publish_until_blocked(api, channel, queue)[1] == "low on memory"
        held = api.get("nodes", api.get("nodes")[0]["name"], "memory")["memory"]
        assert held["unacknowledged"] >= 4_000_000
        assert api.get("queues", "/", queue)["memory"] >= 4_000_000
        until(lambda: api.counts(queue)[0] == 0)
        other.send(Basic.Ack(delivery_tag=0, multiple=True))
        assert isinstance(connection.next_event(0), Connection.Unblocked)


def test_the_limit_can_be_changed(broker: jumpmq.RunningBroker) -> None:
    with publisher(broker.port) as connection:
        channel = connection.channel()
        queue = channel.queue()
        done = run("jumpmqctl", "set_vm_memory_high_watermark", "0", "--url", broker.http_url)
        assert (done.returncode, done.stdout) == (0, f"Setting memory threshold on {broker.node} to 0.0 ...\n")
        channel.publish("", queue, b"one")
        assert connection.next_event(0).reason == "low on memory"
        assert "memory" in run("jumpmqctl", "status", "--url", broker.http_url).stdout
        done = run("jumpmqctl", "set_vm_memory_high_watermark", "absolute", "4MiB", "--url", broker.http_url)
        assert done.stdout == f"Setting memory threshold on {broker.node} to 4MiB bytes ...\n"
        assert isinstance(connection.next_event(0), Connection.Unblocked)


def test_who_publishes_over_http_waits_too(broker: jumpmq.RunningBroker) -> None:
    api = API(broker.http_url)
    body = {"routing_key": "over-http", "payload": "x", "payload_encoding": "string", "properties": {}}
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, pa.schema({"body": pa.binary()})) as writer:
        writer.write(pa.record_batch({"body": pa.array([b"y"], pa.binary())}))
    with login(broker.port) as connection, ThreadPoolExecutor(1) as beside:
        channel = connection.channel()
        queue = channel.queue("over-http")
        run("jumpmqctl", "set_vm_memory_high_watermark", "0", "--url", broker.http_url)
        answer = api.request("POST", "exchanges", "/", "amq.default", "publish", json=body)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json() == {"error": "blocked", "reason": "publishers are blocked: low on memory"}
        octets = stream.getvalue().to_pybytes()
        bulk = beside.submit(
            API(broker.http_url).request, "POST", "messages", "/", "publish", data=octets, params={"queue": queue}
        )
        assert channel.ready(queue) == 0
        assert not bulk.done()
        run("jumpmqctl", "set_vm_memory_high_watermark", "absolute", "4MiB", "--url", broker.http_url)
        assert bulk.result().json()["published"] == 1
        assert api.request("POST", "exchanges", "/", "amq.default", "publish", json=body).json() == {"routed": True}
        assert channel.bodies(queue) == [b"y", b"x"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("set_vm_memory_high_watermark", "1.5"), 65, "The threshold should be a fraction between 0.0 and 1.0"),
        (("set_vm_memory_high_watermark", "abc"), 65, "Bad argument"),
        (("set_vm_memory_high_watermark", "absolute"), 64, "not enough arguments."),
        (("set_vm_memory_high_watermark", "absolute", "2xB"), 65, "'2xB' is no size"),
        (("set_disk_free_limit", "xx"), 65, "'xx' is no size"),
    ],
    ids=str,
)
def test_limits_that_make_no_sense(
    broker: jumpmq.RunningBroker, arguments: tuple[str, ...], status: int, text: str
) -> None:
    done = run("jumpmqctl", *arguments, "--url", broker.http_url)
    assert done.returncode == status
    assert text in done.stderr


def test_a_broker_does_not_start_with_a_limit_that_makes_no_sense() -> None:
    done = run("jumpmq", "serve", "--port", "0", "--memory-limit", "plenty")
    assert (done.returncode, done.stderr) == (
        1,
        "jumpmq: 'plenty' is no size: octets, or a number with a unit such as MB or MiB\n",
    )


# --- the disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 60 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_fills_up_blocks_publishers_and_keeps_what_is_confirmed(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(30_000_000))
    with serving(small_disk / "data", "--disk-free-limit", "20MB") as serve, publisher(serve.port) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue("kept", durable=True, exclusive=False)
        count, reason = publish_until_blocked(API(serve.http_url), channel, queue, PERSISTENT)
        assert reason == "low on disk"
        assert API(serve.http_url).get("nodes")[0]["disk_free_alarm"]
        ballast.unlink()
        assert isinstance(connection.next_event(0), Connection.Unblocked)
        confirmed = 0
        while confirmed < count:
            confirmed = channel.next().delivery_tag
        serve.process.kill()
        serve.process.wait()
    with serving(small_disk / "data") as serve, login(serve.port) as connection:
        assert connection.channel().ready("kept") == count


def test_a_disk_that_is_full_blocks_publishers_and_the_broker_recovers_by_itself(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(45_000_000))
    with serving(small_disk / "data", "--disk-free-limit", "0") as serve, publisher(serve.port) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue("kept", durable=True, exclusive=False)
        count, reason = publish_until_blocked(API(serve.http_url), channel, queue, PERSISTENT)
        assert reason == "low on disk"
        ballast.unlink()
        assert isinstance(connection.next_event(0), Connection.Unblocked)
        confirmed = 0
        while confirmed < count:
            confirmed = channel.next().delivery_tag
        serve.process.kill()
        serve.process.wait()
    with serving(small_disk / "data") as serve, login(serve.port) as connection:
        assert connection.channel().ready("kept") == count


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["0", "20MB"])
def test_a_disk_that_was_filled_by_a_backlog_is_short_no_more_when_part_of_that_is_consumed(
    small_disk: Path, limit: str
) -> None:
    with serving(small_disk / "data", "--disk-free-limit", limit) as serve, publisher(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("kept", durable=True, exclusive=False)
        count, _ = publish_until_blocked(API(serve.http_url), channel, queue, PERSISTENT)
        with login(serve.port) as consumer:
            other = consumer.channel()
            other.call(Basic.Qos(prefetch_count=count * 2 // 3))
            other.consume(queue)
            other.take(count * 2 // 3)
            other.send(Basic.Ack(delivery_tag=0, multiple=True))
            other.call(Basic.Qos(prefetch_count=1))
        assert isinstance(connection.next_event(0), Connection.Unblocked)


def test_a_disk_that_a_stream_has_filled_blocks_publishers(small_disk: Path) -> None:
    with serving(small_disk / "data", "--disk-free-limit", "0") as serve, publisher(serve.port) as connection:
        channel = connection.channel()
        channel.queue("stream", durable=True, exclusive=False, arguments={"x-queue-type": "stream"})
        channel.queue("other", durable=True, exclusive=False)
        channel.confirm_select()
        (small_disk / "ballast").write_bytes(bytes(50_000_000))
        channel.publish("", "stream", bytes(8_000_000))
        until(lambda: API(serve.http_url).get("nodes")[0]["disk_free_alarm"])
        channel.publish("", "other", b"too")
        assert connection.next_event(0).reason == "low on disk"
        (small_disk / "ballast").unlink()
        assert isinstance(connection.next_event(0), Connection.Unblocked)
        channel.wait_for_confirms()
        connection.close()


def test_a_limit_makes_room_on_a_disk_that_its_stream_has_filled(small_disk: Path) -> None:
    """A stream's limit makes room on a full disk: retention deletes files in a commit of its own."""
    with serving(small_disk / "data", "--disk-free-limit", "0") as serve, publisher(serve.port) as connection:
        api, channel = API(serve.http_url), connection.channel()
        arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 2_000_000}
        channel.queue("stream", durable=True, exclusive=False, arguments=arguments)
        channel.confirm_select()
        count = 0

        def is_settled() -> bool:
            written = bool(api.get("queues", "/", "stream")["messages"] == count)
            return written or bool(api.get("nodes")[0]["disk_free_alarm"])

        while not api.get("nodes")[0]["disk_free_alarm"]:
            channel.publish("", "stream", bytes(8_000_000))
            count += 1
            until(is_settled)
        limit = {"pattern": "stream", "definition": {"max-length-bytes": 10_000_000}}
        assert api.request("PUT", "policies", "/", "limit", json=limit).status_code == 201
        confirmed = 0
        while confirmed < count:
            event = channel.next()
            assert isinstance(event, Basic.Ack)
            confirmed = event.delivery_tag
        until(lambda: not api.get("nodes")[0]["disk_free_alarm"])
