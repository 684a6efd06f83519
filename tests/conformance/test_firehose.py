"""The firehose: published and delivered messages are copied to ``amq.rabbitmq.trace`` while tracing is on."""

from collections.abc import Callable, Iterator

import pytest
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, Content, WireChannel, closing, login

from jumpmq.testing import BrokerProcess

VHOST = "traced"


@pytest.fixture
def traced(broker: BrokerProcess, operator: Operator) -> Iterator[WireChannel]:
    """A channel in a traced virtual host."""
    for tracing in (False, True):  # RabbitMQ traces only an existing host
        assert operator.ask("PUT", "vhosts", VHOST, json={"tracing": tracing}).status_code in (201, 204)
    operator.ask("PUT", "permissions", VHOST, "guest", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    assert operator.see("vhosts", VHOST)["tracing"]
    with closing(login(broker.port, vhost=VHOST)) as connection:
        yield connection.channel()
    operator.ask("DELETE", "vhosts", VHOST)


def test_publishes_and_deliveries_are_copied(traced: WireChannel, operator: Operator) -> None:
    trace, queue = traced.queue("trace"), traced.queue("q")
    traced.bind(trace, "amq.rabbitmq.trace", "#")
    traced.bind(queue, "amq.direct", "k")
    traced.publish("amq.direct", "k", b"body", Basic.Properties(app_id="till", headers={"a": 1}))
    traced.publish("amq.direct", "lost", b"lost")
    assert traced.get(queue) is not None
    until(lambda: traced.ready(trace) == 3)
    found = {message.method.routing_key + str(message.body): message for message in taken(traced, trace)}
    assert sorted(found) == ["deliver.qb'body'", "publish.amq.directb'body'", "publish.amq.directb'lost'"]
    told = found["publish.amq.directb'body'"].headers
    assert told["exchange_name"] == "amq.direct"
    assert told["routing_keys"] == ["k"]
    assert told["routed_queues"] == ["q"]
    assert told["properties"] == {"app_id": "till", "headers": {"a": 1}}
    assert (told["vhost"], told["user"], told["channel"]) == (VHOST, "guest", traced.number)
    assert told["connection"].startswith("127.0.0.1:")
    assert found["publish.amq.directb'lost'"].headers["routed_queues"] == []
    told = found["deliver.qb'body'"].headers
    assert (told["redelivered"], told["routing_keys"]) == (0, ["k"])
    assert operator.ask("PUT", "vhosts", VHOST, json={"tracing": False}).status_code == 204
    traced.publish("amq.direct", "k", b"unseen")
    until(lambda: traced.ready(queue) == 1)
    assert traced.ready(trace) == 0


def test_deliveries_to_consumers_are_copied(traced: WireChannel, unique: Callable[[str], str]) -> None:
    trace, queue = traced.queue("trace"), traced.queue("q")
    traced.bind(trace, "amq.rabbitmq.trace", "deliver.*")
    for _ in range(3):
        traced.publish("", queue, b"x")
    traced.consume(queue, no_ack=True)
    traced.take(3)
    until(lambda: traced.ready(trace) == 3)
    assert {message.method.routing_key for message in taken(traced, trace)} == {f"deliver.{queue}"}


def taken(channel: WireChannel, queue: str) -> list[Content]:
    found = []
    while (message := channel.get(queue)) is not None:
        found.append(message)
    return found
