"""Three nodes of a cluster with a real etcd, for each test: `three` for failures, `cluster` for operators."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.etcd import etcd
from tests.nodes.copies.copied_nodes import NAMES, Nodes
from tests.nodes.copies.operated_cluster import Cluster, running


@pytest.fixture
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """Three nodes; every home has one copy, or the number in the parameter."""
    options = ("--copies", str(getattr(request, "param", 1)), "--return-after", "1")
    with etcd(tmp_path) as members, Nodes(tmp_path, members[0].url, dict.fromkeys(NAMES, options)) as nodes:
        yield nodes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes with fixed ports."""
    with running(tmp_path) as cluster:
        yield cluster
