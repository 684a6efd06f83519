"""A release's decisions are decided alike by all later releases: members of a cluster replay the same log."""

from pathlib import Path

import pytest
from tests.topology.golden import LOGS, NODES, decided, end, entries

from jumpmq.topology import Topology


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.jsonl")), ids=lambda path: path.stem)
@pytest.mark.parametrize("home", [1, 2, 3])
def test_a_log_has_the_outcomes_that_it_had(path: Path, home: int) -> None:
    topology = Topology(NODES[home - 1], home=home)
    *changes, last = entries(path)
    for entry in changes:
        assert decided(topology, entry["change"]) == entry
    assert end(topology) == last
