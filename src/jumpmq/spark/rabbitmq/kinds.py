"""Detection of streams among queues over AMQP, which has no request for the type."""

from __future__ import annotations

import re
from typing import Any

from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field, typed
from jumpmq.client import AMQPConnection, RequestRefused
from jumpmq.spark.options import BrokerAddress
from jumpmq.spark.rabbitmq.link import connect

ACCESS_REFUSED, PRECONDITION_FAILED, NOT_IMPLEMENTED = 403, 406, 540

MAY_HAVE = ("x-max-length-bytes", "x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")
"""Arguments of a stream that a refused declaration may name, with their values."""

DIFFERENT = re.compile(r"inequivalent arg '([^']+)'.* current is the value '([^']*)' of type '(\w+)'")


def streams_among(broker: BrokerAddress, amqp: AMQPConnection, queues: list[str]) -> set[str]:
    """Return the streams among existing queues.

    Each queue is declared again as a stream: the broker accepts this for a stream, and for other queues refuses with
    the differing argument. If the user may not configure the queue, a ``basic.get`` follows, which streams refuse; a
    message from another queue is requeued.
    """
    streams: set[str] = set()
    asked: dict[str, dict[str, Any]] = {queue: {"x-queue-type": "stream"} for queue in queues}
    while asked:
        answers = amqp.declare_all([_declaration(queue, arguments) for queue, arguments in asked.items()])
        again: dict[str, dict[str, Any]] = {}
        for (queue, arguments), answer in zip(asked.items(), answers, strict=True):
            if not isinstance(answer, RequestRefused):
                streams.add(queue)
            elif answer.code == ACCESS_REFUSED:
                if _refuses_get(broker, queue):
                    streams.add(queue)
            elif answer.code == PRECONDITION_FAILED:
                found = DIFFERENT.search(str(answer))
                if found is not None and found[1] in MAY_HAVE and found[1] not in arguments:
                    again[queue] = arguments | {found[1]: found[2] if found[3] == "longstr" else int(found[2])}
        asked = again
    return streams


def _declaration(queue: str, arguments: dict[str, Any]) -> m.QueueDeclare:
    table = [Field(name, *typed(value)) for name, value in arguments.items()]
    return m.QueueDeclare(queue=queue, durable=True, arguments=table)


def _refuses_get(broker: BrokerAddress, queue: str) -> bool:
    try:
        with connect(broker) as amqp:
            found = amqp.get(queue)
            if found is not None:
                amqp.requeue(found.tag)
    except RequestRefused as refused:
        if refused.code != NOT_IMPLEMENTED:
            raise
        return True
    return False
