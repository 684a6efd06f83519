"""The compiled kernel lays messages out as its readable twin does."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from tests.amqp.streams import MESSAGES

from jumpmq.amqp.messages import Message
from jumpmq.store import _reference as reference

kernel: ModuleType = pytest.importorskip("jumpmq.store._kernel", reason="the compiled kernel is not built")

NOW = 1_700_000_000.25


@given(MESSAGES)
def test_columns(values: list[tuple[Any, ...]]) -> None:
    messages = [Message(*value, NOW + place) for place, value in enumerate(values)]
    for place, message in enumerate(messages):
        message.seq = 5 + place

    def columns(twin: ModuleType) -> list[Any]:
        binary = [twin.binary_column(messages, name) for name in ("exchange", "routing_key", "properties", "body")]
        return [*binary, twin.seq_column(messages), twin.time_column(messages)]

    assert columns(kernel) == columns(reference)
