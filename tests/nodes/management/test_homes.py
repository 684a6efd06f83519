"""One management port over several homes: remote objects are shown and changed like local objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.nodes.management.running_homes import RunningHomes, running_homes, running_nodes
from tests.waiting import until

from jumpmq.broker.figures.values import NodeFigures
from jumpmq.http.application import API as API_RESOURCES
from jumpmq.nodes.management.listener import PASSED
from jumpmq.nodes.management.merged import OF_NODE
from jumpmq.nodes.timing import Timing


@pytest.fixture(scope="module", params=[running_homes, running_nodes], ids=["workers", "nodes"])
def homes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHomes]:
    with request.param(3, tmp_path_factory.mktemp("homes")) as running:
        yield running


@pytest.fixture
def api(homes: RunningHomes) -> API:
    return API(homes.endpoints.http_url)


@pytest.fixture
def channels(homes: RunningHomes) -> Iterator[list[BlockingChannel]]:
    """Channels to all homes."""
    connections = [pika.BlockingConnection(pika.URLParameters(homes.url(home))) for home in (1, 2, 3)]
    yield [connection.channel() for connection in connections]
    for connection in connections:
        if connection.is_open:
            connection.close()


@pytest.fixture
def queues(channels: list[BlockingChannel], unique: Callable[[str], str]) -> Iterator[list[str]]:
    """A durable queue at every home, with as many messages as the home's number."""
    names = [unique("q") for _ in channels]
    for number, (channel, name) in enumerate(zip(channels, names, strict=True), 1):
        channel.queue_declare(name, durable=True)
        publish(channel, name, [b"%d-%d" % (number, place) for place in range(number)])
    yield names
    for channel, name in zip(channels, names, strict=True):
        if channel.is_open:
            channel.queue_delete(name)


def test_each_figure_of_a_node_follows_from_those_of_its_homes() -> None:
    """Each metric of a node is derived from its homes' metrics; none is the default or the first home's value."""
    assert OF_NODE.keys() == set(NodeFigures._fields)


def test_queues_of_all_homes_are_listed_with_their_messages(api: API, queues: list[str]) -> None:
    found = {one["name"]: one["messages_ready"] for one in api.get("queues", "/")}
    assert [found[name] for name in queues] == [1, 2, 3]
    assert [api.counts(name) for name in queues] == [(1, 0), (2, 0), (3, 0)]


def test_totals_are_those_of_all_homes(api: API, queues: list[str], channels: list[BlockingChannel]) -> None:
    overview = api.get("overview")
    assert overview["object_totals"]["queues"] == 3
    assert overview["object_totals"]["connections"] == 3
    assert overview["queue_totals"]["messages_ready"] == 6
    assert overview["message_stats"]["publish"] >= 6


def test_connections_and_channels_of_all_homes_are_listed(
    api: API, channels: list[BlockingChannel], queues: list[str]
) -> None:
    for channel, queue in zip(channels, queues, strict=True):
        channel.basic_consume(queue, lambda *_: None, consumer_tag=f"of-{queue}")
    assert len(api.get("connections")) == len(api.get("channels")) == 3
    assert {one["consumer_tag"] for one in api.get("consumers")} == {f"of-{queue}" for queue in queues}
    for one in api.get("connections"):
        assert api.get("connections", one["name"])["name"] == one["name"]
        (channel,) = api.get("connections", one["name"], "channels")
        assert api.get("channels", channel["name"])["consumer_details"]


def test_consumers_of_all_homes_have_rates(api: API, channels: list[BlockingChannel], queues: list[str]) -> None:
    for channel, queue in zip(channels, queues, strict=True):
        channel.basic_consume(queue, lambda *_: None, auto_ack=True)

    def delivered() -> bool:
        for channel, queue in zip(channels, queues, strict=True):
            channel.basic_publish("", queue, b"x")
            channel.connection.process_data_events(0.05)
        return all(one["messages_delivered_details"]["rate"] > 0 for one in api.get("consumers"))

    until(delivered)
    assert len(api.get("consumers")) == 3


