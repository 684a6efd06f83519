"""Homes of remote nodes, served by a local process."""

import pytest

from jumpmq.nodes.copies.serving import guest_port


@pytest.mark.parametrize(
    ("cluster_port", "taken", "port"),
    [(25672, (), 25872), (25672, (25872, 25874), 25873), (65500, (), 0), (0, (), 0)],
)
def test_links_of_a_guest_have_a_port_that_a_firewall_can_know(
    cluster_port: int, taken: tuple[int, ...], port: int
) -> None:
    assert guest_port(cluster_port, taken) == port
