#!/usr/bin/env python3
"""Celery with four queues of a consistent hash exchange: all tasks of a customer go to the same queue.

Start a worker for each queue, with one process, and each customer's tasks run in order; then queue tasks:

    for n in 1 2 3 4; do celery -A celery_hash_exchange worker --concurrency 1 -Q tasks-$n -n worker-$n@%h & done
    python celery_hash_exchange.py 100
"""

import os
import sys

from celery import Celery
from kombu import Exchange, Queue

app = Celery("billing", broker=os.environ.get("BROKER_URL", "amqp://guest:guest@127.0.0.1:5672//"))
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 1
tasks = Exchange("tasks", type="x-consistent-hash", durable=True)
app.conf.task_queues = [Queue(f"tasks-{number}", tasks, routing_key="1") for number in range(1, 5)]  # the weight
app.conf.task_default_queue = "tasks-1"


@app.task(name="bill")
def bill(customer: str, order: int) -> None:
    print(f"billed {customer} {order}", flush=True)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        customer = f"customer-{number % 20}"
        bill.apply_async((customer, number), exchange=tasks, routing_key=customer)