def test_a_connection_elsewhere_is_closed(api: API, channels: list[BlockingChannel], homes: RunningHomes) -> None:
    last = channels[-1].connection
    name = next(one["name"] for one in api.get("connections") if one["port"] == homes.brokers[-1].port)
    assert api.request("DELETE", "connections", name, headers={"X-Reason": "enough"}).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
        last.process_data_events(5)


def test_messages_elsewhere_are_got_read_and_purged(api: API, queues: list[str]) -> None:
    last = queues[-1]
    body = {"count": 2, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert [one["payload"] for one in api.post("queues", "/", last, "get", body=body)] == ["3-0", "3-1"]
    assert api.table("queues", "/", last, "messages")["body"].to_pylist() == [b"3-0", b"3-1", b"3-2"]
    assert api.get("queues", "/", last, "explain")["reason"] == "the queue has no consumer"
    assert api.request("DELETE", "queues", "/", last, "contents").status_code == 204
    assert api.counts(last) == (0, 0)


def test_messages_elsewhere_are_looked_through(api: API, queues: list[str]) -> None:
    for number, name in enumerate(queues, 1):
        assert len(api.get("queues", "/", name, "browse")["messages"]) == number


def test_whatever_the_home_of_a_queue_or_a_node_answers_is_passed_to_it() -> None:
    routes = [one for resource in API_RESOURCES for one in resource.ROUTES if one.at_home or one.at_node]
    known = {(one.verb, one.path) for resource in PASSED for one in resource.ROUTES}
    assert len(routes) > 10
    assert [(one.verb, one.path) for one in routes if (one.verb, one.path) not in known] == []


def test_a_queue_elsewhere_is_deleted_unless_it_is_in_use(
    api: API, queues: list[str], channels: list[BlockingChannel]
) -> None:
    last = queues[-1]
    refused = api.request("DELETE", "queues", "/", last, params={"if-empty": "true"})
    assert (refused.status_code, refused.json()["reason"]) == (400, f"queue '{last}' in vhost '/' not empty")
    assert api.request("DELETE", "queues", "/", last).status_code == 204
    assert api.request("GET", "queues", "/", last).status_code == 404


def test_what_a_user_may_not_is_refused_elsewhere_too(
    api: API, homes: RunningHomes, queues: list[str], unique: Callable[[str], str]
) -> None:
    name = unique("reader")
    body = {"password": "secret", "tags": "management"}
    assert api.request("PUT", "users", name, json=body).status_code == 201
    rights = {"configure": "", "write": "", "read": f"^{queues[1]}$"}
    assert api.request("PUT", "permissions", "/", name, json=rights).status_code == 201
    theirs = API(homes.endpoints.http_url)
    theirs.session.auth = (name, "secret")
    here, elsewhere = (theirs.request("DELETE", "queues", "/", queue, "contents") for queue in (queues[0], queues[2]))
    assert here.status_code == elsewhere.status_code == 401
    assert elsewhere.json()["reason"] == here.json()["reason"].replace(queues[0], queues[2])
    assert theirs.request("DELETE", "queues", "/", queues[1], "contents").status_code == 204


def test_the_private_port_wants_the_secret(homes: RunningHomes) -> None:
    import http.client
    import socket

    links = homes.brokers[0].config.links
    assert links is not None
    path = links / "http-2.sock"
    if not path.exists():
        pytest.skip("nodes have no such port")
    assert path.stat().st_mode & 0o777 == 0o600
    for headers in ({}, {"JumpMQ-Secret": "0" * 64}):
        connection = http.client.HTTPConnection("home")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("POST", "/home/figures", b'["connections"]', headers)
        assert connection.getresponse().status == 403
        connection.close()


def test_one_arrow_stream_has_the_messages_of_all_homes(api: API, queues: list[str]) -> None:
    wanted = {"queues": queues, "missing": True}
    ranges = api.post("ranges", "/", body=wanted)
    assert list(ranges) == sorted(queues)
    assert [ranges[queue]["messages"] for queue in queues] == [1, 2, 3]
    slices = [[queue, ranges[queue]["first_seq"], ranges[queue]["last_seq"]] for queue in queues]
    answer = api.request("POST", "messages", "/", json={"slices": slices, "columns": ["queue", "body"]})
    table = pa.ipc.open_stream(answer.content).read_all().to_pydict()
    found: dict[str, list[bytes]] = {}
    for queue, body in zip(table["queue"], table["body"], strict=True):
        found.setdefault(queue, []).append(body)
    assert [found[queue] for queue in queues] == [[b"%d-%d" % (n, i) for i in range(n)] for n in (1, 2, 3)]


def test_queues_that_are_bound_are_found_at_all_homes(
    api: API, queues: list[str], channels: list[BlockingChannel]
) -> None:
    for queue in queues:
        channels[0].queue_bind(queue, "amq.fanout")
    assert list(api.post("ranges", "/", body={"exchange": "amq.fanout"})) == sorted(queues)


def test_a_group_reads_and_acknowledges_at_all_homes(api: API, queues: list[str], unique: Callable[[str], str]) -> None:
    group = ("readers", "/", unique("group"))
    session = api.post(*group, "open", body={"query": "one"})["session"]
    held = {"queues": dict.fromkeys(queues), "session": session}
    reserved = api.post(*group, "reserve", body=held)["queues"]
    assert [reserved[queue]["messages"] for queue in queues] == [1, 2, 3]
    slices = [[queue, None, reserved[queue]["offset"], 0, None] for queue in queues]
    answer = api.request("POST", *group, "read", json={"slices": slices, "columns": ["body"], "session": session})
    assert answer.headers["JumpMQ-Messages"] == "6"
    assert pa.ipc.open_stream(answer.content).read_all().num_rows == 6
    api.post(*group, "renew", body={"session": session})
    shown = api.get(*group)["queues"]
    assert {queue: shown[queue]["messages"] for queue in queues} == dict(zip(queues, (1, 2, 3), strict=True))
    refused = api.request("POST", *group, "open", json={"query": "another"})
    assert refused.status_code == 409
    offsets = {queue: reserved[queue]["offset"] for queue in queues}
    api.post(*group, "commit", body={"queues": offsets, "session": session})
    assert [api.counts(queue) for queue in queues] == [(0, 0)] * 3
    assert api.request("DELETE", *group).status_code == 204
    assert api.request("DELETE", *group).status_code == 404


def test_logins_are_counted_at_all_homes(api: API, channels: list[BlockingChannel], homes: RunningHomes) -> None:
    nodes = api.get("nodes")
    counted = {one["protocol"]: one for one in api.get("auth", "attempts", nodes[0]["name"])}
    assert counted["amqp091"]["auth_attempts_succeeded"] >= 3
    assert sum(node["sockets_used"] for node in nodes) == 3


def test_limits_of_users_hold_for_all_homes_together(
    api: API, homes: RunningHomes, unique: Callable[[str], str]
) -> None:
    name = unique("few")
    assert api.request("PUT", "users", name, json={"password": "secret", "tags": ""}).status_code == 201
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.request("PUT", "permissions", "/", name, json=everything).status_code == 201
    for limit, value in (("max-connections", 2), ("max-channels", 3)):
        assert api.request("PUT", "user-limits", name, limit, json={"value": value}).status_code == 204

    def connect(home: int) -> pika.BlockingConnection:
        url = homes.url(home).replace("guest:guest", f"{name}:secret")
        return pika.BlockingConnection(pika.URLParameters(url))

    first, second = connect(1), connect(2)
    time.sleep(0.1)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"user connection limit \(2\) is reached"):
        connect(3)
    for connection in (first, first, second):
        connection.channel()
    time.sleep(0.1)  # other homes hear of a connection or channel a moment later
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=r"maximum allowed user limit of \(3\)"):
        second.channel()
    eventually(lambda: connect(3).close() is None, pika.exceptions.ProbableAccessDeniedError)
    first.close()


