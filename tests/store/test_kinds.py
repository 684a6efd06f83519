"""The table of kinds of records: the encoding in stores of all releases, octet for octet."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.store.opened import Opened

from jumpmq.store import kinds
from jumpmq.store.kinds import TABLE, Key, KeyPart, Kind

GOLDEN: list[tuple[str, tuple[KeyPart, ...], Any, str]] = [
    ("entry", (3,), {"do": "entry", "number": 3}, '["entry","3",{"do":"entry","number":3}]'),
    ("let_go", (), 2, '["let_go","",2]'),
    (
        "fence_ring", ("/", "ring", 65536), {"number": 65536, "since": 1.5},
        '["fence_ring","[\\"/\\",\\"ring\\",65536]",{"number":65536,"since":1.5}]',
    ),
    (
        "fence_mark", ("/", "ring", 65536, "q"), {"source": "q", "seq": 9, "lifted": []},
        '["fence_mark","[\\"/\\",\\"ring\\",65536,\\"q\\"]",{"source":"q","seq":9,"lifted":[]}]',
    ),
    (
        "fence_queue", ("/", "ring", 65536, 7), {"queue": 7, "name": "q", "first_seq": 10},
        '["fence_queue","[\\"/\\",\\"ring\\",65536,7]",{"queue":7,"name":"q","first_seq":10}]',
    ),
    ("sequence", (7,), 41, '["sequence","7",41]'),
    ("delivered", (7,), 12, '["delivered","7",12]'),
    ("attempts", (7, 9), 3, '["attempts","7 9",3]'),
    ("priorities", (7,), True, '["priorities","7",true]'),
    ("retry", (7, 10), [1700000000.5, 2], '["retry","7 10",[1700000000.5,2]]'),
    ("entered", (8,), 5, '["entered","8",5]'),
    (
        "group-offset", (8, "a group"), {"offset": 1, "delivered": 2, "skipped": 0},
        '["group-offset","8 a group",{"offset":1,"delivered":2,"skipped":0}]',
    ),
    ("owner_epoch", ("home",), 99, '["owner_epoch","home",99]'),
    ("stream", (8,), [0, 10, 1, 0, 77, True], '["stream","8",[0,10,1,0,77,true]]'),
    ("stream floor", (8,), 4, '["stream floor","8",4]'),
    ("stream source", (8,), [5, None, 10], '["stream source","8",[5,null,10]]'),
    ("stream move", (8,), 2, '["stream move","8",2]'),
    ("outbox", ("source",), "00ff", '["outbox","source","00ff"]'),
    ("taken", (2, 7), ["00ff", 5], '["taken","2 7",["00ff",5]]'),
    ("reservation", (7, "g h"), {"queue": 7, "group": "g h"}, '["reservation","7 g h",{"queue":7,"group":"g h"}]'),
    (
        "writer", ("/", "w", "0", "ann"), [1.5, 3, 10, "d", ""],
        '["writer","[\\"/\\", \\"w\\", \\"0\\", \\"ann\\"]",[1.5,3,10,"d",""]]',
    ),
    (
        "reader-group", ("/", "g"), {"vhost": "/", "name": "g"},
        '["reader-group","[\\"/\\", \\"g\\"]",{"vhost":"/","name":"g"}]',
    ),
    ("start", ("b-1",), 17, '["start","b-1",17]'),
    ("run", ("started_at",), 1.5, '["run","started_at",1.5]'),
    ("run", ("identity",), "a", '["run","identity","a"]'),
    ("run", ("homes",), 3, '["run","homes",3]'),
    ("run", ("left",), True, '["run","left",true]'),
    ("run", ("cluster",), {"cluster": "c", "home": 1}, '["run","cluster",{"cluster":"c","home":1}]'),
    ("run", ("returning",), [["/", "x"]], '["run","returning",[["/","x"]]]'),
    ("run", ("recovery",), "00ff", '["run","recovery","00ff"]'),
    ("run", ("epoch",), 4, '["run","epoch",4]'),
    ("loss", ("one is gone",), 5.5, '["loss","one is gone",5.5]'),
]  # fmt: skip
"""Kind, parts of the key, value, and octets in the log; for definitions see ``definitions-records.jsonl``."""


def rows(name: str, key: str) -> list[Kind]:
    return [row for row in TABLE if row.name == name and (row.name != "run" or row.parts == key)]


def definitions() -> dict[tuple[str, str], str]:
    """Records of definitions, by kind and key, as JSON text."""
    lines = (Path(__file__).parents[1] / "data" / "definitions-records.jsonl").read_text().splitlines()
    steps = [step for line in lines for step in json.loads(line)["shared"] if step[0] == "put"]
    return {(kind, key): text for _, kind, key, text in steps}


def test_each_kind_has_one_row() -> None:
    names = [(row.name, row.parts if row.name == "run" else "") for row in TABLE]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "parts", "value", "octets"), GOLDEN, ids=lambda one: str(one)[:20])
def test_golden_records_are_read_and_written(name: str, parts: tuple[KeyPart, ...], value: Any, octets: str) -> None:
    kind, key, read = json.loads(octets)
    [row] = rows(kind, key)
    assert (kind, row.decode(key, json.dumps(read))) == (name, (parts, value))
    assert json.dumps([kind, row.key.key(*parts), value], separators=(",", ":")) == octets


def test_golden_records_have_every_kind() -> None:
    golden = {(name, str(parts[0]) if name == "run" else "") for name, parts, _, _ in GOLDEN}
    own = {(row.name, row.parts if row.name == "run" else "") for row in TABLE if not row.in_snapshot}
    assert golden == own
    assert {kind for kind, _ in definitions()} == {row.name for row in TABLE if row.in_snapshot}


def test_keys_of_definitions_are_of_their_grammar() -> None:
    for (kind, key), text in definitions().items():
        [row] = rows(kind, key)
        parts, _ = row.decode(key, text)
        assert row.key.key(*parts) == key


def test_what_restores_a_kind_exists() -> None:
    for row in TABLE:
        if row.restored_by != "-":
            found, names = None, row.restored_by.split(".")
            for end in range(len(names), 0, -1):
                try:
                    found = import_module(".".join(names[:end]))
                except ModuleNotFoundError:
                    continue
                for name in names[end:]:
                    found = getattr(found, name)
                break
            assert found is not None, row.restored_by


def test_a_store_gives_back_each_kind(opened: Opened) -> None:
    """A store returns each kind of record, except streams without files and losses of earlier versions."""
    expected = {}
    for name, parts, value, _ in GOLDEN:
        key = rows(name, str(parts[0]) if parts else "")[0].key.key(*parts)
        if name not in (kinds.STREAM, kinds.STREAM_FLOOR, kinds.STREAM_SOURCE, kinds.LOSS):
            opened.store.put(name, key, value)
            expected[name, key] = value
    for (name, key), text in definitions().items():
        if not key.isascii():
            continue  # names that no request can have are of the encoding alone
        opened.store.put_text(name, key, text)
        expected[name, key] = json.loads(text)
    opened.commit()
    opened.restart()
    assert {(kind, key): value for kind, key, value in opened.store.definitions()} == expected


def test_a_key_of_another_grammar_is_refused() -> None:
    for grammar, key in ((Key.NONE, "x"), (Key.NUMBER, "x"), (Key.NUMBERS, "7 x"), (Key.LIST, "x")):
        with pytest.raises(ValueError):
            grammar.parts(key)
