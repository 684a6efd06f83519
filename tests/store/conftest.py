"""Stores in separate directories."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.store.lagging import Lagging
from tests.store.opened import Opened


@pytest.fixture(params=["at once", pytest.param("lagging", marks=pytest.mark.slow)])
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A new store, whose commits are complete once on disk, or after a delay."""
    lags = request.param == "lagging"
    opened = Opened(tmp_path / "broker", completion=(lambda: Lagging(Random(1))) if lags else None)
    yield opened
    opened.close()


@pytest.fixture
def told() -> Iterator[tuple[int, int]]:
    """A pipe for positions."""
    readable, writable = os.pipe2(os.O_NONBLOCK)
    yield readable, writable
    os.close(readable)
    os.close(writable)
