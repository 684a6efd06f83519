"""The golden vectors, and the two kernels, which must agree."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jumpmq.hashing import _kernel, _reference

VECTORS = Path(__file__).parent.parent / "data"

Vectors = Callable[[str], list[dict[str, Any]]]
"""Reads a file of golden vectors by name."""


@pytest.fixture(scope="session")
def vectors() -> Vectors:
    """Read a file of golden vectors: ``vectors("jump")`` is a list of its lines."""
    return lambda name: [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session", params=[_kernel, _reference], ids=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Both kernels in turn."""
    kernel: ModuleType = request.param
    return kernel
