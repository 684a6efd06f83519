"""An empty topology, in memory."""

import pytest
from tests.topology.built import Built

from jumpmq.topology import AddVirtualHost, Topology


@pytest.fixture
def built() -> Built:
    """A topology of one virtual host, ``/``."""
    topology = Topology("jumpmq@test")
    topology.apply(AddVirtualHost("/"))
    return Built(topology)