def test_each_home_has_metrics_and_one_that_is_down_is_told(tmp_path: Path) -> None:
    with running_homes(2, tmp_path) as running:
        api = API(running.endpoints.http_url)
        text = api.session.get(f"{api.address}/metrics").text
        assert all(f'jumpmq_home_up{{home="{home}"}} 1.0' in text for home in (1, 2))
        assert 'jumpmq_home_connections{home="2"} 0.0' in text
        assert api.request("GET", "health", "checks", "alarms").status_code == 200
        with pika.BlockingConnection(pika.URLParameters(running.url(2))) as connection:
            connection.channel().queue_declare("there", durable=True)
        running.run(running.leave(2))
        answer = api.request("GET", "health", "checks", "alarms")
        assert (answer.status_code, answer.json()["alarms"][0]["reason"]) == (503, "home 2 does not answer")
        assert 'jumpmq_home_up{home="2"} 0.0' in api.session.get(f"{api.address}/metrics").text
        assert [(one["name"], one["state"]) for one in api.get("queues")] == [("there", "down")]
        answer = api.request("DELETE", "queues", "/", "there", "contents")
        reason = f"home node '{running.endpoints.node}' of durable queue 'there' in vhost '/' is down or inaccessible"
        assert (answer.status_code, answer.json()["reason"]) == (404, reason)


