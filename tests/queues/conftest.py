"""Stores for queues with paging."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.opened import Opened


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A new store."""
    opened = Opened(tmp_path / "broker")
    yield opened
    opened.close()
