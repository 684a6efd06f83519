"""Ctrl-C ends the Spark queries and jobs of a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession

AGAIN = 0.5
"""Seconds until jobs started meanwhile are stopped, too."""


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Stop the queries and jobs of a session on Ctrl-C; on the second one, end the process at once.

    Another thread stops them: a call of Spark's that is broken off leaves its connection in disorder, and says so at
    length.

    Raises:
        KeyboardInterrupt: there was a Ctrl-C, and what it stopped has ended.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone is told of signals
        yield
        return
    asked, over = threading.Event(), threading.Event()

    def stop() -> None:
        while not over.is_set():
            for query in spark.streams.active:
                query.stop()
            spark.sparkContext.cancelAllJobs()
            over.wait(AGAIN)

    stopping = threading.Thread(target=stop, name="stop on Ctrl-C", daemon=True)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asked.set()
        stopping.start()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    except Exception:
        if not asked.is_set():
            raise
    finally:
        over.set()
        if asked.is_set():
            stopping.join()
        signal.signal(signal.SIGINT, before)
    if asked.is_set():
        raise KeyboardInterrupt
