"""A machine with a replica of home 1: ``python -m tests.nodes.replicas.machine NUMBER COUNT FOLDER URL KIND``.

The first machine leads, publishes to its store, and notes what is confirmed in ``FOLDER/confirmed``; with the kind
``consumed`` nine of ten messages are settled a hundred messages later. SIGTERM ends a
machine in order: the first one then publishes no more, and waits until all is complete.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from pathlib import Path

from tests.store.opened import make_messages

from jumpmq.amqp.messages import Message
from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.copies.kept_copy import KeptCopy
from jumpmq.nodes.copies.leading_store import LeadingStore
from jumpmq.nodes.etcd.client import Etcd, EtcdError
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey
from jumpmq.nodes.replicas.copied_home import CopiedHome
from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.nodes.replicas.sessions import ReplicaSessions
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.unix import UnixSockets
from jumpmq.replication.pace import Times

LOG = "log of home 1"
KEY = "/jumpmq/copies/home/1"
QUEUE = 1 << 40 | 1
TIMES = Times(failover=float("inf"), steady=0.2, reset=0.3, gather=0.5, gather_all=0.5)
SEGMENT = 1 << 17


def directory_of(folder: Path, number: int) -> Path:
    return folder / f"n{number}" / ("home" if number == 1 else "copies/1")


class Machine:
    """The process."""

    def __init__(self, number: int, count: int, folder: Path, url: str, kind: str) -> None:
        self.number, self.folder, self.kind, self.node = number, folder, kind, f"n{number}"
        self.turns = Turns(Commits(), 1 << 20)
        self.links = Links(UnixSockets(folder / "links", number, count), number, os.urandom(8).hex(), self.turns)
        self.sessions = ReplicaSessions(self.links, "n{}".format)
        self.etcd = Etcd([url])
        self.ended = asyncio.Event()
        self.leading: LeadingStore | None = None
        self.stopping = False
        self.published = self.confirmed = 0
        self.receipts: dict[int, int] = {}
        self.waiting: deque[Message] = deque()

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.term)
        await self.links.start()
        key = ConfigurationKey(self.etcd, KEY)
        if self.number > 1:
            copy = KeptCopy(1, LOG, directory_of(self.folder, self.number), self.node, key, self.sessions, TIMES)
            tasks = [asyncio.create_task(copy.keep()), asyncio.create_task(self.watch(key, copy))]
            await self.ended.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.etcd.close()
            return
        directory = CopyDirectory(directory_of(self.folder, self.number), LOG)
        self.home = CopiedHome(1, directory, self.node, key, self.sessions, self, times=TIMES)
        while True:
            try:
                await self.home.start()
                break
            except EtcdError:
                await asyncio.sleep(0.1)
        await self.ended.wait()
        await self.home.close()
        await self.etcd.close()

    async def watch(self, key: ConfigurationKey, copy: KeptCopy) -> None:
        """Tell a copy of changes in etcd."""
        while True:
            with contextlib.suppress(EtcdError):
                value, home = await key.read(), copy.home
                if value is not None and home is not None:
                    home.on_value(value)
            await asyncio.sleep(0.2)

    def term(self) -> None:
        self.stopping = True
        if self.leading is None:
            self.ended.set()

    # --- the home ---

    def apply(self, position: int) -> None:
        if self.leading is not None:
            self.leading.apply(position)

    def serve(self, epoch: int) -> None:
        self.leading = LeadingStore(self.home, epoch, on_failure=self.stop, segment_bytes=SEGMENT)
        self.store = self.leading.open(
            directory_of(self.folder, 1), on_commit=self.on_commit, on_error=lambda error: self.stop(str(error))
        )
        asyncio.get_running_loop().add_reader(self.store.fileno(), self.store.completed)
        found = [message.seq for batch in self.store.batches().get(QUEUE, []) for message in self.store.read(batch)]
        self.published = max([0, *found])
        self.publishing = asyncio.get_running_loop().create_task(self.publish())

    def close(self, reason: str) -> None:
        self.stop(reason)

    def doubt(self, reason: str, *, blocks: bool = False) -> None:
        self.stop(reason)

    def replaced(self) -> None:
        self.stop("a leader was given files")

    def stop(self, reason: str) -> None:
        print(f"n{self.number}: {reason}", file=sys.stderr, flush=True)
        os._exit(3)

    # --- publishing ---

    async def publish(self) -> None:
        while not self.stopping:
            first, last = self.published + 1, self.published + 1 + self.published % 7
            messages = make_messages(first, last, lambda seq: b"%d " % seq * 150)
            self.store.append(QUEUE, messages)
            self.consume(messages)
            self.published = last
            self.receipts[self.store.flush()] = last
            await asyncio.sleep(0.003 if len(self.receipts) < 200 else 0.1)
        while self.receipts or self.store.is_writing or self.store.is_incomplete:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.ended.set()

    def consume(self, messages: list[Message]) -> None:
        self.waiting += messages
        while self.kind == "consumed" and len(self.waiting) > 100:
            message = self.waiting.popleft()
            if message.seq % 10 and message.batch is not None:
                message.batch.settle(message.seq)

    def on_commit(self, receipt: int) -> None:
        done = [one for one in self.receipts if one <= receipt]
        if done:
            self.confirmed = max(self.receipts.pop(one) for one in done)
            with (self.folder / "confirmed").open("a") as file:
                file.write(f"{self.confirmed}\n")


logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)


async def main(number: str, count: str, folder: str, url: str, kind: str) -> None:
    await Machine(int(number), int(count), Path(folder), url, kind).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
