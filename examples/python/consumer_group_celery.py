#!/usr/bin/env python3
"""Celery workers that run the tasks of a customer in order, one at a time, and share the customers.

Start one or several workers, and then queue tasks:

    celery -A consumer_group_celery worker --concurrency 4
    python consumer_group_celery.py 100
"""

import os
import sys

from celery import Celery
from kombu import Queue

app = Celery("billing", broker=os.environ.get("BROKER_URL", "amqp://guest:guest@127.0.0.1:5672//"))
app.conf.task_acks_late = True  # a task's slot is released after the task, not at its start
app.conf.worker_prefetch_multiplier = 1
app.conf.task_default_queue = "tasks"
app.conf.task_queues = [
    Queue(
        "tasks",
        queue_arguments={"x-slots": 64, "x-slot-key": "header:customer", "x-in-flight-per-slot": 1},
        consumer_arguments={"x-consumer-group": "workers"},
    )
]


@app.task(name="bill")
def bill(customer: str, order: int) -> None:
    print(f"billed {customer} order {order}", flush=True)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        customer = f"customer-{number % 20}"
        bill.apply_async((customer, number), headers={"customer": customer})
