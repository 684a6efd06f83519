"""Cost of a message's properties: decoded into Spark's columns, and hashed by an exchange.

    python -m benchmarks.properties

Every message has its own ``message_id`` and two headers. Each figure is the best of five runs, in processor time.
"""

import time
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.types import StructType
from tests.topology.built import Built

from benchmarks.hashing import ROUNDS
from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.spark import SCHEMA
from jumpmq.spark.rows import converter
from jumpmq.topology import AddVirtualHost, Topology

MESSAGES = 100_000
RUN = 50
"""Messages per call: about the messages of one read of a socket."""


def encoded(number: int) -> bytes:
    """Encoded properties of one message."""
    headers = [Field("tenant", "S", f"tenant {number % 1000}"), Field("attempt", "I", number)]
    return Properties(message_id=f"{number:032x}", headers=headers, delivery_mode=2).encode()


def report(subject: str, run: Callable[[], object]) -> None:
    """Print the minimum time per message."""
    seconds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    print(f"{subject:<62} {min(seconds) / MESSAGES * 1e6:>8.3f} µs")


def built() -> Built:
    """A virtual host with four queues."""
    topology = Topology("jumpmq@bench")
    topology.apply(AddVirtualHost("/"))
    made = Built(topology)
    for number in range(4):
        made.queue(f"q{number}")
    return made


def main() -> None:
    own = [encoded(number) for number in range(MESSAGES)]
    convert = converter(StructType([SCHEMA["headers"], SCHEMA["properties"]]))
    for title, octets in {"its own": own, "the same": [own[0]] * MESSAGES}.items():
        batch = pa.record_batch({"properties": pa.array(octets, pa.binary())})
        report(f"decoded, each message has {title}", lambda batch=batch: convert(batch))
    made = built()
    for title, arguments in {
        "routing key": {},
        "hash-property": {"hash-property": "message_id"},
        "hash-header, text": {"hash-header": "tenant"},
        "hash-header, a number": {"hash-header": "attempt"},
        "routing key, xxh64": {"hash-function": "xxh64"},
    }.items():
        made.exchange(title, "x-consistent-hash", arguments)
        for number in range(4):
            made.bind(title, f"q{number}", "1")
        messages = [Message("x", b"key %d" % number, octets, b"") for number, octets in enumerate(own)]
        runs = [messages[first : first + RUN] for first in range(0, MESSAGES, RUN)]
        report(
            f"routed by {title}, in runs of {RUN}",
            lambda title=title, runs=runs: [made.vhost.route(title, run) for run in runs],
        )


if __name__ == "__main__":
    main()
