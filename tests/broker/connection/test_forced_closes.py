"""Deleting a virtual host closes its connections, whoever deletes it and however long the deletion takes."""

import asyncio
from pathlib import Path

import pytest
from tests.http.api import API
from tests.wire import Basic, ConnectionClosed, WireConnection, login

import jumpmq
from jumpmq.broker.broker import start
from jumpmq.broker.config import Config
from jumpmq.topology import (
    AddVirtualHost,
    DeclareExchange,
    DeleteVirtualHost,
    ExchangeDefinition,
    SetPermissions,
    SetPolicy,
)

SHARDS = 2000
"""Enough for a change of many steps."""


def test_what_opens_while_the_deletion_waits_is_closed_with_it() -> None:
    async def run() -> None:
        broker = await start(Config(port=0))
        try:
            with broker.turns.turn():
                broker.topology.apply(AddVirtualHost("ending"))
                broker.topology.apply(SetPermissions("guest", "ending", ".*", ".*", ".*"))
                broker.topology.apply(DeclareExchange(ExchangeDefinition("/", "e", "fanout")))
            opened = [await asyncio.to_thread(login, broker.port, vhost="ending")]
            with broker.turns.turn():
                broker.topology.propose(SetPolicy("/", "many", "^e$", {"shards-per-node": SHARDS}))
                deletion = broker.topology.propose(DeleteVirtualHost("ending"))
            assert not deletion.decided
            await asyncio.to_thread(open_until_refused, broker.port, opened)
            for one in opened:
                await asyncio.to_thread(hear_the_close, one)
        finally:
            await broker.stop()

    asyncio.run(run())


def open_until_refused(port: int, opened: list[WireConnection]) -> None:
    with pytest.raises(ConnectionClosed, match="not found"):
        while True:
            opened.append(login(port, vhost="ending"))


def hear_the_close(connection: WireConnection) -> None:
    with connection, pytest.raises(ConnectionClosed) as closed:
        connection.channel()
    assert (closed.value.code, closed.value.text) == (320, "CONNECTION_FORCED - vhost 'ending' is deleted")


def test_what_a_virtual_host_held_is_gone_with_its_clients(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as running:
        api = API(running.http_url)
        api.request("PUT", "vhosts", "ending")
        with login(running.port, vhost="ending") as connection:
            channel = connection.channel()
            exclusive, kept = channel.queue(), channel.queue("kept", durable=True, exclusive=False)
            channel.consume(kept)
            for queue in (exclusive, kept):
                channel.publish("", queue, b"x", Basic.Properties(delivery_mode=2))
            channel.take(1)
            assert api.request("DELETE", "vhosts", "ending").status_code == 204
            with pytest.raises(ConnectionClosed, match="vhost 'ending' is deleted"):
                connection.channel()
        api.request("PUT", "vhosts", "ending")
        assert api.get("queues", "ending") == []
    with jumpmq.running(data_dir=tmp_path) as running:
        assert API(running.http_url).get("queues", "ending") == []
