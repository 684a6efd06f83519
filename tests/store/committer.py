"""A program that publishes to a store and consumes at full speed, until killed.

Output: the line ``settle QUEUE SEQ`` before a message is settled, and after each commit the line ``commit
QUEUE SEQ`` for every queue: all messages of the queue up to this number are on disk.
"""

import os
import select
import sys
from collections import deque
from pathlib import Path
from random import Random

from tests.store.opened import make_messages

from jumpmq.store import Store

QUEUES = (1, 2, 3)


def say(lines: list[str]) -> None:
    """Write at once, so that a kill loses no line."""
    os.write(1, "".join(line + "\n" for line in lines).encode())


def main(directory: Path, seed: int, last: list[int]) -> None:
    """Publish after the messages numbered ``last`` of each queue."""
    random = Random(seed)
    covered: dict[int, list[int]] = {}

    def on_commit(number: int) -> None:
        seqs = covered.pop(number)
        say([f"commit {queue_id} {seq}" for queue_id, seq in zip(QUEUES, seqs, strict=True)])

    store = Store.open(directory, on_commit=on_commit)
    found = store.batches()
    waiting = {
        queue_id: deque(message for batch in found.get(queue_id, []) for message in store.read(batch))
        for queue_id in QUEUES
    }
    while True:
        for i, queue_id in enumerate(QUEUES):
            messages = make_messages(last[i] + 1, last[i] + random.randint(1, 30))
            last[i] = messages[-1].seq
            store.append(queue_id, messages)
            waiting[queue_id].extend(messages)
        covered[store.flush()] = list(last)
        for queue_id in QUEUES[1:]:
            ready = waiting[queue_id]
            gone = [ready.popleft() for _ in range(random.randint(0, min(35, len(ready))))]
            say([f"settle {queue_id} {message.seq}" for message in gone])
            for message in gone:
                message.batch.settle(message.seq)
        if select.select([store.fileno()], [], [], random.choice([0, 0.002, 0.01]))[0]:
            store.completed()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [int(seq) for seq in sys.argv[3:]])
