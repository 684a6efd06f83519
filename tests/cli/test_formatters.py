"""Listings have the format of rabbitmqctl 3.10.8; the expected texts are its output for the same objects."""

import json

import pytest

from jumpmq.cli.formatters import as_csv, as_json, as_pretty_table, as_table

NAMES = ["name", "messages", "durable", "arguments"]
ROWS = [["q2", 0, True, {}], ["q1", 1, True, {"x-max-length": 5}]]


def test_table_is_separated_by_tabs() -> None:
    assert as_table(NAMES, ROWS, True) == (
        'name\tmessages\tdurable\targuments\nq2\t0\ttrue\t[]\nq1\t1\ttrue\t[{"x-max-length",5}]\n'
    )


def test_table_without_headers() -> None:
    assert as_table(["name"], [["q2"], ["q1"]], False) == "q2\nq1\n"


def test_an_empty_listing_has_no_header_row() -> None:
    assert as_table(NAMES, [], True) == ""


def test_a_name_with_a_tab_or_a_newline_stays_in_its_cell() -> None:
    assert as_table(["name", "messages"], [["a\tb\nc", 1]], False) == "a\\tb\\nc\t1\n"


def test_csv_quotes_every_value() -> None:
    assert as_csv(["name", "arguments"], [["q2", {}], ["q1", {"x-max-length": 5}]], True) == (
        '"name","arguments"\n"q2","[]"\n"q1","[{""x-max-length"",5}]"\n'
    )


def test_json_has_an_object_a_line_with_arguments_as_an_object() -> None:
    text = as_json(["name", "arguments"], [["q2", {}], ["q1", {"x-max-length": 5}]], True)
    assert text == '[\n{"name": "q2", "arguments": {}}\n,{"name": "q1", "arguments": {"x-max-length": 5}}\n]\n'


def test_json_of_nothing_is_an_empty_array() -> None:
    assert json.loads(as_json(NAMES, [], True)) == []


def test_a_pretty_table_folds_long_cells_instead_of_cutting_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    name = "sharding: shard.images - rabbit@sparrow - 0, and so on for a while"
    text = as_pretty_table(["name", "messages"], [[name, 17]], True)
    assert max(len(line) for line in text.splitlines()) <= 40
    assert "".join(line[:29].strip() for line in text.splitlines()[2:]).replace(" ", "") == name.replace(" ", "")


def test_a_pretty_table_takes_names_literally() -> None:
    assert "[bold]orders[/]" in as_pretty_table(["name"], [["[bold]orders[/]"]], True)
