"""Names under "Raises" in docstrings are exception classes of the package, of Python or of a library."""

import ast
import builtins
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "jumpmq"


def _sections(docstring: str) -> Iterator[str]:
    """Yield the names under ``Raises:``."""
    lines = iter(docstring.splitlines())
    for line in lines:
        if line.strip() != "Raises:":
            continue
        indent = None
        for row in lines:
            if not row.strip():
                break
            here = len(row) - len(row.lstrip())
            indent = here if indent is None else indent
            if here < indent:
                break
            if here == indent:
                yield row.strip().partition(":")[0]


def _is_of_library(name: str) -> bool:
    """Return true if a dotted name, such as ``sqlite3.Error``, is an exception."""
    return "." in name and issubclass(pkgutil.resolve_name(name), BaseException)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_each_name_under_raises_is_an_exception() -> None:
    found: list[tuple[str, str]] = []
    bases: dict[str, set[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {_name(base) for base in node.bases}
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                place = path.relative_to(SOURCES).as_posix()
                found += [(place, one) for one in _sections(ast.get_docstring(node) or "")]
    exceptions = {
        name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, BaseException)
    }
    while more := {name for name, of in bases.items() if of & exceptions} - exceptions:
        exceptions |= more
    assert len(found) > 300, "the docstrings were found"
    named = [(place, name) for place, names in found for name in re.split(r", | or ", names)]
    wrong = {(place, name) for place, name in named if not (name in exceptions or _is_of_library(name))}
    assert not wrong, "\n".join(f"{place}: {name}" for place, name in sorted(wrong))
