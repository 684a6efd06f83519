"""Replicas on the sessions of two homes, with recorded notifications."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.nodes.homes import homes, peers_of, until

from jumpmq.nodes.replicas.sessions import ReplicaSessions
from jumpmq.nodes.timing import TIMING, Timing
from jumpmq.replication.frames import Frame


class Party:
    """A replica with recorded notifications."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.told: list[object] = []

    def on_connected(self, peer: str) -> None:
        self.told.append(f"+{peer}")

    def on_disconnected(self, peer: str) -> None:
        self.told.append(f"-{peer}")

    def on_frame(self, peer: str, frame: Frame) -> None:
        self.told.append((peer, frame))


@asynccontextmanager
async def two(
    timing: Timing = TIMING, node_at: Callable[[int], str] = "n{}".format
) -> AsyncIterator[tuple[ReplicaSessions, ReplicaSessions]]:
    async with homes(2, durable=False, timing=timing) as brokers:
        first, second = (ReplicaSessions(peers_of(broker).links, node_at) for broker in brokers)
        await until(lambda: peers_of(brokers[0]).links.homes and peers_of(brokers[1]).links.homes)
        yield first, second
