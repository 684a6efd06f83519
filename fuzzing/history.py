"""Checks a recorded history of publishes and deliveries, without imports of the broker.

    python -m fuzzing.history FILE

A history is a list of operations in the order of the clients' observation, a JSON list per line of a file:

==============================================  ======================================================================
``sent, QUEUE, PUBLISHER, NUMBER``              a publish is about to be written; numbers of a publisher ascend
``confirmed, QUEUE, PUBLISHER, NUMBER``         the broker has confirmed the publish
``got, QUEUE, PUBLISHER, NUMBER, REDELIVERED``  a delivery of a queue has arrived
``acknowledged, QUEUE, PUBLISHER, NUMBER``      the delivery is acknowledged
``read, STREAM, PUBLISHER, NUMBER, OFFSET``     a reader of a stream got a message at an offset
``reads, STREAM, OFFSET``                       a reader of a stream begins at an offset
==============================================  ======================================================================

A publisher is a connection: it sends a number once, and ends with its connection. Hence the messages between two
messages of a publisher are known.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Message = tuple[str, int]
"""Publisher and number."""

SHOWN = 9
"""Maximum number of messages named per problem."""


def problems(history: Iterable[Sequence[Any]]) -> list[str]:
    """Return the violations in a history, a sentence each. All published messages must be consumed at its end."""
    sent: dict[str, set[Message]] = defaultdict(set)
    confirmed: dict[str, set[Message]] = defaultdict(set)
    came: dict[str, set[Message]] = defaultdict(set)
    latest: dict[tuple[str, str], int] = {}  # number, by queue and publisher
    offsets: dict[str, dict[int, Message]] = defaultdict(dict)
    next_offset: dict[str, int] = {}
    wrong: dict[str, list[str]] = defaultdict(list)  # messages by problem
    for operation, queue, *rest in history:
        if operation == "reads":
            next_offset[queue] = rest[0]
            continue
        message = publisher, number = rest[0], rest[1]
        named = f"{publisher}/{number}"
        match operation:
            case "sent":
                sent[queue].add(message)
            case "confirmed":
                confirmed[queue].add(message)
            case "got":
                if message not in sent[queue]:
                    wrong[f"{queue}: invented"].append(named)
                if not rest[2]:
                    if message in came[queue]:
                        wrong[f"{queue}: came twice, and not marked"].append(named)
                    elif number < latest.get((queue, publisher), -1):
                        wrong[f"{queue}: out of order"].append(f"{named} after {latest[queue, publisher]}")
                    latest[queue, publisher] = max(number, latest.get((queue, publisher), -1))
                came[queue].add(message)
            case "read":
                offset = rest[2]
                if message not in sent[queue]:
                    wrong[f"{queue}: invented"].append(named)
                if offset != next_offset[queue]:
                    wrong[f"{queue}: gap"].append(f"{offset} instead of {next_offset[queue]}")
                next_offset[queue] = offset + 1
                known = offsets[queue].setdefault(offset, message)
                if known != message:
                    wrong[f"{queue}: an offset has two values"].append(f"{offset}: {known} and {message}")
                came[queue].add(message)
    for stream, values in offsets.items():
        places: dict[Message, int] = {}
        for offset, message in sorted(values.items()):
            if message in places:
                wrong[f"{stream}: at two offsets"].append(f"{message} at {places[message]} and {offset}")
            places[message] = offset
            before = latest.get((stream, message[0]), -1)
            if message[1] < before:
                wrong[f"{stream}: out of order"].append(f"{message} after {before}")
            latest[stream, message[0]] = message[1]
    for queue, messages in confirmed.items():
        if missing := messages - came[queue]:
            wrong[f"{queue}: LOST, of {len(messages)} confirmed"] = [
                f"{one}/{number}" for one, number in sorted(missing)
            ]
    return [f"{what}: {len(which)} times: {', '.join(which[:SHOWN])}" for what, which in sorted(wrong.items())]


def main() -> int:
    lines = Path(sys.argv[1]).read_text().splitlines()
    found = problems(json.loads(line) for line in lines)
    print("\n".join(found) or f"{len(lines)} operations, and all is well")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
