"""Shipping from a log's files: in pieces, with a window, for any size of commits."""

import asyncio
from pathlib import Path
from typing import Any

from tests.nodes.homes import in_loop, until
from tests.store.opened import Opened, make_messages

from jumpmq.nodes.replicas.commit_checks import CommitChecks
from jumpmq.nodes.replicas.shipping import Shipping
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Data, Fetched, Frame, Segment
from jumpmq.replication.lineage import end_of, grown_to, position_at
from jumpmq.store.lineage import read_lineage
from jumpmq.store.log import DIRECTORY, file_name


class Shipped:
    """A home with commits of several sizes, and the octets shipped from it."""

    def __init__(self, directory: Path, **sizes: Any) -> None:
        opened = Opened(directory, segment_bytes=1 << 18)
        opened.store.keep_from(1)
        last = 0
        for count in (1, 3, 300, 2, 1, 40, 400):
            opened.store.append(1, make_messages(last + 1, last + count, lambda seq: b"%d " % seq * 300))
            opened.commit()
            last += count
        opened.close()
        self.directory = directory
        self.copy = Copy("a.1", 1, 0, read_lineage(directory).lineage)
        self.frames: list[Frame] = []
        self.gone: list[str] = []
        self.shipping = Shipping(
            directory,
            self.copy,
            lambda peer, frame: self.frames.append(frame),
            lambda peers, frame: self.frames.extend(frame for _ in peers),
            lambda peer, why: self.gone.append(why),
            **sizes,
        )

    def received(self) -> list[tuple[int, bytes]]:
        """Return whole commits by position, assembled as a follower assembles the pieces."""
        found: list[tuple[int, bytes]] = []
        checks = None
        for frame in self.frames:
            if isinstance(frame, Segment):
                checks = CommitChecks(frame.stretch)
            elif isinstance(frame, Data):
                assert checks is not None
                found += checks.add(frame.position, frame.octets)
        return found

    @property
    def octets(self) -> bytes:
        return b"".join(
            (self.directory / DIRECTORY / file_name(one.segment)).read_bytes()[: one.end] for one in self.copy.lineage
        )


@in_loop
async def test_a_commit_larger_than_the_window_is_shipped_and_stored_commits_make_room(tmp_path: Path) -> None:
    shipped = Shipped(tmp_path, window=1 << 16, piece=10_000)
    assert any(one.end > 1 << 17 for one in shipped.copy.lineage) and len(shipped.copy.lineage) > 1
    shipped.shipping.ship("b.1", 0, 1)
    end = end_of(shipped.copy.lineage)
    before = -1
    while shipped.shipping.positions["b.1"] < end:
        await until(lambda: shipped.shipping._followers["b.1"].waits or shipped.shipping.positions["b.1"] == end)
        commits = shipped.received()
        assert len(commits) > before, "it waits with whole commits only, so that they can be stored"
        before = len(commits)
        shipped.shipping.stored("b.1", commits[-1][0] + len(commits[-1][1]))
    assert b"".join(octets for _, octets in shipped.received()) == shipped.octets
    shipped.shipping.stop_all()


@in_loop
async def test_a_candidate_is_told_when_it_has_all(tmp_path: Path) -> None:
    shipped = Shipped(tmp_path)
    first = shipped.copy.lineage[0]
    shipped.shipping.fill("b.1", position_at(first.segment, first.end), 4)
    await until(lambda: shipped.frames and isinstance(shipped.frames[-1], Fetched))
    assert shipped.frames[0] == Segment(4, shipped.copy.lineage[1]._replace(end=0))
    assert shipped.frames[-1] == Fetched(4, end_of(shipped.copy.lineage))
    assert b"".join(octets for _, octets in shipped.received()) == shipped.octets[first.end :]


@in_loop
async def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    shipped = Shipped(tmp_path)
    (tmp_path / DIRECTORY / file_name(shipped.copy.lineage[0].segment)).unlink()
    shipped.shipping.ship("b.1", 0, 1)
    await until(lambda: shipped.gone)
    assert "cannot be read: No such file" in shipped.gone[0]
    await asyncio.sleep(0)


@in_loop
async def test_a_commit_goes_ahead_of_the_files_to_followers_that_have_all_before_it(tmp_path: Path) -> None:
    shipped = Shipped(tmp_path)
    end = end_of(shipped.copy.lineage)
    assert not shipped.shipping.ship_ahead(end, b"nobody", 1)
    shipped.shipping.ship("b.1", end - 100, 1)
    assert not shipped.shipping.ship_ahead(end, b"too early", 1)
    await until(lambda: shipped.shipping.positions["b.1"] == end)
    before = len(shipped.frames)
    assert shipped.shipping.ship_ahead(end, b"first", 1) and shipped.shipping.ship_ahead(end + 5, b"second", 1)
    assert shipped.frames[before:] == [Data(1, end, b"first"), Data(1, end + 5, b"second")]
    shipped.copy.lineage = grown_to(shipped.copy.lineage, end + 5)
    shipped.shipping.written()
    shipped.shipping.stored("b.1", end + 11)
    shipped.shipping.ship("c.1", end + 5, 1)
    assert not shipped.shipping.ship_ahead(end + 11, b"one is behind", 1)
    await asyncio.sleep(0.01)
    assert len(shipped.frames) == before + 2 and not shipped.gone, "what was shipped ahead is not shipped again"
    shipped.shipping.stop_all()
