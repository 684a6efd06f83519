#!/usr/bin/env python3
"""Spread messages over four queues by a header, which leaves the routing key free for other uses."""

import pika
from spreading import Message, spread


def message(key: str) -> Message:
    return "", pika.BasicProperties(headers={"hash-on": key})


if __name__ == "__main__":
    spread(__doc__, "e2", {"hash-header": "hash-on"}, message)
