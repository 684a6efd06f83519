"""Environment of child processes that run modules of this package."""

import os
from pathlib import Path

_PACKAGES = Path(__file__).parents[1]
"""Parent directory of the imported ``jumpmq`` package."""


def package_environment() -> dict[str, str]:
    """Return the environment of this process, in which ``python -P -m jumpmq.…`` finds the same package."""
    paths = (str(_PACKAGES), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
