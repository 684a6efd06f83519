"""A process that starts again in place, as its home is to have copies."""

import asyncio
from pathlib import Path

import pytest
from tests.etcd import etcd, needs_etcd
from tests.nodes.copies.test_failover import KEYS, Node, until

from jumpmq.nodes.copies.wanted import Wanted
from jumpmq.nodes.etcd.client import Etcd, put

pytestmark = [needs_etcd, pytest.mark.several]


def test_a_process_that_is_told_to_end_while_it_starts_again_ends(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        node = Node(tmp_path / "n1", "n1@host", ("--cluster", "test", "--etcd", member.url))
        node.start()
        wanted = Wanted.of("n1@host", ["n1@host", "n2@host"], 2)

        async def want() -> None:
            client = Etcd([member.url])
            await client.transaction([], [put(KEYS.wanted(1), wanted.to_json())])
            await client.close()

        asyncio.run(want())
        until(lambda: "the process starts again" in node.log.read_text())
        assert node.stop() == 0
