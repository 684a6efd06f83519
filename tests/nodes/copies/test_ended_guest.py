"""A home that is served no more leaves nothing in the memory of its process, which goes on."""

import gc
import weakref

from tests.nodes.homes import homes, in_loop

from jumpmq.broker import Broker
from jumpmq.serving.process import collect_garbage


async def served() -> list[weakref.ref[Broker]]:
    """Brokers that have been served, and ended."""
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
