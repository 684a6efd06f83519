"""Generated work of a store with two streams and a queue, and the state of each commit."""

import contextlib
from pathlib import Path

from hypothesis import strategies as st
from tests.store.crashes import Recorder
from tests.store.opened import make_messages
from tests.store.stream_opened import Opened, message

SEGMENT = 16 << 10

STEPS = st.lists(
    st.tuples(
        st.sampled_from([7, 8]),
        st.integers(1, 12),
        st.sampled_from([10, 300, 2500]),
        st.sampled_from(["append", "wait", "retain", "letter"]),
    ),
    min_size=8,
    max_size=40,
)


class Workload:
    """Two streams and a queue, and the expected state after each commit."""

    def __init__(self, directory: Path, disk: Recorder) -> None:
        self.disk = disk
        self.opened = Opened(directory, disk, segment_bytes=SEGMENT)
        self.logs = {7: self.opened.log, 8: self.opened.files.open(8)}
        for log in self.logs.values():
            log.segment_bytes = 6000
        self.opened.tell = lambda: disk.note("committed", self.opened.store.committed)
        self.index = (directory / "jumpmq.db").read_bytes()
        self.ends, self.waiting, self.next_seq = {7: 0, 8: 0}, make_messages(1, 0), 1
        self.states: dict[int, tuple[int, int, list[int]]] = {0: (0, 0, [])}
        self.end_turn()

    def append(self, stream: int, count: int, size: int) -> None:
        end = self.ends[stream]
        self.opened.files.append(self.logs[stream], [message(end + number, size) for number in range(count)])
        self.ends[stream] += count

    def bury(self, stream: int, count: int, size: int) -> None:
        """Move messages of a queue to a stream as rows, and publish new messages."""
        gone, self.waiting = self.waiting[:count], self.waiting[count:]
        if gone:
            self.append(stream, len(gone), size)
        for one in gone:
            one.batch.settle(one.seq)
        new = make_messages(self.next_seq, self.next_seq + count - 1)
        self.next_seq += count
        self.opened.store.append(1, new)
        self.waiting += new

    def end_turn(self) -> None:
        receipt = self.opened.store.flush()
        self.states[receipt] = (self.ends[7], self.ends[8], [one.seq for one in self.waiting])

    def run(self, steps: list[tuple[int, int, int, str]]) -> None:
        for stream, count, size, what in steps:
            if what == "letter":
                self.bury(stream, count, size)
            else:
                self.append(stream, count, size)
            if what == "retain":
                self.logs[stream].retain(12_000, None)
            self.end_turn()
            if what in ("wait", "retain"):
                self.opened.commit()
                while self.opened.retired:
                    with contextlib.suppress(OSError):
                        self.disk.remove(self.opened.retired.pop().path)
        self.opened.commit()