def eventually(succeeds: Callable[[], object], error: type[Exception]) -> object:
    for _ in range(100):
        try:
            return succeeds()
        except error:
            time.sleep(0.05)
    return succeeds()


def batch_to(queues: Sequence[str], bodies: Sequence[bytes] = (b"row",)) -> bytes:
    """Return a batch of rows as octets of an Arrow stream: each body for each queue."""
    rows = [(queue, body) for body in bodies for queue in queues]
    queue, body = zip(*rows, strict=True)
    batch = pa.record_batch({"queue": pa.array(queue), "body": pa.array(body, pa.binary())})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    octets: bytes = out.getvalue().to_pybytes()
    return octets


def test_a_batch_reaches_the_queues_of_all_homes_before_its_answer(api: API, queues: list[str]) -> None:
    answer = api.request("POST", "messages", "/", "publish", data=batch_to(queues, [b"%d" % n for n in range(100)]))
    assert answer.status_code == 200, answer.text
    assert answer.json()["published"] == 300
    assert [api.counts(queue)[0] for queue in queues] == [101, 102, 103]
    for queue in queues:
        got = api.post(
            "queues", "/", queue, "get", body={"count": 103, "ackmode": "ack_requeue_true", "encoding": "auto"}
        )
        assert [one["payload"] for one in got][-100:] == [str(n) for n in range(100)]


def test_a_chunk_that_is_repeated_is_not_published_again_elsewhere(
    api: API, queues: list[str], unique: Callable[[str], str]
) -> None:
    query = {"writer": unique("writer"), "part": "0", "batch": 1, "first": 0, "rows": 3, "digest": "abc"}
    for repeated in (False, True):
        answer = api.request("POST", "messages", "/", "publish", params=query, data=batch_to(queues))
        assert answer.json()["repeated"] is repeated, answer.text
    assert [api.counts(queue)[0] for queue in queues] == [2, 3, 4]


