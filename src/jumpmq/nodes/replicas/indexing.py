"""Indexing of a copy in a child process, to spare the event loop and the memory of the parent.

``python -m jumpmq.nodes.replicas.indexing DIRECTORY SEGMENT`` updates the index of a copy up to a segment, and prints
the result as JSON. The child process inherits a descriptor of the directory's lock, so that no other process opens the
copy before the child has ended. The child ends when its standard input ends, and may be killed at any point.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from jumpmq._child_processes import start_module
from jumpmq.queues.clock import boot_time
from jumpmq.store.background import Background
from jumpmq.store.errors import StoreError
from jumpmq.store.indexing import Indexed, UnfitCopy, index_sealed

MODULE = "jumpmq.nodes.replicas.indexing"
"""Module run by the child process: this module."""

UNFIT = 2
"""Exit status of a child that found missing or damaged data."""

NICENESS = 10
"""Niceness of a child: lowest priority for the processor."""


class Indexing:
    """Indexing runs of a copy, in sequence.

    Args:
        directory: directory of the copy.
        soon: schedules a function in the event loop; called from any thread.
        on_indexed: called with the result of a run.
        on_unfit: called with the reason if the copy lacks data, or has damaged data.
        on_failure: called with the error of a failed run.
        retry: seconds between a failed run and the next run: a full disk may have room by then.
    """

    def __init__(
        self,
        directory: Path,
        soon: Callable[[Callable[[], None]], object],
        on_indexed: Callable[[Indexed], None],
        on_unfit: Callable[[str], None],
        on_failure: Callable[[str], None],
        retry: float = 10.0,
    ) -> None:
        self._retry = retry
        self._directory = directory
        self._on_indexed = on_indexed
        self._on_unfit = on_unfit
        self._on_failure = on_failure
        self._thread = Background("jumpmq-indexing", self._wake)
        self._soon = soon
        self._process: subprocess.Popen[bytes] | None = None
        self._tried = 0  # segment of the last successful run
        self._resumes = 0.0  # earliest time for the next run after a failure
        self._runs = self._ended = False

    @property
    def is_due(self) -> bool:
        """True if the last run has failed long enough ago to be tried again."""
        return 0.0 < self._resumes <= boot_time()

    def run(self, before: int, lock: int) -> None:
        """Begin a run, unless a run is in progress, has reached the same segment, or has just failed.

        Args:
            before: segment up to which the index is updated.
            lock: descriptor of the directory's lock.
        """
        if self._runs or self._ended or before <= self._tried or boot_time() < self._resumes:
            return
        self._runs = True
        self._thread.run(lambda: self._run(before, lock), self._done)

    def end(self, then: Callable[[], None]) -> None:
        """Kill the current run, begin no further run, and call a function once no run is in progress."""
        self.stop()
        if self._runs:
            self._thread.run(lambda: None, lambda result: then())
        else:
            then()

    def stop(self) -> None:
        """Kill the current run, and begin no further run."""
        self._ended = True
        self._kill()

    def close(self) -> None:
        """Wait for the end of the run killed by :meth:`stop`. May block for the disk."""
        self._thread.close(deliver=False)

    def _wake(self) -> None:
        self._soon(self._thread.deliver)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _run(self, before: int, lock: int) -> Indexed:
        """Run a child process and wait for it, in the thread."""
        pipe = subprocess.PIPE
        with start_module(
            MODULE, str(self._directory), str(before), pass_fds=[lock], stdin=pipe, stdout=pipe
        ) as process:
            self._process = process
            if self._ended:
                process.kill()
            assert process.stdout is not None
            said = process.stdout.read()
        self._process = None
        if process.returncode == UNFIT:
            raise UnfitCopy(said.decode().strip())
        if process.returncode:
            raise StoreError(said.decode().strip() or f"the process that indexes ended with {process.returncode}")
        segment, consumed = json.loads(said)
        return Indexed(segment, tuple(consumed))

    def _done(self, result: Indexed | Exception) -> None:
        self._runs = False
        if self._ended:
            return
        if isinstance(result, Exception):
            self._resumes = boot_time() + self._retry
            (self._on_unfit if isinstance(result, UnfitCopy) else self._on_failure)(str(result))
        else:
            self._resumes = 0.0
            self._tried = result.segment  # a run may end before the requested segment
            self._on_indexed(result)


def _watch() -> None:
    """End this process at the end of the parent process."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    os.nice(NICENESS)
    threading.Thread(target=_watch, daemon=True).start()
    try:
        print(json.dumps(index_sealed(Path(sys.argv[1]), int(sys.argv[2]))), flush=True)
    except StoreError as error:
        print(error)
        sys.exit(UNFIT if isinstance(error, UnfitCopy) else 1)
    except BrokenPipeError:  # the parent has ended or restarted
        os._exit(1)


if __name__ == "__main__":
    main()
