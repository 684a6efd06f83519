"""A client in a separate process that only measures the latency of messages."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import pika

PAUSE = 0.005
"""Seconds between two messages."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Latency of a message.

    Attributes:
        ended: time of arrival, by the monotonic clock.
        seconds: from the publish to the arrival by `basic.get`, without ``stolen``.
        stolen: seconds in which broker or bystander were ready to run without a processor.
    """

    ended: float
    seconds: float
    stolen: float

    @property
    def began(self) -> float:
        return self.ended - self.seconds - self.stolen


@dataclass(slots=True)
class Bystander:
    """Publishes and gets transient messages in turn, from its creation on.

    Args:
        port: port of the broker.
        pid: process id of the broker.
    """

    port: int
    pid: int
    _pipe: Pipe = field(init=False)
    _process: multiprocessing.process.BaseProcess = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_stand_by, args=(self.port, self.pid, there), daemon=True)
        self._process.start()
        self._pipe.recv()

    def waits(self) -> list[Wait]:
        """Latencies since the last call."""
        self._pipe.send(False)
        found: list[Wait] = self._pipe.recv()
        return found

    def leave(self) -> None:
        """Close the connection."""
        self._pipe.send(True)
        self._process.join()


def described(waits: list[Wait]) -> str:
    """The latencies in words."""
    taken = sorted(1000 * one.seconds for one in waits) or [0.0]
    late = taken[int(len(taken) * 0.999)]
    return f"median {taken[len(taken) // 2]:.1f} ms, 99.9 % {late:.0f}, longest {taken[-1]:.0f}"


def _stand_by(port: int, pid: int, pipe: Any) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/%2F?heartbeat=0"))
    channel = connection.channel()
    channel.queue_declare("bystander", exclusive=True)
    pipe.send(None)
    waits: list[Wait] = []
    while True:
        before, began = _stolen(pid), time.monotonic()
        channel.basic_publish("", "bystander", b"x")
        while channel.basic_get("bystander", auto_ack=True)[0] is None:
            pass
        ended = time.monotonic()
        stolen = min(ended - began, _stolen(pid) - before)
        waits.append(Wait(ended, ended - began - stolen, stolen))
        if pipe.poll():
            if pipe.recv():
                break
            pipe.send(waits)
            waits = []
        time.sleep(PAUSE)
    connection.close()


def _stolen(pid: int) -> float:
    """Seconds in which this process and the given process were ready to run without a processor."""
    return sum(int(Path(f"/proc/{one}/schedstat").read_text().split()[1]) for one in ("self", pid)) / 1e9
