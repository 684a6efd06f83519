"""Bundling of the page's modules into one file, so that a first visit over a slow line needs few requests.

Every bundled module becomes a function, called in the order of the imports. The function's exports are an object in
``modules``. Modules loaded on demand import ``modules`` from the bundle, so that each module exists once. Supported are
the forms of ``import`` and ``export`` in the page's own files, one per line; other forms are an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping

IMPORT = re.compile(r'^import (\{[^}]*\}|\* as \w+) from "(\.[^"]+)";$', re.MULTILINE)
LATER = re.compile(r'\bimport\("(\.[^"]+)"\)')
EXPORTED = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
EXPORTS = re.compile(r"\bexport ?\{([^}]*)\};?")
LEFT = re.compile(r"^\s*(import [^(]|export\b)", re.MULTILINE)


class NotUnderstood(ValueError):
    """A module has an import or export of an unsupported form."""


def bundle(sources: Mapping[str, str], main: str) -> str:
    """Return a module with ``main`` and its imports. Modules loaded by ``import(...)`` stay separate files.

    Args:
        sources: text of every module by path.
        main: path of the main module; the bundle is served under this path.
    """
    bundled = "\n".join(
        f'modules["{path}"] = (() => {{\n{_as_function(path, sources[path], main)}\n}})();'
        for path in order(sources, main)
    )
    return f"export const modules = {{}};\n{bundled}\n"


def loaded_later(path: str, source: str, bundled: Collection[str], main: str) -> str:
    """Return a module loaded on demand, with imports of bundled modules from the bundle."""

    def imported(found: re.Match[str]) -> str:
        return _taken(found, path) if _resolved(path, found[2]) in bundled else found[0]

    place = posixpath.relpath(main, posixpath.dirname(path))
    return f'import {{ modules }} from "{place}"; {IMPORT.sub(imported, source)}'


def order(sources: Mapping[str, str], main: str) -> list[str]:
    """Return the paths of a module and its imports, imports first.

    Raises:
        NotUnderstood: modules import each other in a circle, or a module is missing.
    """
    begun, finished = set[str](), list[str]()

    def visit(path: str) -> None:
        begun.add(path)
        for _, to in IMPORT.findall(sources[path]):
            one = _resolved(path, to)
            if one not in sources or (one in begun and one not in finished):
                raise NotUnderstood(f"{path} imports {one}: missing, or a circle of imports")
            if one not in finished:
                visit(one)
        finished.append(path)

    visit(main)
    return finished


def _as_function(path: str, source: str, main: str) -> str:
    """Return the body of a function that runs a module and returns its exports."""
    exports = [(name, name) for name in EXPORTED.findall(source)]
    for several in EXPORTS.findall(source):
        exports += [_renamed(one) for one in several.split(",") if one.strip()]
    body = EXPORTS.sub("", EXPORTED.sub("", IMPORT.sub(lambda found: _taken(found, path), source)))
    body = LATER.sub(
        lambda found: f'import("./{posixpath.relpath(_resolved(path, found[1]), posixpath.dirname(main))}")', body
    )
    if left := LEFT.search(body):
        raise NotUnderstood(f"{path}: {left[0].strip()!r} has an unsupported form")
    shown = ", ".join(f"{outside}: {inside}" for inside, outside in exports)
    return f"{body}\nreturn {{ {shown} }};"


def _renamed(one: str) -> tuple[str, str]:
    """Return both names in ``a as b``; for ``a`` alone, the name twice."""
    inside, _, outside = one.strip().partition(" as ")
    return inside, outside or inside


def _taken(found: re.Match[str], path: str) -> str:
    """Return an import as a constant taken from the bundled modules."""
    what = found[1].removeprefix("* as ").replace(" as ", ": ")
    return f'const {what} = modules["{_resolved(path, found[2])}"];'


def _resolved(path: str, to: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
