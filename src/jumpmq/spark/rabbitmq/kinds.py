"""Whether a queue is a stream, which AMQP does not say in so many words."""

from __future__ import annotations

import re
from typing import Any

from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field, typed
from jumpmq.client import AMQPConnection, Refused
from jumpmq.spark.options import Broker
from jumpmq.spark.rabbitmq.link import connect

ACCESS_REFUSED, PRECONDITION_FAILED, NOT_IMPLEMENTED = 403, 406, 540

MAY_HAVE = ("x-max-length-bytes", "x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")
"""Arguments of a stream that a refusal may name, with their values."""

DIFFERENT = re.compile(r"inequivalent arg '([^']+)'.* current is the value '([^']*)' of type '(\w+)'")


def is_stream(broker: Broker, queue: str) -> bool:
    """Whether a queue that is there is a stream.

    It is declared again as one: that is granted to a stream, and refused with the difference for any other queue. A
    user who may not configure it gets a message instead, which a stream refuses, and gives it back.
    """
    arguments: dict[str, Any] = {"x-queue-type": "stream"}
    while True:
        try:
            with connect(broker) as amqp:
                table = [Field(name, *typed(value)) for name, value in arguments.items()]
                return _declares(amqp, queue, table)
        except Refused as refused:
            if refused.code == ACCESS_REFUSED:
                return _refuses_get(broker, queue)
            found = DIFFERENT.search(str(refused))
            if refused.code != PRECONDITION_FAILED or found is None or found[1] not in MAY_HAVE:
                return False
            arguments[found[1]] = found[2] if found[3] == "longstr" else int(found[2])


def _declares(amqp: AMQPConnection, queue: str, arguments: list[Field]) -> bool:
    amqp.call(m.QueueDeclare(queue=queue, durable=True, arguments=arguments), m.QueueDeclareOk)
    return True


def _refuses_get(broker: Broker, queue: str) -> bool:
    try:
        with connect(broker) as amqp:
            found = amqp.get(queue)
            if found is not None:
                amqp.requeue(found.tag)
    except Refused as refused:
        if refused.code != NOT_IMPLEMENTED:
            raise
        return True
    return False
