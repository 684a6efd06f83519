"""The common log of workers under simulated links, disks and crashes, with schedules of hypothesis."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from tests.generating import examples
from tests.nodes.log.disks import Disk
from tests.nodes.log.schedules import Schedule
from tests.nodes.log.simulated_workers import NODE, STEPS, play

from jumpmq.nodes.log.first import First
from jumpmq.nodes.log.shared_log import FIRST
from jumpmq.topology import (
    AddVirtualHost,
    Topology,
)

MOVES: list[tuple[Any, ...]] = [
    *(("ask", 1, kind) for kind in (0, 0, 1, 4, 1, 1, 4, 1, 5, 5, 4)),
    ("commit", 1),
    *[("arrive", 2, True)] * 11,
    ("commit", 2),
    ("kill", 2),
]
"""Two queues move to home 2; the queue with the later number moves back."""


@given(STEPS)
@example(MOVES)
@example([("ask", 1, 0), ("arrive", 2, True), ("kill", 1)])  # nothing is reported before it is on disk
@example([("ask", 2, 0), ("arrive", 2, False), ("cut", 2), ("mend", 2), ("arrive", 2, False)])  # asked for again
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_breaks_the_homes_agree(steps: Schedule) -> None:
    play(steps)


def test_a_home_whose_link_breaks_before_it_is_sent_definitions_is_not_waited_for() -> None:
    """Answers do not wait for a home whose link breaks before the definitions, which wait for the disk, are sent."""
    topology, on_disk, sent = Topology(NODE, home=FIRST, shared=True), list[Callable[[], None]](), list[Any]()
    first = First(topology, Disk(), [], 0, list, on_disk.append, [2], "b")
    topology.order_by(first)

    class Port:
        def send_log(self, message: Any) -> None:
            sent.append(message)

    assert first.join(2, Port(), None, 0, None) is None
    first.leave(2)
    pending = topology.propose(AddVirtualHost("/"))
    for then in on_disk:
        then()
    assert (first.joined, sent, pending.decided) == ([], [], True)
