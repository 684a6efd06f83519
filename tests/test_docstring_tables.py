"""Tables in docstrings are intact: a formatter that wraps a row breaks the table."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "jumpmq"

RULE = re.compile(r"=+(?:  +=+)+")
"""The line above a table, below the names of its columns, and below the table."""


def _tables(docstring: str) -> Iterator[tuple[list[tuple[int, int]], list[str]]]:
    """Yield the columns of each table, as ranges of characters, and the lines of the table between rules."""
    columns: list[tuple[int, int]] = []
    lines: list[str] = []
    for line in docstring.splitlines():
        if RULE.fullmatch(line):
            if lines:
                yield columns, lines
            columns, lines = [one.span() for one in re.finditer("=+", line)], []
        elif not line.strip():  # behind a table
            columns, lines = [], []
        elif columns:
            lines.append(line)


def test_each_row_of_a_table_has_its_columns() -> None:
    broken, rows = [], 0
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for columns, lines in _tables(ast.get_docstring(node) or ""):
                for line in lines:
                    rows += 1
                    gaps = [line[end:begin] for (_, end), (begin, _) in pairwise(columns)]
                    cells = [line[begin:end].strip() for begin, end in columns]
                    is_continued = not cells[0] and cells[-1]
                    if any(gap.strip() for gap in gaps) or not (is_continued or all(cells)):
                        broken.append(f"{path.relative_to(SOURCES)}: {line}")
    assert rows > 100, "the tables were found"
    assert broken == []
