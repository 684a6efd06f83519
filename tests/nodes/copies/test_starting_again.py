"""A process that starts again in place, as its home is to have copies."""

import asyncio
from pathlib import Path

import pytest
from tests.etcd import etcd, needs_etcd
from tests.nodes.copies.test_failover import KEYS, Node, until

from jumpmq.nodes.copies.wanted import Wanted
from jumpmq.nodes.etcd.client import Etcd, put

pytestmark = [needs_etcd, pytest.mark.several]


def copied(url: str) -> None:
    """Have home 1 get copies."""
    wanted = Wanted.of("n1@host", ["n1@host", "n2@host"], 2)

    async def want() -> None:
        client = Etcd([url])
        await client.transaction([], [put(KEYS.wanted(1), wanted.to_json())])
        await client.close()

    asyncio.run(want())


def test_a_process_that_is_told_to_end_while_it_starts_again_ends(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        node = Node(tmp_path / "n1", "n1@host", ("--cluster", "test", "--etcd", member.url))
        node.start()
        copied(member.url)
        until(lambda: "the process starts again" in node.log.read_text())
        assert node.stop() == 0


def test_a_worker_that_starts_again_is_no_failure(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        node = Node(tmp_path / "n1", "n1@host", ("--cluster", "test", "--etcd", member.url, "--workers", "2"))
        node.start()
        copied(member.url)
        until(lambda: "started again in 0 s" in node.log.read_text())
        assert "ERROR" not in node.log.read_text()
        assert node.stop() == 0
