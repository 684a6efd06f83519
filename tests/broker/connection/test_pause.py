"""A pause of all clients, as for ring changes on remote homes: received methods are handled afterwards."""

import asyncio
from pathlib import Path

from tests.brokers import bodies, config_of, declare, in_loop, started
from tests.wire import login


@in_loop
async def test_what_clients_have_sent_meanwhile_is_their_own(tmp_path: Path) -> None:
    """Octets received during a pause stay with their connection, though all share the receive buffer."""
    broker = await started(config_of(1, 1, tmp_path, durable=False))
    names = [f"q{number}" for number in range(5)]
    for name in names:
        await declare(broker, name)
    connections = [await asyncio.to_thread(login, broker.port) for _ in names]
    channels = [await asyncio.to_thread(connection.channel) for connection in connections]
    for _ in range(2):
        broker.pause.begin("test")
        for name, channel in zip(names, channels, strict=True):
            channel.publish("", name, body=name.encode())
            await asyncio.sleep(0.02)
        broker.pause.end("test")
        await asyncio.sleep(0.02)
    for connection in connections:
        await asyncio.to_thread(connection.close)
    assert {name: bodies(broker, name) for name in names} == {name: [name.encode()] * 2 for name in names}
