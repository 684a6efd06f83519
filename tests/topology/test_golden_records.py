"""Encodings of changes and definitions do not change: disks, etcd and links hold encodings of earlier releases."""

import json

from tests.topology.golden_records import CHANGES, PATH, lines

from jumpmq import topology
from jumpmq.topology import Change


def test_each_change_and_what_it_leaves_in_the_store_are_octet_for_octet_what_they_were() -> None:
    with PATH.open() as file:
        kept = list(map(json.loads, file))
    for line, expected in zip(lines(), kept, strict=True):
        assert line == expected


def test_each_kind_of_change_has_a_line() -> None:
    assert set(map(type, CHANGES)) == set(Change.KINDS.values()) == {getattr(topology, name) for name in Change.KINDS}
