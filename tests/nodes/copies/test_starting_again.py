"""A process restarts in place when its home begins to have copies."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.etcd import etcd, needs_etcd
from tests.nodes.copies.copied_nodes import KEYS, Node, served_again, until

from jumpmq.nodes.etcd.client import Etcd, put
from jumpmq.replication.wanted import Wanted
from jumpmq.testing import children

pytestmark = [needs_etcd, pytest.mark.several]


def copied(url: str) -> None:
    """Request copies of home 1."""
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
        until(lambda: len(spares(node)) == 1)
        served_again(node)
        worker = next(pid for pid in children(node.pid) if pid not in spares(node))
        os.kill(worker, signal.SIGKILL)
        until(lambda: len(spares(node)) == 2 and worker not in children(node.pid))  # one of the two is the worker
        served_again(node)
        assert node.stop() == 0


def spares(node: Node) -> list[int]:
    """Return the process ids of a node's spare processes."""
    found = []
    for pid in children(node.pid):
        with suppress(OSError):  # the process has ended
            found += [pid] if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\0spare\0") else []
    return found
