"""An empty topology, in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.opened import Opened
from tests.topology.built import Built

from jumpmq.topology import AddVirtualHost, Topology


@pytest.fixture
def built() -> Built:
    """A topology of one virtual host, ``/``."""
    topology = Topology("jumpmq@test")
    topology.apply(AddVirtualHost("/"))
    return Built(topology)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A new store."""
    opened = Opened(tmp_path / "broker")
    yield opened
    opened.close()
