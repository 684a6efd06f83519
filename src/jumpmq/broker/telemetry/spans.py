"""OpenTelemetry: the broker's processing of a message, as spans of the trace begun by the publisher.

A publisher with tracing writes the header ``traceparent`` (W3C Trace Context). Deliveries and dead-lettered messages
have the unchanged header, so that consumers continue the same trace. With an endpoint, the broker adds its own spans to
the trace: ``publish`` with ``route`` inside; ``deliver``, which begins with the message's arrival and so shows the wait
in the queue; and ``dead-letter``. There are no spans for messages without the header, and for traces that the publisher
does not sample. A thread of the SDK sends spans in batches, and drops spans that it cannot send in time.

Streams deliver messages from disk without decoding: their deliveries have no spans.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jumpmq._version import __version__
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import headers_of
from jumpmq.broker.errors import BrokerError
from jumpmq.queues import Queue

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

HEADER = b"traceparent"
CARRIED = ("traceparent", "tracestate")
PATH = "/v1/traces"
"""Path of a collector's HTTP endpoint for spans (OTLP)."""


class Spans:
    """Creates spans, and sends spans to a collector.

    Args:
        endpoint: address of the collector, such as ``http://127.0.0.1:4318``. The environment variables of the SDK
            (``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_BSP_...``, ``OTEL_RESOURCE_ATTRIBUTES``) are honoured.
        node: name of this node.

    Raises:
        BrokerError: the address is not a URL, or the SDK is not installed.
    """

    def __init__(self, endpoint: str, node: str) -> None:
        self._provider = _provider(endpoint, node)
        self._tracer = self._provider.get_tracer("jumpmq", __version__)

    def published(self, exchange: str, messages: Iterable[Message], routes: Mapping[Queue, list[Message]]) -> None:
        """Record messages published to an exchange, and the queues reached."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        traced = [(message, context) for message in messages if (context := _context(message)) is not None]
        if not traced:
            return
        now, reached = time.time_ns(), _reached(routes)
        for message, context in traced:
            queues = reached.get(id(message), [])
            attributes = _attributes(exchange, message)
            span = self._tracer.start_span(
                f"publish {exchange or '(default)'}",
                context,
                SpanKind.SERVER,
                attributes | {"messaging.operation.type": "publish"},
                start_time=_received(message, now),
            )
            route: dict[str, Any] = {"jumpmq.queues": queues, "jumpmq.routed": len(queues)}
            inner = self._tracer.start_span(
                "route", set_span_in_context(span), attributes=route, start_time=_received(message, now)
            )
            inner.end(now)
            span.end(now)

    def delivered(self, queue: Queue, messages: Iterable[Message], consumer: str | None) -> None:
        """Record messages of a queue delivered to a consumer or, without a consumer, by ``basic.get``."""
        from opentelemetry.trace import SpanKind

        now, kind = time.time_ns(), "receive" if consumer is None else "deliver"
        for message in messages:
            context = _context(message)
            if context is None:
                continue
            attributes = _attributes(message.exchange, message) | {
                "messaging.operation.type": kind,
                "messaging.destination.subscription.name": queue.name,
                "jumpmq.redelivered": message.redelivered,
            }
            if consumer is not None:
                attributes["messaging.consumer.group.name"] = consumer
            span = self._tracer.start_span(
                f"{'get' if consumer is None else kind} {queue.name}",
                context,
                SpanKind.PRODUCER,
                attributes,
                start_time=_received(message, now),
            )
            span.end(now)

    def dead_lettered(
        self, queue: str, reason: str, dead_letters: Iterable[Message], routes: Mapping[Queue, list[Message]]
    ) -> None:
        """Record dead-lettered messages of a queue, and the queues reached."""
        reached: dict[int, list[str]] | None = None
        for letter in dead_letters:
            context = _context(letter)
            if context is None:
                continue
            reached = _reached(routes) if reached is None else reached
            now, queues = time.time_ns(), reached.get(id(letter), [])
            died = {"jumpmq.died_in": queue, "jumpmq.reason": reason, "jumpmq.queues": queues}
            attributes = _attributes(letter.exchange, letter) | died
            self._tracer.start_span(f"dead-letter {queue}", context, attributes=attributes, start_time=now).end(now)

    def close(self) -> None:
        """Send remaining spans; takes some seconds if the collector does not answer."""
        self._provider.shutdown()


def _provider(endpoint: str, node: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise BrokerError("otlp-endpoint needs OpenTelemetry's SDK: pip install 'jumpmq[tracing]'") from None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BrokerError(f"otlp-endpoint must be a URL such as http://127.0.0.1:4318, not {endpoint!r}")
    url = endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}{PATH}"
    own = {"service.name": "jumpmq", "service.version": __version__, "service.instance.id": node}
    provider = TracerProvider(resource=Resource(own).merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=2)))
    return provider


def _context(message: Message) -> Context | None:
    """Return the trace context of a message; None without a valid one."""
    if HEADER not in message.properties:
        return None
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {field.name: _text(field.value) for field in headers_of(message.properties) if field.name in CARRIED}
    context = TraceContextTextMapPropagator().extract(carrier)
    return context if get_current_span(context).get_span_context().is_valid else None


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _attributes(exchange: str, message: Message) -> dict[str, Any]:
    """Return the attributes of a message by OpenTelemetry's messaging conventions for RabbitMQ."""
    return {
        "messaging.system": "jumpmq",
        "messaging.destination.name": exchange,
        "messaging.rabbitmq.destination.routing_key": message.routing_key.decode("utf-8", "replace"),
        "messaging.message.body.size": len(message.body),
    }


def _received(message: Message, now: int) -> int:
    """Return the arrival time of a message in nanoseconds, the unit of spans; at most ``now``."""
    return min(int(message.published_at * 1e9), now)


def _reached(routes: Mapping[Queue, list[Message]]) -> dict[int, list[str]]:
    """Return the names of the queues reached, by message id."""
    found: dict[int, list[str]] = {}
    for queue, share in routes.items():
        for message in share:
            found.setdefault(id(message), []).append(queue.name)
    return found
