"""A publisher's trace continues in the broker: spans reach a collector, and consumers receive the trace."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pika
import pytest
import requests

import jumpmq

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


@dataclass
class Span:
    name: str
    id: str
    parent: str
    trace: str
    milliseconds: float
    attributes: dict[str, Any]


@dataclass
class Collector:
    """Receiver of spans over HTTP, as OpenTelemetry's collector."""

    address: str = ""
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def take(self, octets: bytes) -> None:
        request = trace_service.ExportTraceServiceRequest.FromString(octets)
        for resource in request.resource_spans:
            self.services.update(one.value.string_value for one in resource.resource.attributes)
            for one in [span for scope in resource.scope_spans for span in scope.spans]:
                took = (one.end_time_unix_nano - one.start_time_unix_nano) / 1e6
                values = {pair.key: _value(pair.value) for pair in one.attributes}
                ids = (one.span_id.hex(), one.parent_span_id.hex(), one.trace_id.hex())
                self.spans.append(Span(one.name, *ids, took, values))


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(one) for one in found.values] if kind == "array_value" else found


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            octets = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                octets = gzip.decompress(octets)
            found.take(octets)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.address = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans go out every 0.2 s."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")


def traced(header: str = SAMPLED, **others: Any) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"traceparent": header, "n": 1}, **others)


def work(broker: Any, act: Callable[[Any], Any]) -> Any:
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    try:
        return act(connection.channel())
    finally:
        connection.close()


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return result


def test_a_message_is_followed_from_its_publisher_to_its_consumer(collector: Collector) -> None:
    def act(channel: Any) -> Any:
        channel.exchange_declare("orders", "fanout")
        for queue in ("one", "two"):
            channel.queue_declare(queue)
            channel.queue_bind(queue, "orders")
        channel.basic_publish("orders", "key", b"12345", traced())
        channel.basic_publish("orders", "key", b"not traced", pika.BasicProperties(headers={"n": 1}))
        channel.basic_publish("orders", "key", b"not sampled", traced(UNSAMPLED))
        channel.basic_publish("orders", "key", b"no trace", traced("nonsense"))
        channel.queue_declare("one", passive=True)  # they are there
        time.sleep(0.05)
        channel.basic_consume("one", lambda *_: channel.stop_consuming(), consumer_tag="reader", auto_ack=True)
        channel.start_consuming()
        return channel.basic_get("two", auto_ack=True)

    with jumpmq.running(otlp_endpoint=collector.address, node="jumpmq@traced") as broker:
        _, properties, _ = work(broker, act)
        until(lambda: len(collector.spans) >= 4)
    assert properties.headers == {"traceparent": SAMPLED, "n": 1}, "consumers continue the trace"
    spans = {span.name: span for span in collector.spans}
    assert sorted(spans) == sorted(one.name for one in collector.spans) == [
        "deliver one", "get two", "publish orders", "route",
    ]  # fmt: skip
    assert {span.trace for span in collector.spans} == {TRACE}
    publish = spans["publish orders"]
    assert spans["route"].parent == publish.id
    assert publish.parent == spans["deliver one"].parent == spans["get two"].parent == SPAN
    assert sorted(spans["route"].attributes["jumpmq.queues"]) == ["one", "two"]
    assert publish.attributes["messaging.message.body.size"] == 5
    assert publish.attributes["messaging.rabbitmq.destination.routing_key"] == "key"
    assert spans["deliver one"].attributes["messaging.consumer.group.name"] == "reader"
    assert spans["deliver one"].milliseconds >= 50, "it shows how long the message waited"
    assert {"jumpmq", "jumpmq@traced"} <= collector.services


def test_a_dead_letter_stays_in_its_trace(collector: Collector) -> None:
    def act(channel: Any) -> Any:
        channel.queue_declare("graves")
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
        channel.queue_declare("short", arguments={**arguments, "x-max-length": 1})
        for body in (b"first", b"second"):
            channel.basic_publish("", "short", body, traced())
        return until(lambda: (found := channel.basic_get("graves", auto_ack=True))[0] and found)

    with jumpmq.running(otlp_endpoint=collector.address) as broker:
        _, properties, body = work(broker, act)
        until(lambda: any(span.name == "get graves" for span in collector.spans))
    assert (body, properties.headers["traceparent"]) == (b"first", SAMPLED)
    (dead,) = [span for span in collector.spans if span.name == "dead-letter short"]
    assert (dead.trace, dead.parent) == (TRACE, SPAN)
    assert (dead.attributes["jumpmq.reason"], dead.attributes["jumpmq.queues"]) == ("maxlen", ["graves"])


def test_what_is_published_and_got_over_http_is_traced_too(collector: Collector) -> None:
    with jumpmq.running(otlp_endpoint=collector.address) as broker:
        work(broker, lambda channel: channel.queue_declare("q"))
        body: dict[str, Any] = {
            "properties": {"headers": {"traceparent": SAMPLED}}, "routing_key": "q", "payload": "x",
            "payload_encoding": "string",
        }  # fmt: skip
        exchange = f"{broker.http_url}/api/exchanges/%2F/amq.default/publish"
        assert requests.post(exchange, json=body, timeout=30).json() == {"routed": True}
        wanted: dict[str, Any] = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
        (got,) = requests.post(f"{broker.http_url}/api/queues/%2F/q/get", json=wanted, timeout=30).json()
        assert got["properties"]["headers"] == {"traceparent": SAMPLED}
    assert {span.name for span in collector.spans} == {"publish (default)", "route", "get q"}, "sent at the stop"


def test_a_collector_that_does_not_answer_keeps_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    with jumpmq.running(otlp_endpoint="http://127.0.0.1:9") as broker:
        work(broker, lambda channel: channel.queue_declare("q"))
        work(broker, lambda channel: channel.basic_publish("", "q", b"x", traced()))
        assert work(broker, lambda channel: channel.basic_get("q", auto_ack=True))[2] == b"x"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(jumpmq.BrokerError, match="otlp-endpoint must be a URL"), jumpmq.running(otlp_endpoint="here"):
        pass


def test_it_costs_nothing_unless_asked_for() -> None:
    """Without a collector, OpenTelemetry is not imported, and a trace header is passed on."""
    programme = """
import sys, pika, jumpmq
with jumpmq.running() as broker:
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x", pika.BasicProperties(headers={"traceparent": "t"}))
    print(channel.basic_get("q", auto_ack=True)[1].headers["traceparent"], "opentelemetry" in sys.modules)
    connection.close()
"""
    result = subprocess.run([sys.executable, "-c", programme], capture_output=True, text=True, check=True)
    assert result.stdout == "t False\n"
