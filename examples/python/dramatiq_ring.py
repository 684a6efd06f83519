#!/usr/bin/env python3
"""Dramatiq publishes to queues, not to exchanges: the ring of a hash exchange picks the queue, as the broker would.

A customer's tasks are all in one queue. Start a worker for each queue, and then queue tasks (Dramatiq itself may start
tasks of the same millisecond in another order):

    for n in 1 2 3 4; do dramatiq dramatiq_ring --processes 1 --threads 1 --queues tasks-$n & done
    python dramatiq_ring.py 100
"""

import os
import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from jumpmq.hashing import HashRing

broker = RabbitmqBroker(url=os.environ.get("BROKER_URL", "amqp://guest:guest@127.0.0.1:5672/"))
dramatiq.set_broker(broker)
ring = HashRing()
for number in range(1, 5):
    broker.declare_queue(f"tasks-{number}")
    ring.add(f"tasks-{number}", 1)  # the weight


@dramatiq.actor(queue_name="tasks-1")
def bill(customer: str, order: int) -> None:
    print(f"billed {customer} {order}", flush=True)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        customer = f"customer-{number % 20}"
        broker.enqueue(bill.message(customer, number).copy(queue_name=ring.route(customer.encode())))
