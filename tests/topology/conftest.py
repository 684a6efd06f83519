"""An empty topology, in memory."""

import pytest

from jumpmq.topology import AddVirtualHost, Topology
from tests.topology.built import Built


@pytest.fixture
def built() -> Built:
    """A topology of one virtual host, ``/``."""
    topology = Topology("jumpmq@test")
    topology.apply(AddVirtualHost("/"))
    return Built(topology)
