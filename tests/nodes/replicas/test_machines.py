"""Replicas of a home as processes, with real sockets, disks and etcd, killed while the first one publishes."""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.etcd import EtcdMember, etcd, needs_etcd
from tests.nodes.replicas.machine import KEY, LOG, QUEUE, directory_of
from tests.store.opened import Opened, killed_now
from tests.waiting import until

from jumpmq.nodes.etcd.client import Etcd
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey
from jumpmq.nodes.replicas.copy_directory import NOTE, CopyDirectory
from jumpmq.replication.configuration import Configuration, default_min
from jumpmq.replication.lineage import common_end, cut_to, end_of, position_at, segment_at
from jumpmq.store import DirectoryInUse, DirectoryLock
from jumpmq.store.index import first_segment_behind
from jumpmq.store.inspection import check
from jumpmq.store.lineage import read_lineage
from jumpmq.store.log import DIRECTORY, file_name
from jumpmq.store.records import OPENING_SIZE

pytestmark = [needs_etcd, pytest.mark.several]


class Machines:
    """So many replicas as processes, for kills and restarts.

    Attributes:
        folder: parent of the replicas' directories.
    """

    def __init__(self, folder: Path, count: int, members: list[EtcdMember], kind: str) -> None:
        self.kind = kind
        self.folder, self.count, self.url = folder, count, members[0].url
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        command = [sys.executable, "-m", "tests.nodes.replicas.machine", str(number), str(self.count)]
        with (self.folder / f"n{number}.log").open("ab") as log:
            arguments = [*command, str(self.folder), self.url, self.kind]
            self._processes[number] = subprocess.Popen(arguments, stderr=log)

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def signal(self, number: int, what: signal.Signals) -> None:
        if (process := self._processes.get(number)) is not None:
            process.send_signal(what)

    def end(self, number: int) -> None:
        process = self._processes.pop(number)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (self.folder / f"n{number}.log").read_text()

    def kill_all(self) -> None:
        for number in list(self._processes):
            self.kill(number)

    def require_running(self) -> None:
        for number, process in self._processes.items():
            assert process.poll() is None, (self.folder / f"n{number}.log").read_text()

    def all_in_set(self) -> None:
        def look() -> bool:
            self.require_running()
            return len(asyncio.run(configuration(self.url)).set) == self.count

        try:
            until(look)
        except AssertionError:
            logs = [(self.folder / f"n{number}.log").read_text() for number in range(1, self.count + 1)]
            raise AssertionError(f"{asyncio.run(configuration(self.url))}: {logs}") from None

    @property
    def confirmed(self) -> int:
        try:
            return int((self.folder / "confirmed").read_text().split()[-1])
        except (FileNotFoundError, IndexError):
            return 0

    def more(self, by: int = 20) -> None:
        """Wait until more is confirmed."""
        before = self.confirmed

        def look() -> bool:
            self.require_running()
            return self.confirmed >= before + by

        until(look)

    def directory(self, number: int) -> Path:
        return directory_of(self.folder, number)


async def configured(folder: Path, count: int, url: str) -> None:
    """All replicas are in the set, with empty logs."""
    disks = []
    for number in range(1, count + 1):
        directory = CopyDirectory(directory_of(folder, number), LOG)
        disks.append(f"n{number}.{directory.noted.disk}")
        directory.close()
    nodes = tuple(f"n{number}" for number in range(1, count + 1))
    value = Configuration(1, LOG, "n1", count, default_min(count), nodes, 1, disks[0], tuple(disks))
    client = Etcd([url])
    try:
        assert await ConfigurationKey(client, KEY).swap(None, value) == value
    finally:
        await client.close()


async def configuration(url: str) -> Configuration:
    client = Etcd([url])
    try:
        value = await ConfigurationKey(client, KEY).read()
        assert value is not None
        return value
    finally:
        await client.close()


@pytest.fixture
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machines]:
    (tmp_path / "links").mkdir(mode=0o700)
    with etcd(tmp_path) as members:
        asyncio.run(configured(tmp_path, 3, members[0].url))
        machines = Machines(tmp_path, 3, members, getattr(request, "param", "kept"))
        try:
            for number in (1, 2, 3):
                machines.start(number)
            yield machines
        finally:
            machines.kill_all()


