"""Verification of consumers' records against the ordering guarantees per key."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.commands import run

from jumpmq.ordering import Delivery
from jumpmq.ordering.verification import Verification, verify

WHOLE = [("a", 1, 10), ("b", 1, 10), ("a", 2, 10), ("a", 3, 12), ("b", 2, 13)]


def rows(*given: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(("key", "number", "epoch", "consumer"), one, strict=False)) for one in given]


@pytest.mark.parametrize(
    "kind, given",
    [
        ("order", [("a", 1, 10), ("a", 3, 10), ("a", 2, 10)]),
        ("once", [("a", 1, 10), ("a", 2, 10), ("a", 1, 11)]),
        ("owner", [("a", 1, 10), ("a", 2, 12), ("a", 3, 10)]),
        ("owner", [("a", 1, 10, "one"), ("a", 2, 10, "two")]),
    ],
)
def test_each_promise_that_is_broken_is_named_with_its_rows(kind: str, given: list[tuple[Any, ...]]) -> None:
    (fault,) = verify(rows(*given))
    assert (fault.kind, fault.key, fault.row["row"]) == (kind, "a", len(given))
    assert fault.before["row"] < fault.row["row"] and "key 'a'" in str(fault)


def test_what_held_and_what_is_missing() -> None:
    verification = Verification()
    assert [fault for row in rows(*WHOLE, ("b", 5, 14)) for fault in verification.add(row)] == []
    assert (verification.rows, verification.keys, verification.missing) == (6, 2, 2)


def test_messages_without_numbers_are_known_by_their_ids() -> None:
    given = [{"key": "a", "message": one, "epoch": 1} for one in ("x", "y", "x")]
    assert [fault.kind for fault in verify(given)] == ["once"]


def naive(given: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """A reference implementation that scans all earlier rows for every row."""
    found = []
    for place, row in enumerate(given):
        before = [one for one in given[:place] if one["key"] == row["key"]]
        epoch = max((one["epoch"] for one in before), default=0)
        owner = next((one["consumer"] for one in before if one["epoch"] == epoch), None)
        if row["epoch"] < epoch or (row["epoch"] == epoch and row["consumer"] != owner):
            found.append(("owner", place + 1))
        if any(one["number"] == row["number"] for one in before):
            found.append(("once", place + 1))
        elif any(one["number"] > row["number"] for one in before):
            found.append(("order", place + 1))
    return found


ROW = st.tuples(st.sampled_from("ab"), st.integers(1, 6), st.integers(1, 4), st.sampled_from(["one", "two"]))


@given(st.lists(ROW, max_size=30))
def test_as_if_all_rows_before_were_looked_at(given: list[tuple[Any, ...]]) -> None:
    assert [(fault.kind, fault.row["row"]) for fault in verify(rows(*given))] == naive(rows(*given))


def test_the_command_reads_what_the_helper_writes(tmp_path: Path) -> None:
    lines, table, sheet = tmp_path / "a.jsonl", tmp_path / "a.db", tmp_path / "a.csv"
    handled = [
        Delivery(key, f"m{number}", "orders-1", None, epoch, False).record(number, consumer=f"c{epoch}")
        for key, number, epoch in WHOLE
    ]
    lines.write_text("".join(Delivery(k, "", "q", 3, e, False).line(n) for k, n, e in WHOLE))
    columns = list(handled[0])
    with closing(sqlite3.connect(table)) as database, database:
        database.execute(f"CREATE TABLE deliveries ({', '.join(columns)})")
        places = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO deliveries VALUES ({places})", [tuple(one.values()) for one in handled])
    sheet.write_text("\n".join([",".join(columns), *(",".join(map(str, one.values())) for one in handled)]))
    sums = "5 rows of 2 keys: order held, once held, owner held; 0 numbers missing\n"
    for path in (lines, table, sheet):
        held = run("jumpmq", "verify", path)
        assert (held.returncode, held.stdout, held.stderr) == (0, sums, ""), path
    both = run("jumpmq", "verify", "--json", lines, lines)
    assert both.returncode == 1
    *faults, totals = map(json.loads, both.stdout.splitlines())
    assert {one["fault"] for one in faults} == {"once", "owner"}
    assert totals == {"rows": 10, "keys": 2, "missing": 0, "order": 0, "once": 5, "owner": 3}


@pytest.mark.parametrize(
    "text, reason",
    [
        ('{"key": "a", "epoch": 1}\nnonsense {\n', "line 2: not JSON"),
        ("{" * 5000, "line 1: not JSON"),
        ('{"key": "a", "epoch": 1}\n[]\n', "line 2: not a JSON object"),
        ('{"key": 7, "epoch": 1}', "row 1 has no column 'key' with text"),
        ('{"key": "a"}', "row 1 has no column 'epoch' with an integer"),
        ('{"key": "a", "epoch": 1.5}', "row 1 has no integer in column 'epoch', but 1.5"),
        ('{"key": "a", "epoch": 1, "number": "x"}', "row 1 has no integer in column 'number', but 'x'"),
        ('{"key": "a", "epoch": 1, "message": []}', "row 1 has no text in column 'message', but []"),
        ("a,b\n1,2\n", "row 1 has no column 'key' with text"),
        ("SQLite format 3\0 and nothing else", "file is not a database"),
        ("\udcff", "can't decode"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "written"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    from jumpmq.cli import verifying

    with pytest.raises(verifying.UnreadableRecords) as refused:
        verifying.verify([path], "deliveries", False)
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    refused = run("jumpmq", "verify", tmp_path / "missing")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"jumpmq: {tmp_path / 'missing'}: No such file or directory\n"
