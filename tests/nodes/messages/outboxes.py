"""Messages kept by a home for queues of a remote home."""

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker import Broker
from jumpmq.broker.peers import Forwarding

PERSISTENT, TRANSIENT = (Properties(delivery_mode=mode).encode() for mode in (2, 1))


async def keep(broker: Broker, queue: str, *texts: bytes, properties: bytes = PERSISTENT) -> Forwarding:
    """Publish to a queue of a remote home; return once the kept messages are on the local disk."""
    assert broker.peers.outbox is not None
    forwarding = broker.peers.outbox.forwarding()
    messages = [Message("", queue.encode(), properties, text, properties is PERSISTENT, 0.0) for text in texts]
    with broker.turns.turn():
        broker.peers.outbox.add(forwarding, broker.topology.vhosts["/"].declared[queue], messages)
    await broker.committed()
    return forwarding