def require_equal(one: Path, other: Path) -> int:
    """Assert that two logs are equal up to the shorter end, except for removed segments; return the end."""
    logs = read_lineage(one).lineage, read_lineage(other).lineage
    mine, theirs = [[stretch for stretch in log if stretch.end > OPENING_SIZE] for log in logs]
    end = common_end(mine, theirs)
    assert end == min(end_of(mine), end_of(theirs)), "they part before the shorter one ends"
    there = {stretch.segment for stretch in theirs}
    for stretch in [one for one in cut_to(mine, end) if one.segment in there]:
        name = file_name(stretch.segment)
        mine_octets = (one / DIRECTORY / name).read_bytes()[: stretch.end]
        assert mine_octets == (other / DIRECTORY / name).read_bytes()[: stretch.end], name
    return end


def last_commit_in(directory: Path) -> int:
    """Return the end of the last commit: a segment without commits is not shipped."""
    return end_of([stretch for stretch in read_lineage(directory).lineage if stretch.end > OPENING_SIZE])


def is_free(directory: Path) -> bool:
    try:
        DirectoryLock(directory).release()
    except DirectoryInUse:
        return False
    return True


def messages_in(directory: Path) -> list[int]:
    """Return the numbers of a store's messages in a directory."""
    until(lambda: is_free(directory))  # a process that indexes a copy ends a moment after its parent
    opened = Opened(directory)
    try:
        return sorted(one.seq for batch in opened.store.batches().get(QUEUE, []) for one in opened.store.read(batch))
    finally:
        opened.close()


def test_followers_have_what_the_leader_has_octet_for_octet(three: Machines) -> None:
    three.more(200)
    three.end(1)
    for number in (2, 3):
        three.end(number)
        end = require_equal(three.directory(1), three.directory(number))
        assert end == last_commit_in(three.directory(1)), "all of it was complete"
    last = three.confirmed
    shutil.rmtree(three.directory(1))  # the disk is lost, and a follower's copy takes its place
    shutil.copytree(three.directory(3), three.directory(1))
    assert messages_in(three.directory(1)) == list(range(1, last + 1))


@pytest.mark.slow
def test_nothing_confirmed_is_lost_when_any_of_them_are_stopped_and_killed(three: Machines) -> None:
    chance = random.Random()
    for _ in range(4):
        three.more(chance.randrange(1, 60))
        gone = chance.sample([1, 2, 3], chance.choice([1, 1, 2, 3]))
        paused = chance.choice([1, 2, 3])
        three.signal(paused, signal.SIGSTOP)
        for number in gone:
            three.kill(number)
        time.sleep(chance.choice([0, 0.2, 0.8, 2]))
        three.signal(paused, signal.SIGCONT)
        for number in chance.sample(gone, len(gone)):
            three.start(number)
    three.more(50)
    three.all_in_set()
    last = three.confirmed
    three.kill_all()
    for number in (2, 3):
        require_equal(three.directory(1), three.directory(number))
        assert messages_in(three.directory(number))[:last] == list(range(1, last + 1))
    found = messages_in(three.directory(1))
    assert found == list(range(1, len(found) + 1)), "nothing twice, nothing out of order"


@pytest.mark.slow
def test_members_that_were_away_catch_up_and_nothing_is_confirmed_with_fewer_than_min(three: Machines) -> None:
    three.more()
    three.kill(3)
    three.more(300)
    assert [node.split(".")[0] for node in asyncio.run(configuration(three.url)).set] == ["n1", "n2"]
    three.kill(2)
    until(lambda: len(asyncio.run(configuration(three.url)).set) == 1)
    before = three.confirmed
    time.sleep(0.3)
    value = asyncio.run(configuration(three.url))
    assert three.confirmed == before
    assert value.short and [node.split(".")[0] for node in value.eligible] == ["n2"], "it has all that was confirmed"
    three.start(2)
    three.more()
    assert not asyncio.run(configuration(three.url)).eligible
    three.start(3)
    three.all_in_set()
    three.more()
    three.end(1)
    three.end(3)
    assert require_equal(three.directory(1), three.directory(3)) == last_commit_in(three.directory(1))


