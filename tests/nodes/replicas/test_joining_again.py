"""A member with an unready leader or disk repeats its requests and attempts."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.etcd import etcd, needs_etcd
from tests.nodes.homes import in_loop, until
from tests.nodes.replicas.parties import Party, two

from jumpmq.nodes.etcd.client import Etcd, EtcdError
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey
from jumpmq.nodes.replicas.copied_home import FIXED_SEAT, CopiedHome
from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.replication.configuration import Configuration
from jumpmq.replication.frames import Lead, Matched, Unfit, Want
from jumpmq.replication.lineage import Stretch, before

pytestmark = needs_etcd


class Owner:
    """Records the reports of a replica."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def apply(self, position: int) -> None:
        self.told.append("apply")

    def serve(self, epoch: int) -> None:
        self.told.append("serve")

    def close(self, reason: str) -> None:
        self.told.append("close")

    def stop(self, reason: str) -> None:
        self.told.append(reason)

    def doubt(self, reason: str, *, blocks: bool = False) -> None:
        self.told.append(reason)

    def replaced(self) -> None:
        self.told.append("replaced")


@in_loop
async def test_a_member_asks_again_for_files_that_the_leader_did_not_have_yet(tmp_path: Path) -> None:
    times = replace(FIXED_SEAT, files_silence=0.1)
    owner, leader = Owner(), Party("n1.a")
    with etcd(tmp_path) as members:
        client = Etcd([members[0].url])
        key = ConfigurationKey(client, "/home/7")
        async with two() as (first, second):
            member = CopiedHome(7, CopyDirectory(tmp_path / "7", "log"), "n2", key, second, owner, times)
            try:
                with pytest.raises(EtcdError, match="no configuration of home 7"):
                    await member.start()
                value = Configuration(1, "log", "n1", 2, 1, ("n1", "n2"), 1, leader.me, (leader.me,))
                assert await key.swap(None, value) == value
                assert await key.swap(None, value.renewed()) == value, "another value is there"
                await member.start()
                first.join(7, leader)
                await until(lambda: leader.told == [f"+{member.me}"])
                first.send(7, member.me, Lead(1, before(5), (Stretch(5, 1, 9, 64),)))
                await until(lambda: leader.told.count((member.me, Want(1, "", 0))) == 3)
                assert isinstance(leader.told[1][1], Unfit)  # type: ignore[index]
                assert not owner.told
            finally:
                await member.close()
                await client.close()


@in_loop
async def test_a_promise_that_cannot_be_written_is_given_when_it_can_be(tmp_path: Path) -> None:
    times = replace(FIXED_SEAT, note_retry=0.1)
    owner, leader = Owner(), Party("n1.a")
    with etcd(tmp_path) as members:
        client = Etcd([members[0].url])
        key = ConfigurationKey(client, "/home/7")
        value = Configuration(1, "log", "n1", 2, 1, ("n1", "n2"), 1, leader.me, (leader.me,))
        await key.swap(None, value)
        async with two() as (first, second):
            member = CopiedHome(7, CopyDirectory(tmp_path / "7", "log"), "n2", key, second, owner, times)
            try:
                await member.start()
                (tmp_path / "7" / "replica.new").mkdir()
                first.join(7, leader)
                await until(lambda: leader.told == [f"+{member.me}"])
                first.send(7, member.me, Lead(1, 0, ()))
                await until(lambda: member.alarm.shown)
                assert member.alarm.shown.endswith("replica cannot be written: Is a directory")
                assert leader.told == [f"+{member.me}"] and not owner.told
                (tmp_path / "7" / "replica.new").rmdir()
                await until(lambda: (member.me, Matched(1, 0)) in leader.told)
                assert not owner.told, "it goes on"
            finally:
                await member.close()
                await client.close()


@in_loop
async def test_a_candidate_whose_disk_is_full_leaves_its_epoch_to_others(tmp_path: Path) -> None:
    owner, directory = Owner(), CopyDirectory(tmp_path / "7", "log")
    with etcd(tmp_path) as members:
        client = Etcd([members[0].url])
        key = ConfigurationKey(client, "/home/7")
        me = f"n2.{directory.noted.disk}"
        await key.swap(None, Configuration(1, "log", "n1", 2, 1, ("n1", "n2"), 1, me, ("n1.a", me)))
        (tmp_path / "7" / "replica.new").mkdir()
        async with two() as (_, second):
            member = CopiedHome(7, directory, "n2", key, second, owner)
            try:
                await member.start()
                await until(lambda: owner.told)
                assert str(owner.told[-1]).endswith("cannot be written: Is a directory")
                assert member.roles.stopped, "its beats would keep the others quiet"
            finally:
                await member.close()
                await client.close()
