"""Environment of child processes running modules of this package."""

import os
from pathlib import Path

_PACKAGES = Path(__file__).parents[1]
"""Parent directory of the imported ``jumpmq`` package."""


def package_environment() -> dict[str, str]:
    """Return the environment for a child, so that ``python -P -m jumpmq.…`` finds the package."""
    paths = (str(_PACKAGES), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