@pytest.mark.slow
def test_a_leader_that_lost_its_last_octets_takes_them_from_a_follower(three: Machines) -> None:
    three.more(150)
    three.kill_all()
    last = three.confirmed
    leading = CopyDirectory(three.directory(1), LOG)
    begin = leading.lineage[-1].segment
    leading.cut(position_at(begin, OPENING_SIZE))  # the page cache was lost with the power of the machine
    (three.directory(1) / NOTE).write_bytes(replace(leading.noted, mark=0).encode())
    leading.close()
    assert len(messages_in(killed_now(three.directory(1), three.folder / "cut"))) < last
    for number in (1, 2, 3):
        three.start(number)
    three.more()
    three.end(1)
    assert messages_in(three.directory(1)) == list(range(1, three.confirmed + 1))


@pytest.mark.parametrize("three", ["consumed"], indirect=True)
def test_followers_index_their_copies_and_remove_what_is_consumed(three: Machines) -> None:
    chance = random.Random()
    for _ in range(3):
        three.more(300)
        three.kill(2)
        time.sleep(chance.uniform(0, 0.2))
        three.start(2)
    three.all_in_set()
    until(lambda: not (three.directory(2) / DIRECTORY / file_name(2)).exists())
    three.kill(3)
    until(lambda: len(asyncio.run(configuration(three.url)).set) == 2)
    time.sleep(0.5)
    first = segment_at(last_commit_in(three.directory(2)))
    until(lambda: first_segment_behind(three.directory(2) / "jumpmq.db") > first + 3)
    there = [stretch.segment for stretch in read_lineage(three.directory(2)).lineage]
    assert there[there.index(first) :] == list(range(first, there[-1] + 1)), "a member that is away may need them"
    three.start(3)
    three.all_in_set()
    of_others = [three.directory(number) / DIRECTORY / file_name(first) for number in (2, 3)]
    until(lambda: not any(file.exists() for file in of_others))
    three.all_in_set()
    three.end(1)
    for number in (2, 3):
        three.end(number)
        copy = three.directory(number)
        assert require_equal(three.directory(1), copy) == last_commit_in(three.directory(1))
        assert not list(check(copy))
    found = messages_in(three.directory(1))
    assert len(found) < three.confirmed / 2
    assert messages_in(three.directory(2)) == messages_in(three.directory(3)) == found
    logs = "".join((three.folder / f"n{number}.log").read_text() for number in (2, 3))
    assert "the copy is replaced" not in logs


@pytest.mark.slow
def test_damage_on_a_followers_disk_is_told(three: Machines) -> None:
    three.more(100)
    three.end(1)
    three.end(2)
    copy = three.directory(2)
    directory = CopyDirectory(copy, LOG)
    directory.note(directory.noted.epoch, directory.end)
    stretch = directory.lineage[-1]
    assert position_at(stretch.segment, stretch.end) == directory.end
    directory.close()
    path = copy / DIRECTORY / file_name(stretch.segment)
    octets = bytearray(path.read_bytes())
    octets[stretch.end // 2] ^= 1
    path.write_bytes(octets)
    three.start(2)
    until(lambda: "is damaged at octet" in (three.folder / "n2.log").read_text())
    three.require_running()


@pytest.mark.slow
@pytest.mark.parametrize("three", ["consumed"], indirect=True)
def test_an_emptied_disk_gets_files_where_the_leader_has_removed_segments(three: Machines) -> None:
    three.more(2000)
    until(lambda: not (three.directory(1) / DIRECTORY / file_name(2)).exists())
    before = asyncio.run(configuration(three.url)).set
    three.kill(2)
    shutil.rmtree(three.directory(2))
    three.start(2)

    def look() -> bool:
        three.require_running()
        found = asyncio.run(configuration(three.url)).set
        return len(found) == 3 and len({*found} & {*before}) == 2

    until(look)
    three.more(200)
    three.end(1)
    three.end(2)
    assert require_equal(three.directory(1), three.directory(2)) == last_commit_in(three.directory(1))
    assert (three.directory(2) / "jumpmq.db").exists(), "it came with the files"
    found, last = messages_in(three.directory(2)), three.confirmed
    assert found == messages_in(three.directory(1))
    assert {*range(10, last, 10), *range(last - 99, last + 1)} <= {*found} and len(found) < last / 2
    assert not list(three.directory(2).parent.glob("1.*")), "nothing is left beside it"
