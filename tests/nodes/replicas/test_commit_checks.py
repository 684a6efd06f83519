"""Shipped pieces become whole commits; damaged pieces are refused before storage."""

import random

import pytest
from tests.store.opened import Opened, make_messages

from jumpmq.nodes.replicas.commit_checks import CommitChecks, DamagedCommit, Incoming
from jumpmq.replication.frames import Data
from jumpmq.replication.lineage import Stretch, position_at
from jumpmq.store.lineage import read_lineage
from jumpmq.store.log import DIRECTORY, file_name
from jumpmq.store.records import Opening


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stretch, bytes, int]:
    """Return a segment with commits of several sizes: its stretch, its octets, and the number of commits."""
    directory = tmp_path_factory.mktemp("store")
    opened = Opened(directory, epoch=7)
    first = opened.store.last_commit
    for start, end in ((1, 1), (2, 4), (5, 44), (45, 244)):
        opened.store.append(1, make_messages(start, end, lambda seq: b"%d" % seq * 200))
        opened.commit()
    stretch = read_lineage(directory).lineage[-1]
    octets = (directory / DIRECTORY / file_name(stretch.segment)).read_bytes()[: stretch.end]
    commits = opened.store.last_commit - first
    opened.close()
    assert stretch.epoch == 7
    return stretch, octets, commits


@pytest.mark.parametrize("seed", range(4))
def test_pieces_that_end_anywhere_become_whole_commits(written: tuple[Stretch, bytes, int], seed: int) -> None:
    stretch, octets, _ = written
    chance, checks = random.Random(seed), CommitChecks(stretch._replace(end=0))
    at, found = 0, b""
    while at < len(octets):
        piece = octets[at : at + chance.choice([1, 20, 500, 5000, 90000])]
        for position, whole in checks.add(position_at(stretch.segment, at), piece):
            assert position == position_at(stretch.segment, len(found))
            found += whole
        at += len(piece)
        assert len(found) + checks.waiting == at
    assert found == octets


def test_octets_of_half_a_commit_are_held_back(written: tuple[Stretch, bytes, int]) -> None:
    stretch, octets, _ = written
    checks = CommitChecks(stretch._replace(end=0))
    ((_, whole),) = checks.add(position_at(stretch.segment, 0), octets[:-1])
    again = CommitChecks(stretch._replace(end=len(whole)))
    ((position, rest),) = again.add(position_at(stretch.segment, len(whole)), octets[len(whole) :])
    assert (position, whole + rest) == (position_at(stretch.segment, len(whole)), octets)


def test_a_changed_octet_is_found_and_what_came_before_its_commit_is_kept(written: tuple[Stretch, bytes, int]) -> None:
    stretch, octets, _ = written
    chance = random.Random(3)
    for at in [0, 3, 40, 64, 68, 70, 90, 110, *(chance.randrange(len(octets)) for _ in range(60))]:
        damaged = bytearray(octets)
        damaged[at] ^= 1 << chance.randrange(8)
        found = b""
        try:
            for _, whole in CommitChecks(stretch._replace(end=0)).add(position_at(stretch.segment, 0), bytes(damaged)):
                found += whole
        except DamagedCommit:
            pass
        # The opening has two copies, and one copy is enough; a damaged length may ask for more octets than
        # came.
        assert len(found) <= at or at < 64
        assert bytes(damaged[: len(found)]) == found


def test_a_missing_or_repeated_commit_is_found(written: tuple[Stretch, bytes, int]) -> None:
    stretch, octets, _ = written
    checks = CommitChecks(stretch._replace(end=0))
    list(checks.add(position_at(stretch.segment, 0), octets))
    with pytest.raises(DamagedCommit, match=r"commit .* is there instead of"):
        list(checks.add(position_at(stretch.segment, len(octets)), octets[64:]))


def test_another_position_or_opening_is_refused(written: tuple[Stretch, bytes, int]) -> None:
    stretch, octets, _ = written
    with pytest.raises(DamagedCommit, match="was expected"):
        list(CommitChecks(stretch._replace(end=0)).add(position_at(stretch.segment, 64), octets[64:]))
    with pytest.raises(DamagedCommit, match="another segment"):
        list(CommitChecks(stretch._replace(end=0, salt=1)).add(position_at(stretch.segment, 0), octets))


def test_a_segment_begins_with_the_commit_that_follows_the_segment_before(
    written: tuple[Stretch, bytes, int],
) -> None:
    stretch, octets, _ = written
    data, end = Data(7, position_at(stretch.segment, 0), octets), position_at(stretch.segment - 1, 5000)
    first = Opening.decode(octets[:64])
    assert first is not None
    for number, ends in ((first.first_commit, end), (None, end), (99, end - (1 << 32))):
        incoming = Incoming(ends, number)
        incoming.begin("n1.a", stretch._replace(end=0), ends)
        assert b"".join(whole for _, whole in incoming.add("n1.a", data, ())) == octets
    for number in (first.first_commit + 1, first.first_commit - 1):
        incoming = Incoming(end, number)
        incoming.begin("n1.a", stretch._replace(end=0), end)
        with pytest.raises(DamagedCommit, match=f"begins with commit {first.first_commit}, and {number} comes next"):
            list(incoming.add("n1.a", data, ()))
