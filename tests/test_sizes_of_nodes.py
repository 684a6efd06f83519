"""Bounds of the package ``nodes``: methods of a class, and files of a folder."""

import ast
from collections import Counter
from pathlib import Path

NODES = Path(__file__).parents[1] / "src" / "jumpmq" / "nodes"
FILES = sorted(NODES.rglob("*.py"))

MAX_METHODS = 35
"""Maximum number of methods of a class, without the constructor and properties."""

MAX_FILES = 12
"""Maximum number of Python files in a folder."""


def is_property(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return true for a property, cached or not, and for a property's setter."""
    names = {name for decorator in method.decorator_list for name in ast.unparse(decorator).split(".")}
    return not names.isdisjoint({"property", "cached_property", "setter"})


def methods(one: ast.ClassDef) -> int:
    """Number of the methods in a class's body."""
    found = [node for node in one.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(method.name != "__init__" and not is_property(method) for method in found)


def test_no_class_has_more_methods_than_the_bound() -> None:
    sizes = {
        f"{path.relative_to(NODES)}: {one.name}": methods(one)
        for path in FILES
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.ClassDef)
    }
    assert len(sizes) > 100, "the sources were found"
    assert {name: size for name, size in sizes.items() if size > MAX_METHODS} == {}


def test_no_folder_has_more_files_than_the_bound() -> None:
    sizes = Counter(path.parent.relative_to(NODES).as_posix() for path in FILES)
    assert len(sizes) > 5, "the sources were found"
    assert {folder: size for folder, size in sizes.items() if size > MAX_FILES} == {}
