"""A writer to etcd without the cluster's secret learns nothing and changes nothing."""

import asyncio
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from tests.nodes.clusters import Cluster, declare, member_of
from tests.nodes.homes import in_loop, propose, stopped, until

from jumpmq.broker import Broker, BrokerError
from jumpmq.nodes.copies.lost_disk import replace_lost_disk
from jumpmq.nodes.etcd.client import Etcd, delete, end_of, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.sealing import SEALED, NotOpened, Seal
from jumpmq.nodes.log.compacting import compact
from jumpmq.nodes.membership.member import Member
from jumpmq.topology import PutUser

KEYS = Keys("test")


def _secret(directory: Path, name: str, *secret: str) -> Path:
    file = directory / name
    file.write_text("\n".join(secret) + "\n")
    return file


class Outsider(Etcd):
    """A client with read and write access to etcd, without the secret."""

    def _opened(self, key: str, value: bytes) -> bytes:
        return value

    async def everything(self) -> dict[str, bytes]:
        """All keys and values of the cluster in etcd."""
        return {one.key: one.value for one in (await self.folder(KEYS.all)).values}


def _member(broker: Broker) -> Member:
    return member_of(broker)


class ObservedCluster(Cluster):
    """A cluster, and an outsider with read and write access to etcd."""

    outsider: Outsider

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.outsider = self.client(Outsider)
        return self

    async def with_secret(self, number: int, secret: Path | None, **settings: Any) -> Broker:
        """Return a serving node with a file of secrets, or without."""
        return await self.start(number, cluster_secret_file=secret, **settings)


@pytest.mark.parametrize(
    "attack",
    [
        "plain",
        "moved",
        pytest.param("another secret", marks=pytest.mark.slow),
        pytest.param("of another identity", marks=pytest.mark.slow),
    ],
)
@in_loop
async def test_an_entry_that_was_not_sealed_by_a_node_is_not_applied(tmp_path: Path, attack: str) -> None:
    """An entry not sealed by a node is not applied: definitions stand still until the entry is gone."""
    async with ObservedCluster(tmp_path) as cluster:
        words = secrets.token_hex(32)
        broker = await cluster.with_secret(0, _secret(tmp_path, "secret", words))
        await propose(broker, PutUser("mallory", "hash", ()))
        member = _member(broker)
        number = member.log.entry + 1
        change = PutUser("mallory", "hash of mallory", ("administrator",)).to_json()
        entry = {"id": "0" * 32, "home": 1, "changes": [[change, {"name": ""}]]}
        forged = json.dumps(entry).encode()
        if attack == "another secret":
            forged = Seal([secrets.token_hex(32)]).seal(KEYS.entry(number), forged)
        elif attack == "moved":
            forged = (await cluster.outsider.everything())[KEYS.entry(number - 1)]
        elif attack == "of another identity":
            seal = Seal([words])
            seal.identity = "0" * 32
            forged = seal.seal(KEYS.entry(number), forged)
        await cluster.outsider.transaction([], [put(KEYS.entry(number), forged)])
        proposal = asyncio.ensure_future(declare(broker, "q"))
        await until(lambda: member.stall._error is not None)
        assert KEYS.entry(number) in str(member.stall._error)
        assert broker.topology.users["mallory"].tags == ()
        await cluster.outsider.transaction([], [delete(KEYS.entry(number))])
        async with asyncio.timeout(20):
            await proposal
        assert "q" in broker.topology.vhosts["/"].declared
        assert broker.topology.users["mallory"].tags == ()


@in_loop
async def test_nothing_can_be_read_and_the_log_is_compacted_sealed(tmp_path: Path) -> None:
    async with ObservedCluster(tmp_path) as cluster:
        file = _secret(tmp_path, "secret", secrets.token_hex(32))
        broker = await cluster.with_secret(0, file)
        second = await cluster.with_secret(1, file)
        await propose(second, PutUser("eve", "the hash of eve's password", ()))
        settings = _member(broker)._settings
        client = settings.client()
        head = await compact(client, KEYS)
        await client.close()
        assert head.entry == _member(broker).log.entry
        assert second.topology.users["eve"].password_hash == "the hash of eve's password"
        found = await cluster.outsider.everything()
        assert {KEYS.id, KEYS.secret, KEYS.snapshot_head, KEYS.format} <= found.keys()
        for key, value in found.items():
            assert value.startswith(SEALED), key
        assert "secret" not in repr(settings) and file.read_text().strip() not in repr(settings)
        await cluster.with_secret(2, file)


