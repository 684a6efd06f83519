"""`jumpmq.running()` as a node of a cluster."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.etcd import etcd, needs_etcd

import jumpmq
from jumpmq.broker import BrokerError, Config
from jumpmq.broker.broker import start
from jumpmq.nodes.etcd.client import Etcd

pytestmark = needs_etcd


@pytest.mark.parametrize("process", [False, True])
def test_a_running_broker_is_a_node_of_the_cluster_of_its_settings(tmp_path: Path, process: bool) -> None:
    async def names(url: str) -> list[str]:
        asking = Etcd([url])
        try:
            return [value.key for value in (await asking.folder("/jumpmq/test/live/")).values]
        finally:
            await asking.close()

    with etcd(tmp_path) as members:
        url = members[0].url
        with jumpmq.running(
            data_dir=tmp_path / "data", process=process, cluster="test", etcd=url, node="one@host"
        ) as running:
            assert running.node == "one@host"
            assert asyncio.run(names(url)), "no node is announced"


@pytest.mark.parametrize("settings", [{"cluster": "test"}, {"homes": 2}])
def test_settings_of_one_of_several_processes_do_not_make_a_broker_alone(settings: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="one of several processes"):
        asyncio.run(start(Config(port=0, **settings)))
