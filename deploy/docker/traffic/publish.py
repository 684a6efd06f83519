"""Publishes orders of 500 customers to a consistent hash exchange, some 200 a second, until it is stopped."""

import itertools
import os
import random
import time

import pika

QUEUES = 4
RATE = 200


def main() -> None:
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    channel.exchange_declare("orders", "x-consistent-hash", durable=True)
    for number in range(1, QUEUES + 1):
        channel.queue_declare(f"orders-{number}", durable=True)
        channel.queue_bind(f"orders-{number}", "orders", routing_key="1")
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2, content_type="text/plain")
    for number in itertools.count(1):
        customer = f"customer-{random.randrange(500)}"
        channel.basic_publish("orders", customer, f"order {number}", persistent, mandatory=True)
        time.sleep(1 / RATE)


if __name__ == "__main__":
    main()
