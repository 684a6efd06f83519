"""The files, and members of classes and modules, named in CONTRIBUTING.md exist."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "jumpmq"

MEMBER = re.compile(r"(_?[A-Za-z]\w*)\.(\w+)")
FILE = re.compile(r"[\w./-]+(?:\.(?:py|pyx|js|md|toml)|/)")
PLACEHOLDER = re.compile(r"\b[A-Z]+\b")
"""A variable part of a path, as in ``cli/verbs/SUBJECT.py``."""


def _quoted() -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", (ROOT / "CONTRIBUTING.md").read_text()))


def _names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names of functions and classes, and all assigned names and attributes."""
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield one.name
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def test_each_member_of_a_class_or_module_exists() -> None:
    members: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        members[path.stem] |= set(_names_in(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members[node.name] |= set(_names_in(node))
                bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}

    def has(owner: str, name: str) -> bool:
        return name in members[owner] or any(has(base, name) for base in bases.get(owner, ()) if base in members)

    named = [found for one in _quoted() if (found := MEMBER.fullmatch(one)) and found[1] in members]
    assert len(named) > 100, "the members were found"
    assert sorted(found[0] for found in named if not FILE.fullmatch(found[0]) and not has(found[1], found[2])) == []


def test_each_file_exists() -> None:
    named = [one for one in _quoted() if FILE.fullmatch(one) and not PLACEHOLDER.search(one)]
    there = {
        f"/{path.relative_to(ROOT)}"
        for folder in ("src", "tests", "docs", "fuzzing")
        for path in (ROOT / folder).rglob("*")
    }
    assert len(named) > 100, "the files were found"
    absent = [
        one
        for one in named
        if not (ROOT / one).exists() and not any(path.endswith(f"/{one.rstrip('/')}") for path in there)
    ]
    assert sorted(absent) == []
