"""The Python interpreter of Spark's workers, and its start time.

Spark puts archives of PySpark's sources at the front of the import path of its Python processes. Each process compiles
modules of an archive again, which takes half a second at each start of a streaming query. If the archives belong to the
installed PySpark, workers start without the archives, and PySpark loads as fast as in the driver.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark import SparkContext

ARCHIVES = "-src.zip:"
"""Suffix of the path entries that Spark puts first: ``.../pyspark.zip:.../py4j-VERSION-src.zip:``."""


def use_this_interpreter(context: SparkContext) -> None:
    """Run workers with the driver's interpreter, unless ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names one.

    Spark's default, ``python3``, is a different interpreter unless the virtual environment is activated.
    """
    named = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if named is None or _is_this(named):
        context.pythonExec = _quick_start(context) or sys.executable


def _is_this(python: str) -> bool:
    """Return True if a command starts the driver's interpreter, in the driver's virtual environment."""
    found = shutil.which(python)
    if found is None:
        return False
    this = Path(sys.executable)
    return this.samefile(found) and this.parent.samefile(Path(found).parent)


def _quick_start(context: SparkContext) -> str | None:
    """Return a command that starts the driver's interpreter without the archives; None if archives may be needed."""
    home = Path(pyspark.__file__).parent
    on_this_machine = context.getConf().get("spark.master", "").split("[")[0] == "local"
    if not on_this_machine or not (home / "python" / "lib" / "pyspark.zip").exists():
        return None
    script = without_archives(str(context._temp_dir))  # removed by Spark at its end
    return script if os.access(script, os.X_OK) else None


def without_archives(directory: str) -> str:
    """Write a script into ``directory`` that starts the current interpreter without the archives; return the path."""
    with tempfile.NamedTemporaryFile("w", prefix="python-", dir=directory, delete=False) as script:
        script.write(f'#!/bin/sh\nexport PYTHONPATH="${{PYTHONPATH#*{ARCHIVES}}}"\n')
        script.write(f'exec {shlex.quote(sys.executable)} "$@"\n')
    Path(script.name).chmod(0o700)
    return script.name
