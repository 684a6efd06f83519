"""The command-line options of the load generator."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.client import BUFFER_SIZE, Address, Connection
from benchmarks.load.traffic import Messages


@dataclass(frozen=True, slots=True)
class Load:
    """Broker, messages and amounts of one run. The fields are the options of the command line."""

    address: Address
    messages: Messages
    kind: str
    queues: int
    weight: int
    n: int
    confirm: bool
    window: int
    publishers: int
    prefetch: int
    ack_every: int
    ack_singly: bool
    auto_ack: bool
    rate: float
    seconds: float
    connections: int

    @property
    def names(self) -> list[str]:
        """Names of the queues."""
        return [f"{self.messages.exchange}.q{i}" for i in range(self.queues)]

    @property
    def share(self) -> int:
        """Number of messages per publisher."""
        return self.n // self.publishers

    @property
    def total(self) -> int:
        """Number of messages of all publishers: n, rounded down to a multiple of the publishers."""
        return self.share * self.publishers

    def connect(self, room: int = BUFFER_SIZE) -> Connection:
        """Return a new connection to the broker, with a receive buffer of the given size in octets."""
        return Connection(self.address, room)


def parse(arguments: Sequence[str] | None, description: str | None, scenarios: Collection[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", choices=scenarios)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--user", default="guest")
    parser.add_argument("--password", default="guest")
    parser.add_argument("--vhost", default="/")
    parser.add_argument("--tls-ca", type=Path, help="connect with TLS; the authority that vouches for the broker")
    parser.add_argument("--exchange", default="load", help="its name, also the beginning of the queues' names")
    parser.add_argument("--type", default="x-consistent-hash", help="type of the exchange")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--weight", type=int, default=1)
    parser.add_argument("-n", type=int, default=200_000, help="messages")
    parser.add_argument("--keys", type=int, default=1_000_000, help="distinct routing keys")
    parser.add_argument("--size", type=int, default=100, help="octets of a body, 8 to 1,000,000")
    parser.add_argument("--persistent", action="store_true", help="delivery mode 2")
    parser.add_argument("--confirm", action="store_true", help="flow: with publisher confirms")
    parser.add_argument("--window", type=int, default=1000, help="unconfirmed messages at most, for each publisher")
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--connections", type=int, default=1000, help="singly: how many, shared by the publishers")
    parser.add_argument("--prefetch", type=int, default=1000, help="unacknowledged messages at most, for each queue")
    parser.add_argument("--ack-every", type=int, default=200, help="how many messages one acknowledgement covers")
    parser.add_argument("--ack-singly", action="store_true", help="with a method for each message, not one for many")
    parser.add_argument("--auto-ack", action="store_true", help="consume without acknowledgements")
    parser.add_argument("--rate", type=float, default=5000, help="latency: messages a second")
    parser.add_argument("--seconds", type=float, default=10, help="latency: how long")
    parser.add_argument("--keep", action="store_true", help="leave exchange and queues behind")
    options = parser.parse_args(arguments)
    if not 8 <= options.size <= 1_000_000:
        parser.error("--size must be from 8 to 1000000")
    if options.scenario == "singly" and options.connections % options.publishers:
        parser.error("--connections cannot be shared by the --publishers")
    if options.ack_every > options.prefetch > 0:
        parser.error("--ack-every above --prefetch would wait forever")
    return options


def load_of(options: argparse.Namespace) -> Load:
    """Return the run described by the options."""
    return Load(
        address=Address(options.port, options.host, options.user, options.password, options.vhost, options.tls_ca),
        messages=Messages(options.exchange, options.size, options.keys, options.persistent),
        kind=options.type,
        queues=options.queues,
        weight=options.weight,
        n=options.n,
        confirm=options.confirm or options.scenario in ("confirm", "singly"),
        window=options.window,
        publishers=options.publishers,
        prefetch=options.prefetch,
        ack_every=options.ack_every,
        ack_singly=options.ack_singly,
        auto_ack=options.auto_ack,
        rate=options.rate,
        seconds=options.seconds,
        connections=options.connections,
    )
