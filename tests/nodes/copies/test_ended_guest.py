"""The end of a served home frees its memory in a continuing process."""

import asyncio
import gc
import weakref
from pathlib import Path

from tests.nodes.homes import homes, in_loop

from jumpmq.broker import Broker
from jumpmq.broker.config import Config
from jumpmq.nodes.copies.kept_copy import KeptCopy
from jumpmq.nodes.copies.node_copies import NodeCopies
from jumpmq.nodes.joining.joining import Membership
from jumpmq.serving.process import collect_garbage


async def served() -> list[weakref.ref[Broker]]:
    """Brokers served so far, all ended."""
    async with homes(2, durable=False) as brokers:
        gc.freeze()  # as a process does when its own home is served
        return [weakref.ref(broker) for broker in brokers]


@in_loop
async def test_an_ended_broker_is_freed() -> None:
    found = await served()
    gc.collect()
    assert any(one() for one in found), "it is frozen"
    collect_garbage()
    assert not any(one() for one in found)


class Endless:
    """A server of guests that wait for an event without end, as without etcd."""

    async def serve(
        self, copies: NodeCopies, copy: KeptCopy | None, worker: int, epoch: int, until: asyncio.Event
    ) -> None:
        await asyncio.Event().wait()


@in_loop
async def test_a_guest_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, cluster="test", etcd="http://127.0.0.1:1")
    guests = Endless()
    copies = NodeCopies(config, Membership("test", "id", "n1@host", "m", 1), "boot", guests, print, print, 0.1)
    copies._run("guest 2", guests.serve(copies, None, 1, 1, asyncio.Event()))
    (guest,) = copies._tasks.values()
    async with asyncio.timeout(10):
        await copies.stop()
    assert guest.cancelled()
