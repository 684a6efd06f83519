"""Replacement of a damaged copy."""

import asyncio
from pathlib import Path

from tests.nodes.homes import in_loop

from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.copies.kept_copy import ANNOUNCED, KeptCopy
from jumpmq.nodes.etcd.client import Etcd
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey
from jumpmq.nodes.replicas.sessions import ReplicaSessions
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.unix import UnixSockets


class Sparing:
    """A server of homes that need no copy of this process."""

    def serve(self, copy: KeptCopy) -> None: ...

    def fail(self, reason: str) -> None: ...

    def spares(self, number: int) -> bool:
        return True

    def lacks(self, number: int, *, hides: bool) -> bool:
        return False


@in_loop
async def test_a_copy_with_new_damage_waits_for_the_news_of_its_leaders_damage(tmp_path: Path) -> None:
    """A copy replaced at once was filled with the same damage again, and kept the damage."""
    links = Links(UnixSockets(tmp_path, 1, 2), 1, "boot", Turns(Commits(), 1 << 20))
    key, sessions = ConfigurationKey(Etcd(["http://127.0.0.1:1"]), "/home/1"), ReplicaSessions(links, "n{}".format)
    copy = KeptCopy(1, "log", tmp_path, "n1", key, sessions, server=Sparing())
    copy.doubt("a segment of a stream is damaged")
    assert not copy._is_replaceable
    await asyncio.sleep(ANNOUNCED)
    assert copy._is_replaceable
