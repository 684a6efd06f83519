"""A member of a consumer group, until killed: python member_pika.py URL NAME LOG."""

import os
import random
import sys
import time
from typing import Any

import pika

url, name, log = sys.argv[1:]
written = os.open(log, os.O_WRONLY | os.O_APPEND)
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
channel.basic_qos(prefetch_count=20)


def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
    """Log the message, delay some, and acknowledge it."""
    epoch = properties.headers["x-owner-epoch"]
    os.write(written, f"got {name} {method.delivery_tag} {body.decode()} {int(method.redelivered)} {epoch}\n".encode())
    if random.random() < 0.1:
        time.sleep(0.01)
    os.write(written, f"ack {name} {method.delivery_tag}\n".encode())
    channel.basic_ack(method.delivery_tag)


group = {"x-consumer-group": "g", "x-rebalance-delay": 50, "x-stream-offset": "first"}
channel.basic_consume("orders", on_message, arguments=group)
channel.start_consuming()
