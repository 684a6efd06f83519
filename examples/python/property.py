#!/usr/bin/env python3
"""Spread messages over four queues by a property: message_id here; correlation_id and timestamp work as well."""

import pika
from spreading import Message, spread


def message(key: str) -> Message:
    return "", pika.BasicProperties(message_id=key)


if __name__ == "__main__":
    spread(__doc__, "e3", {"hash-property": "message_id"}, message)
