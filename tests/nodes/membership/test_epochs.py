"""Each process of a home has an epoch: a process of an earlier epoch ends, and changes nothing until then."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.etcd import needs_etcd
from tests.nodes.clusters import Cluster, declare, member_of
from tests.nodes.homes import in_loop, peers_of, stopped, until

from jumpmq.broker.broker import Broker
from jumpmq.nodes.etcd.client import Etcd, EtcdError, delete, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.replication.configuration import Configuration

pytestmark = needs_etcd

KEYS = Keys("test")


async def state_of(asking: Etcd, home: int) -> Configuration:
    found = await asking.get(KEYS.home(home))
    assert found is not None
    return Configuration.from_json(found.value)


def failures_of(broker: Broker) -> list[str]:
    """Return the errors that would end the node's process; in a test the process goes on."""
    failures: list[str] = []
    member_of(broker).etcd.on_failure = failures.append
    return failures


@in_loop
async def test_each_start_is_an_epoch_also_where_etcd_has_lost_the_last_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        asking = cluster.client()
        for epoch in (1, 2, 3):
            broker = await cluster.start(0)
            state = await state_of(asking, 1)
            assert (state.epoch, state.seat, state.leader) == (epoch, broker.node, state.set[0])
            assert state.leader.startswith(f"{broker.node}.")
            live = await asking.get(KEYS.live_node(broker.node))
            assert live is not None
            assert json.loads(live.value)["epoch"] == epoch
            await stopped(broker)
            if epoch == 1:
                await asking.transaction([], [delete(KEYS.home(1))])


@in_loop
async def test_a_process_whose_home_has_a_later_epoch_changes_no_definition(tmp_path: Path) -> None:
    """A process whose home has a later epoch changes no definition, and ends at its first attempt."""
    async with Cluster(tmp_path) as cluster:
        broker = await cluster.start(0)
        asking = cluster.client()
        failures = failures_of(broker)
        state = await state_of(asking, 1)
        await asking.transaction([], [put(KEYS.home(1), state.claimed(state.leader).to_json())])
        asked = asyncio.create_task(declare(broker, "late"))
        await until(lambda: failures)
        assert "another process serves node 'one@host'" in failures[0]
        assert "late" not in broker.topology.vhosts["/"].declared
        asked.cancel()


@in_loop
async def test_a_node_of_an_earlier_release_ends_where_a_later_one_has_raised_the_log_s_format(tmp_path: Path) -> None:
    """A node of an earlier release ends once a later release has raised the format of the log."""
    async with Cluster(tmp_path) as cluster:
        broker = await cluster.start(0)
        asking = cluster.client()
        failures = failures_of(broker)
        await asking.transaction([], [put(KEYS.format, "2")])
        asked = asyncio.create_task(declare(broker, "late"))
        await until(lambda: len(failures) > 1)  # on a request for a change, and on reading
        assert set(failures) == {"the cluster's log is of format 2, and this release knows format 1"}
        assert "late" not in broker.topology.vhosts["/"].declared
        asked.cancel()


@pytest.mark.slow
@in_loop
async def test_a_process_goes_on_where_etcd_has_a_state_of_before_its_start(tmp_path: Path) -> None:
    """A process goes on if etcd is restored from a backup before its start; no value comes twice."""
    async with Cluster(tmp_path) as cluster:
        asking = cluster.client()
        broker = await cluster.start(0)
        before = await state_of(asking, 1)
        await stopped(broker)
        broker = await cluster.start(0)
        failures = failures_of(broker)
        after = await state_of(asking, 1)
        for old in (put(KEYS.home(1), before.to_json()), delete(KEYS.home(1))):
            await asking.transaction([], [old])
            await declare(broker, "q")
            assert (await state_of(asking, 1)).epoch == after.epoch == 2
        assert not failures


@pytest.mark.parametrize("older", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["is connected to", "connects"])
@in_loop
async def test_other_nodes_tell_a_process_that_cannot_reach_etcd_of_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: int
) -> None:
    """Peers report a later process to a process without etcd, as after a takeover of the volume."""
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(2)
        first, other = brokers[older], brokers[1 - older]
        try:
            await until(lambda: all(len(one.running_nodes) == 2 for one in brokers))
            failures = failures_of(first)
            shutil.copytree(tmp_path / f"node-{older}", tmp_path / "copy")
            monkeypatch.setattr(member_of(first).etcd.client, "_call", cut_off)
            for task in list(member_of(first)._tasks):
                if task.get_name() in ("cluster nodes", "cluster what others say"):  # which watch etcd
                    task.cancel()
            newer = await cluster.started(replace(cluster.config(older), data_dir=tmp_path / "copy"))
            await until(lambda: failures)
            assert "another process serves node" in failures[0]
            await until(lambda: epoch_of_link(other, older + 1) == 2)
            await declare(newer, "q")
            assert "q" in other.topology.vhosts["/"].declared
        finally:
            monkeypatch.undo()


async def cut_off(*arguments: Any) -> Any:
    raise EtcdError("etcd is out of reach")


def epoch_of_link(broker: Broker, home: int) -> int:
    link = peers_of(broker).links.to(home)
    return 0 if link is None else link.epoch
