"""Allowed arguments of a queue. The texts were read off RabbitMQ 3.10.8."""

from typing import Any

import pytest
from tests.topology.built import Built

from jumpmq.amqp.errors import PreconditionFailed

TEN_YEARS = 315_360_000_000

ACCEPTED: list[dict[str, Any]] = [
    {"x-message-ttl": 0},
    {"x-message-ttl": TEN_YEARS},
    {"x-expires": 1},
    {"x-expires": TEN_YEARS},
    {"x-max-length": 0},
    {"x-max-length-bytes": 2**40},
    {"x-overflow": "drop-head"},
    {"x-overflow": "reject-publish"},
    {"x-overflow": "reject-publish-dlx"},
    {"x-dead-letter-exchange": "nobody", "x-dead-letter-routing-key": "k"},
    {"x-max-priority": 0},
    {"x-max-priority": 255},
    {"x-queue-type": "classic"},
    {"x-queue-mode": "lazy"},
    {"x-queue-version": 2},
    {"x-single-active-consumer": True},
    {"x-unknown": "anything", "foo": [1]},
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"x-message-ttl": -1}, "invalid arg 'x-message-ttl' {}: {{value_negative,-1}}"),
    ({"x-message-ttl": "60"}, "invalid arg 'x-message-ttl' {}: \"expected integer, got longstr\""),
    ({"x-message-ttl": True}, "invalid arg 'x-message-ttl' {}: \"expected integer, got bool\""),
    ({"x-message-ttl": None}, "invalid arg 'x-message-ttl' {}: \"expected integer, got void\""),
    ({"x-message-ttl": TEN_YEARS + 1}, "invalid arg 'x-message-ttl' {}: {{value_too_large,315360000001}}"),
    ({"x-expires": 0}, "invalid arg 'x-expires' {}: {{value_zero,0}}"),
    ({"x-expires": -1}, "invalid arg 'x-expires' {}: {{value_negative,-1}}"),
    ({"x-message-ttl": -1, "x-expires": -1}, "invalid arg 'x-expires' {}: {{value_negative,-1}}"),
    ({"x-max-length": -1}, "invalid arg 'x-max-length' {}: {{value_negative,-1}}"),
    ({"x-max-length": "a"}, "invalid arg 'x-max-length' {}: \"expected integer, got longstr\""),
    ({"x-max-length-bytes": [1]}, "invalid arg 'x-max-length-bytes' {}: \"expected integer, got array\""),
    ({"x-overflow": "bogus"}, "invalid arg 'x-overflow' {}: invalid_overflow"),
    ({"x-overflow": 1}, "invalid arg 'x-overflow' {}: {{unacceptable_type,signedint}}"),
    (
        {"x-dead-letter-exchange": 1},
        "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'",
    ),
    ({"x-dead-letter-routing-key": "k"}, "invalid arg 'x-dead-letter-routing-key' {}: routing_key_but_no_dlx_defined"),
    ({"x-dead-letter-routing-key": 1}, "invalid arg 'x-dead-letter-routing-key' {}: {{unacceptable_type,signedint}}"),
    ({"x-max-priority": 256}, "invalid arg 'x-max-priority' {}: {{max_value_exceeded,256}}"),
    ({"x-max-priority": -1}, "invalid arg 'x-max-priority' {}: {{value_negative,-1}}"),
    ({"x-queue-type": "bogus"}, "invalid arg 'x-queue-type' {}: \"unsupported queue type 'bogus'\""),
    ({"x-queue-type": 1}, "invalid arg 'x-queue-type' {}: {{unacceptable_type,signedint}}"),
    ({"x-queue-mode": "bogus"}, "invalid arg 'x-queue-mode' {}: \"unsupported queue mode 'bogus'\""),
    ({"x-queue-version": 3}, "invalid arg 'x-queue-version' {}: \"unsupported queue version '3'\""),
    ({"x-queue-version": "a"}, "invalid arg 'x-queue-version' {}: \"expected integer, got longstr\""),
    ({"x-single-active-consumer": 1}, "invalid arg 'x-single-active-consumer' {}: {{unacceptable_type,signedint}}"),
    ({"x-max-age": "1h"}, "invalid arg 'x-max-age' {} of queue type rabbit_classic_queue"),
    ({"x-delivery-limit": 1}, "invalid arg 'x-delivery-limit' {} of queue type rabbit_classic_queue"),
    ({"x-max-age": "1h", "x-message-ttl": -1}, "invalid arg 'x-message-ttl' {}: {{value_negative,-1}}"),
]


@pytest.mark.parametrize("arguments", ACCEPTED)
def test_accepted_arguments(built: Built, arguments: dict[str, Any]) -> None:
    queue = built.queue("q", arguments)
    assert built.vhost.definition(queue).arguments.plain() == arguments


@pytest.mark.parametrize(("arguments", "text"), REFUSED)
def test_refused_arguments(built: Built, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        built.queue("q", arguments)
    assert refused.value.text == text.format("for queue 'q' in vhost '/'")
    assert "q" not in built.vhost.queues
