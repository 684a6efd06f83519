"""rabbitmqctl's output modes: `table` (tab-separated), `pretty_table`, `csv` and `json`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from jumpmq.cli.terminal import json_text
from jumpmq.serving.logs import escaped


class FormatterName(StrEnum):
    """Values of `--formatter`."""

    table = "table"
    pretty_table = "pretty_table"
    csv = "csv"
    json = "json"


class Atoms(list[str]):
    """Words without quotes in rabbitmqctl's output, such as a user's tags."""


TableRows = list[list[Any]]
Formatter = Callable[[list[str], TableRows, bool], str]


def erlang_term(value: Any) -> str:
    """Format a value as rabbitmqctl does inside a list of arguments: `5`, `"text"`, `[{"x-max-length",5}]`."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, Mapping):
        return f"[{','.join(f'{{{erlang_term(name)},{erlang_term(item)}}}' for name, item in value.items())}]"
    if isinstance(value, Atoms):
        return f"[{', '.join(value)}]"
    if isinstance(value, list):
        return f"[{','.join(erlang_term(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def cell(value: Any) -> str:
    """Format a value for a table: empty for `None`, strings with control characters escaped."""
    if value is None:
        return ""
    if isinstance(value, str):
        return escaped(value.replace("\\", "\\\\"))
    return escaped(erlang_term(value))


def as_table(names: list[str], rows: TableRows, headers: bool) -> str:
    """Format rows as tab-separated lines, for shell scripts."""
    lines = [names] if headers and rows else []
    return "".join("\t".join(line) + "\n" for line in [*lines, *([cell(value) for value in row] for row in rows)])


def as_pretty_table(names: list[str], rows: TableRows, headers: bool) -> str:
    """Draw a table, at most as wide as the terminal. Long cells are folded; no cell is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_header=headers, show_edge=False, pad_edge=False)
    for index, name in enumerate(names):
        numeric = bool(rows) and all(isinstance(row[index], int | float) and row[index] is not True for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def as_csv(names: list[str], rows: TableRows, headers: bool) -> str:
    """Format rows as comma-separated values, all quoted."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    if headers:
        writer.writerow(names)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def as_json(names: list[str], rows: TableRows, headers: bool) -> str:
    """Format rows as a JSON array, with one object per line."""
    objects = [json_text(dict(zip(names, row, strict=True))) for row in rows]
    return "[\n" + "\n,".join(objects) + "\n]\n"


def as_json_object(facts: Mapping[str, Any]) -> str:
    """Format one JSON object as a line, for verbs about a single object."""
    return json_text(facts)


FORMATTERS: dict[FormatterName, Formatter] = {
    FormatterName.table: as_table,
    FormatterName.pretty_table: as_pretty_table,
    FormatterName.csv: as_csv,
    FormatterName.json: as_json,
}
