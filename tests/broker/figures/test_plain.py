"""Metrics as JSON between processes, also of different releases."""

import json

from jumpmq.broker.figures.plain import dump, reader
from jumpmq.broker.figures.values import QueueFenceFigures
from jumpmq.queues.fences import FenceFigures


def test_fields_that_a_later_release_appended_are_passed_over() -> None:
    fenced = QueueFenceFigures("/", "q", FenceFigures(*range(len(FenceFigures._fields))))
    vhost, queue, fence = json.loads(dump(fenced))
    assert reader(QueueFenceFigures)([vhost, queue, [*fence, "later"], {"later": 1}]) == fenced
