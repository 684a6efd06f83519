"""Ctrl-C: ends the Spark queries and jobs of a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession

AGAIN = 0.5
"""Seconds between two requests to stop all queries and jobs, as queries may start further jobs."""


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Stop the queries and jobs of a session on Ctrl-C; on a second Ctrl-C, raise KeyboardInterrupt at once.

    A separate thread stops them: an exception within a call to Spark would break the connection to the JVM, with long
    error messages.

    Raises:
        KeyboardInterrupt: after Ctrl-C, once queries and jobs have ended.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
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
