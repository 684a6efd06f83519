"""Load an AMQP 0-9-1 broker through an exchange, count all messages, and print the figures as a line of JSON.

scenarios:
  publish   publish N messages with no consumer, then count the messages of the queues
  confirm   publish with publisher confirms, at most --window unconfirmed
  singly    publish from --connections, each waiting for the confirm of one message before the next
  drain     consume the messages left in the queues by `publish --keep` or `confirm --keep`
  flow      publish and consume N messages at once
  latency   publish --rate messages per second for --seconds, independently of the broker, and consume them at once
  bind      bind and unbind --queues queues of weight --weight, one after the other
  connections, channels   open and close N connections, or channels on one connection

examples:
  python -m benchmarks.load flow --port 5672 -n 300000 --queues 4
  python -m benchmarks.load confirm --persistent -n 100000

A run fails (exit status 1 and one line) if a message is lost, repeated, out of order in its queue, or confirmed twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from benchmarks.load.client import LoadError
from benchmarks.load.options import load_of, parse
from benchmarks.load.scenarios import SCENARIOS, clean


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenario, and print its figures as one line of JSON."""
    options = parse(arguments, __doc__, SCENARIOS)
    load = load_of(options)
    try:
        figures = SCENARIOS[options.scenario](load)
        if not options.keep:
            clean(load)
    except (LoadError, OSError) as problem:
        print(f"{options.scenario}: {problem}", file=sys.stderr)
        return 1
    print(json.dumps({"scenario": options.scenario, "persistent": options.persistent, "size": options.size} | figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
