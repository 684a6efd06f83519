#!/usr/bin/env python3
"""Celery with `countdown`, `eta` and retries through a delaying exchange: workers hold no task before its time.

Start a worker, then queue tasks with delays in seconds:

    celery -A celery_delayed worker --concurrency 1 &
    python celery_delayed.py 3 1 2

Start a worker, then queue tasks that are due in so many seconds:

    celery -A celery_delayed worker --concurrency 1 &
    python celery_delayed.py 3 1 2
"""

import os
import sys
from datetime import UTC, datetime
from typing import Any

from celery import Celery, Task
from celery.utils.time import maybe_make_aware
from kombu import Exchange, Queue


class Delayed(Task):
    """Sends the header `x-delay` in place of `countdown` and `eta`."""

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        countdown, eta = options.pop("countdown", None), options.pop("eta", None)
        if eta is not None:
            if isinstance(eta, str):
                eta = datetime.fromisoformat(eta)
            countdown = (maybe_make_aware(eta) - datetime.now(UTC)).total_seconds()
        if countdown:
            delay = {"x-delay": max(0, round(countdown * 1000))}
            options["headers"] = {**(options.get("headers") or {}), **delay}
        return super().apply_async(args, kwargs, **options)


app = Celery("reminders", broker=os.environ.get("BROKER_URL", "amqp://guest:guest@127.0.0.1:5672//"), task_cls=Delayed)
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 1
later = Exchange("later", type="x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
app.conf.task_queues = [Queue("reminders", later, routing_key="reminders")]
app.conf.task_default_queue = app.conf.task_default_routing_key = "reminders"
app.conf.task_default_exchange = "later"


@app.task(name="remind", bind=True, max_retries=1)
def remind(task: Any, name: str) -> None:
    if not task.request.retries:
        raise task.retry(countdown=0.5)
    print(f"reminded {name}", flush=True)


if __name__ == "__main__":
    for seconds in map(float, sys.argv[1:]):
        remind.apply_async((f"of {seconds:g}",), countdown=seconds)
