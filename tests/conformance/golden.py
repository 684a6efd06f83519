"""The golden vectors of `tests/data`, computed by Erlang/OTP 25 and RabbitMQ."""

import json
from pathlib import Path
from typing import Any

BUCKETS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 20, 32, 64, 100, 128, 1000, 4096, 10000)
"""Ring sizes with a bucket in every vector."""


def vectors(name: str) -> list[dict[str, Any]]:
    """The lines of `tests/data/NAME.jsonl`."""
    path = Path(__file__).parents[1] / "data" / f"{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines, f"{path} is empty"
    return lines
