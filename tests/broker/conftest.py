"""A durable broker inside the test process, shared by the tests of a file."""

from collections.abc import Iterator

import pytest

import jumpmq


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    """A running broker."""
    with jumpmq.running(data_dir=tmp_path_factory.mktemp("broker")) as running:
        yield running
