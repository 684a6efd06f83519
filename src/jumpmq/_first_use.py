"""Import of a package's names on first use, for a fast start of programs that use few of the names."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def import_name(package: str, homes: Mapping[str, str], name: str) -> Any:
    """Import a name from its module, on behalf of a package's ``__getattr__``.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
