"""Three nodes, with damage in all copies of a home: readable messages are served, and losses are reported."""

import contextlib
import subprocess
from functools import partial
from pathlib import Path

import pytest
from pika.exceptions import AMQPError
from tests.cli.commands import run
from tests.etcd import needs_etcd
from tests.nodes.copies.copied_nodes import Nodes, forced, published, served, taken, until
from tests.nodes.copies.damage import flip, place_of

from jumpmq.nodes.replicas.copy_directory import Noted
from jumpmq.replication.lineage import position_at
from jumpmq.store import losses

pytestmark = [needs_etcd, pytest.mark.several]

FIRST = 7_777_777
NUMBERS = range(FIRST, FIRST + 60)


@pytest.fixture
def stopped(three: Nodes) -> Nodes:
    """Three killed nodes with copies of home 1, and a queue with the messages of all numbers."""
    three.copied()
    one = three.all[0]
    published(one, "q", NUMBERS[:50])
    for copy in copies_of(three):
        path, at = place_of(b"%d" % NUMBERS[49], copy)
        position = position_at(int(path.stem), at)
        until(partial(is_noted, copy, position))
    published(one, "q", NUMBERS[50:])
    for node in three.all:
        node.kill()
    return three


def copies_of(nodes: Nodes) -> list[Path]:
    one, *others = nodes.all
    return [one.data_dir, *(node.data_dir / "copies" / "1" for node in others)]


def is_noted(copy: Path, position: int) -> bool:
    """Return True if a copy has recorded a position as complete."""
    return Noted.decode((copy / "replica").read_bytes()).mark > position


def start(nodes: Nodes) -> None:
    """Start all nodes; the home's own node last, whose start returns once the home is served."""
    one, *others = nodes.all
    for node in (*others, one):
        node.start()


def control(nodes: Nodes, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("jumpmqctl", *arguments, JUMPMQ_URL=f"http://guest:guest@127.0.0.1:{nodes.all[0].http_port}")


@pytest.mark.slow
def test_the_same_damage_in_all_copies_leaves_the_rest_served_and_named(stopped: Nodes) -> None:
    one, two, _ = stopped.all
    for copy in copies_of(stopped):
        flip(*place_of(b"7777810", copy))
    start(stopped)
    kept = [*NUMBERS[:33], *NUMBERS[34:]]
    assert taken(two, "q") == kept
    published(two, "q", range(5))
    assert stopped.configuration().min == 2
    assert "message" in control(stopped, "list_losses").stdout
    found = control(stopped, "check_copies", "1")
    assert (found.returncode, "have the same damage:\nlog/" in found.stdout) == (69, True)
    told = control(stopped, "list_copies").stdout
    assert all(f"{node.node}: " in told for node in stopped.all)

    two.kill()  # the next copy is made from damaged files: no better copy exists
    copies_of(stopped)[1].rename(two.data_dir / "lost")
    before = {*stopped.configuration().set}
    two.start()
    until(lambda: len({*stopped.configuration().set} - before) == 1 and len(stopped.configuration().set) == 3)
    one.kill()
    assert taken(two, "q") == [*range(5)]


@pytest.mark.slow
def test_different_damage_in_all_copies_stays_until_one_of_them_is_repaired(stopped: Nodes) -> None:
    _, two, other = stopped.all
    places = [place_of(b"%d" % NUMBERS[10 + number], copy) for number, copy in enumerate(copies_of(stopped))]
    for path, at in places:
        flip(path, at)
    start(stopped)
    assert taken(other, "q") == [*NUMBERS[:10], *NUMBERS[11:]]
    assert len(stopped.configuration().set) == 3
    assert not any((copy / "damaged").exists() for copy in copies_of(stopped))
    two.stop()
    flip(*places[1])
    (copies_of(stopped)[1] / "doubted").unlink()
    two.start()
    found: list[int] = []

    def repaired() -> bool:
        with contextlib.suppress(AMQPError, OSError):
            found.extend(taken(other, "q"))
        return found == [NUMBERS[10]]

    until(repaired)  # the repaired copy leads, and is the source of new copies
    until(lambda: all((copy / "damaged").exists() for copy in copies_of(stopped)[::2]))
    until(lambda: len(stopped.configuration().set) == 3)


@pytest.mark.slow
def test_a_damaged_copy_is_led_by_force_where_its_damage_hides_the_end_of_a_segment(stopped: Nodes) -> None:
    one, two, other = stopped.all
    for copy in copies_of(stopped):
        path, _ = place_of(b"7777810", copy)
        for at in (20, 52):  # of the segment's opening, stored twice
            flip(path, at)
    for node in (two, other):
        node.start()
    said: list[str] = []

    def done() -> bool:  # refused until the other nodes have found their damage
        result = forced(one, stopped.url)
        said.append(result.stdout)
        return result.returncode == 0

    until(done)
    assert "is damaged at octet 0" in said[-1]
    one.start()
    until(lambda: len(stopped.configuration().set) == 3)
    assert taken(two, "q") == []
    published(two, "q", range(5))
    assert served(other, "q") == 5
    noted_losses = [loss for folder in (one.data_dir, one.data_dir / "damaged") for loss, _ in losses.read(folder)]
    assert any("by force" in loss for loss in noted_losses) and any("is missing" in loss for loss in noted_losses)
