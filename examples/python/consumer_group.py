#!/usr/bin/env python3
"""Share the queues of a consistent hash exchange: start it in several terminals, stop some, start more.

Every key's messages come to one process at a time, in order.
"""

import argparse
import os

import pika


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="amqp://guest:guest@127.0.0.1:5672/%2F")
    parser.add_argument("--publish", type=int, default=0, metavar="N", help="first publish N messages of 20 keys")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="stop after so many seconds without a message")
    arguments = parser.parse_args()

    channel = pika.BlockingConnection(pika.URLParameters(arguments.url)).channel()
    channel.exchange_declare("orders", "x-consistent-hash", durable=True)
    for number in range(4):
        channel.queue_declare(f"orders-{number}", durable=True)
        channel.queue_bind(f"orders-{number}", "orders", routing_key="1")
    for number in range(arguments.publish):
        channel.basic_publish("orders", f"customer {number % 20}", b"order %d" % number)

    channel.basic_qos(prefetch_count=20)  # over all queues of this member
    member = {"x-consumer-group": "billing"}
    for method, properties, body in channel.consume("orders", arguments=member, inactivity_timeout=arguments.idle):
        if method is None:
            break
        print(os.getpid(), properties.headers["x-queue"], method.routing_key, body.decode(), flush=True)
        channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    main()
