"""A Spark session for a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from jumpmq.spark import register


@contextmanager
def session(master: str, name: str) -> Iterator[SparkSession]:
    """A quiet session whose Python workers are those of this environment, unless told otherwise.

    Args:
        master: of Spark, such as ``local[*]`` or ``spark://host:7077``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    found = SparkSession.builder.master(master).appName(name).config(map=settings).getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    register(found)
    try:
        yield found
    finally:
        found.stop()
