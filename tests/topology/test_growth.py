"""Memory of a hundred thousand definitions, measured in a separate process."""

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from jumpmq.topology import AddVirtualHost, Bind, DeclareExchange, DeclareQueue, Topology
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition

COUNT = 2_000


def octets_of_one(make: Callable[[int], object]) -> float:
    """Return the octets of memory per item of many."""
    for number in range(COUNT):  # one-time costs, and room in tables
        make(number)
    gc.collect()
    tracemalloc.start()
    for number in range(COUNT, 3 * COUNT):
        make(number)
    gc.collect()
    found, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found / (2 * COUNT)


@pytest.mark.slow
def test_an_unused_queue_takes_little_memory_and_a_binding_less() -> None:
    measured = subprocess.run([sys.executable, __file__], capture_output=True, check=True, text=True).stdout
    queue, binding = map(float, measured.split())
    assert queue < 2_700
    assert binding < 1_000


def measure() -> None:
    """Print the memory of a queue and of a binding."""
    topology = Topology("node")
    topology.apply(AddVirtualHost("/"))
    topology.apply(DeclareExchange(ExchangeDefinition("/", "growth", durable=True)))
    name, arguments = "queue-{:06}".format, b'[["x-queue-type","S","classic"]]'

    def declare(number: int) -> None:
        asked = Arguments.from_json(json.loads(arguments))
        definition = topology.define_queue("/", name(number), durable=True, arguments=asked, user="guest")
        topology.apply(DeclareQueue(definition))

    def bind(number: int) -> None:
        binding = Binding("growth", "queue", name(number), name(number).encode())
        topology.apply(Bind("/", binding))

    print(octets_of_one(declare), octets_of_one(bind))


if __name__ == "__main__":
    measure()
