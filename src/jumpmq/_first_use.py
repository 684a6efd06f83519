"""Names of a package that are imported on first use, so that who needs few of them starts soon."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def import_name(package: str, homes: Mapping[str, str], name: str) -> Any:
    """What a package's ``__getattr__`` returns: a name from the module that is its home.

    Raises:
        AttributeError: it has none.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