@in_loop
async def test_nodes_that_seal_and_nodes_that_do_not_are_no_cluster(tmp_path: Path) -> None:
    """The node without the right secret ends, with an error that names the missing secret."""
    async with ObservedCluster(tmp_path) as cluster:
        broker = await cluster.with_secret(0, _secret(tmp_path, "secret", secrets.token_hex(32)))
        with pytest.raises(BrokerError, match=r"'/jumpmq/test/id' is sealed: this node needs --cluster-secret-file"):
            await cluster.with_secret(1, None)
        other = _secret(tmp_path, "other", secrets.token_hex(32))
        with pytest.raises(BrokerError, match=r"'/jumpmq/test/id' was sealed with another secret"):
            await cluster.with_secret(1, other)
        with pytest.raises(BrokerError, match=r"'/jumpmq/test/id' was sealed with another secret"):
            await replace_lost_disk(cluster.config(2, cluster_secret_file=other))
        short = _secret(tmp_path, "short", "secret")
        with pytest.raises(BrokerError, match="has fewer than 32 characters: `openssl rand -hex 32` makes one"):
            await cluster.with_secret(1, short)
        with pytest.raises(BrokerError, match=r"cannot be read from .*missing: No such file"):
            await cluster.with_secret(1, tmp_path / "missing")
        await stopped(broker)
        await cluster.outsider.transaction([], [delete(KEYS.all, end_of(KEYS.all))])
        await cluster.with_secret(2, None)
        with pytest.raises(BrokerError, match=r"'/jumpmq/test/id' is not sealed: it was put without the secret"):
            await cluster.with_secret(1, other)


@pytest.mark.slow
@in_loop
async def test_a_secret_takes_the_place_of_another_while_nodes_run(tmp_path: Path) -> None:
    async with ObservedCluster(tmp_path) as cluster:
        old, new = secrets.token_hex(32), secrets.token_hex(32)
        file = _secret(tmp_path, "secret", old)
        brokers = [await cluster.with_secret(number, file) for number in range(2)]
        declared: list[str] = []
        for lines in ([old, new], [new, old], [new]):
            _secret(tmp_path, "secret", *lines)
            for number in range(2):
                await stopped(brokers[number])
                brokers[number] = await cluster.with_secret(number, file)
                for broker in brokers:
                    name = f"{len(declared)}"
                    await declare(broker, name)
                    declared.append(name)
                await until(lambda: all(set(declared) <= _declared(broker) for broker in brokers))
        seal = Seal([old])
        seal.identity = _member(brokers[0]).me.id
        for key, value in (await cluster.outsider.everything()).items():
            with pytest.raises(NotOpened):
                seal.open(key, value)


def _declared(broker: Broker) -> set[str]:
    return set(broker.topology.vhosts["/"].declared)


@pytest.mark.slow
@in_loop
async def test_a_cluster_becomes_a_sealed_one_from_what_a_node_has(tmp_path: Path) -> None:
    """A cluster becomes sealed by a recovery from a node's data; the links get a new secret."""
    async with ObservedCluster(tmp_path) as cluster:
        broker = await cluster.with_secret(0, None)
        await declare(broker, "kept")
        before = (await cluster.outsider.everything())[KEYS.secret].decode()
        await stopped(broker)
        await cluster.outsider.transaction([], [delete(KEYS.all, end_of(KEYS.all))])
        file = _secret(tmp_path, "secret", secrets.token_hex(32))
        broker = await cluster.with_secret(0, file, recover_cluster=True)
        second = await cluster.with_secret(1, file)
        assert _declared(broker) == _declared(second) == {"kept"}
        assert all(value.startswith(SEALED) for value in (await cluster.outsider.everything()).values())
        assert _member(broker).directory.secret != before


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed[:-4] + b"AAAA",
        lambda sealed: SEALED,
        lambda sealed: SEALED + b"no base64",
        lambda sealed: sealed.removeprefix(SEALED),
        lambda sealed: b"",
    ],
)
def test_what_was_changed_does_not_open(change: Callable[[bytes], bytes]) -> None:
    seal = Seal(["s" * 32])
    sealed = seal.seal("/jumpmq/c/x", b"value" * 10)
    assert seal.open("/jumpmq/c/x", sealed) == b"value" * 10
    with pytest.raises(NotOpened):
        seal.open("/jumpmq/c/x", change(sealed))
    with pytest.raises(NotOpened):
        seal.open("/jumpmq/c/y", sealed)
    seal.identity = "another"
    with pytest.raises(NotOpened):
        seal.open("/jumpmq/c/x", sealed)