def test_a_batch_for_a_queue_elsewhere_that_may_refuse_is_refused_as_a_whole(
    api: API, queues: list[str], channels: list[BlockingChannel], unique: Callable[[str], str]
) -> None:
    name = unique("bounded")
    channels[2].queue_declare(name, durable=True, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    answer = api.request("POST", "messages", "/", "publish", data=batch_to([*queues, name]))
    assert answer.status_code == 400
    assert "is at home 3 of this broker, and may refuse messages" in answer.json()["reason"]
    assert [api.counts(queue)[0] for queue in queues] == [1, 2, 3]


def test_who_publishes_one_message_is_told_that_a_queue_elsewhere_refuses_it(
    api: API, channels: list[BlockingChannel], unique: Callable[[str], str]
) -> None:
    name, body = unique("full"), {"payload": "x", "payload_encoding": "string"}
    channels[2].queue_declare(name, durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    for properties in ({}, {"delivery_mode": 2}):
        message = body | {"routing_key": name, "properties": properties}
        answer = api.request("POST", "exchanges", "/", "amq.default", "publish", json=message)
        assert (answer.status_code, answer.json()["reason"]) == (
            400,
            "rejected Unable to publish message. Check queue limits.",
        )


def test_what_a_full_queue_refuses_goes_to_an_exchange_whose_queue_is_elsewhere(
    api: API, queues: list[str], channels: list[BlockingChannel], unique: Callable[[str], str]
) -> None:
    full, exchange = unique("full"), unique("undelivered")
    channels[0].queue_declare(full, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channels[0].exchange_declare(exchange, "fanout", durable=True)
    channels[0].queue_bind(queues[2], exchange)
    query = {"undelivered-to": exchange}
    for published, undelivered in ((3, 0), (2, 1)):
        answer = api.request("POST", "messages", "/", "publish", params=query, data=batch_to([full, *queues[:2]]))
        assert answer.status_code == 200, answer.text
        assert (answer.json()["published"], answer.json()["undelivered"]) == (published, undelivered)
    assert [api.counts(queue)[0] for queue in (full, *queues)] == [1, 3, 4, 4]


def test_rows_for_a_stream_elsewhere_arrive(
    api: API, channels: list[BlockingChannel], unique: Callable[[str], str]
) -> None:
    name = unique("stream")
    channels[1].queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    answer = api.request("POST", "messages", "/", "publish", data=batch_to([name], [b"1", b"2", b"3"]))
    assert answer.status_code == 200, answer.text
    assert api.counts(name)[0] == 3


def test_a_move_that_stands_still_is_told(tmp_path: Path) -> None:
    with running_homes(2, tmp_path, timing=Timing(stalled_move=0.2, settle_grace=0.1)) as running:
        api = API(running.endpoints.http_url)
        with pika.BlockingConnection(pika.URLParameters(running.url(1))) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            publish(connection.channel(), "q", [b"1", b"2"])
            assert api.request("GET", "health", "checks", "moves").status_code == 200
            channel.tx_select()
            channel.basic_ack(channel.basic_get("q")[0].delivery_tag)  # held until the transaction is committed
            api.request("POST", "queues", "/", "q", "actions", json={"action": "move", "home": 2})
            until(lambda: api.request("GET", "health", "checks", "moves").status_code == 503)
            (found,) = api.request("GET", "health", "checks", "moves").json()["queues"]
            assert (found["name"], found["waits_for"].startswith("consumers to settle 1 messages")) == ("q", True)
            warnings = {(one["kind"], one["name"]) for one in api.get("warnings")}
            assert ("move-stands-still", "q") in warnings
            assert 'jumpmq_moves{home="1"} 1.0' in api.session.get(f"{api.address}/metrics").text
            channel.tx_commit()
        until(lambda: api.request("GET", "health", "checks", "moves").status_code == 200)


def test_rows_for_a_home_that_is_down_are_kept_up_to_a_limit(tmp_path: Path) -> None:
    with running_homes(2, tmp_path, memory_limit="64MB") as running:  # at most 4 MB of the limit are kept for a home
        api = API(running.endpoints.http_url)
        with pika.BlockingConnection(pika.URLParameters(running.url(2))) as connection:
            connection.channel().queue_declare("there", durable=True)
        running.run(running.leave(2))
        rows = batch_to(["there"], [bytes(1 << 20)] * 5)
        assert api.request("POST", "messages", "/", "publish", data=rows).json()["published"] == 5
        answer = api.request("POST", "messages", "/", "publish", data=rows)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["reason"].startswith("home 2 is down or behind")

        def is_told() -> None:
            assert 'jumpmq_outbox_messages{home="1",to="2"} 5.0' in api.session.get(f"{api.address}/metrics").text

        eventually(is_told, AssertionError)
