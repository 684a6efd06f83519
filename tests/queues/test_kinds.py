"""Kinds of queue: the class declares the abilities."""

import re
from pathlib import Path

import jumpmq
from jumpmq.queues import DECLARABLE_TYPES, QUEUE_TYPES

ROOT = Path(jumpmq.__file__).parent

EXCEPT = {"topology/exchanges/local_random.py", "http/resources/metric_families.py"}
"""Files with rules of RabbitMQ for single kinds (see ``CONTRIBUTING.md``)."""


def test_the_broker_asks_for_what_a_kind_can_and_not_for_its_name() -> None:
    name = re.compile(f"([\"'])({'|'.join(DECLARABLE_TYPES)})\\1")
    files = [
        path for room in ("broker", "topology", "http", "nodes", "serving") for path in (ROOT / room).rglob("*.py")
    ]
    assert {path.relative_to(ROOT).as_posix() for path in files if name.search(path.read_text())} == EXCEPT


def test_each_declarable_kind_has_policies_of_its_own() -> None:
    targets = [QUEUE_TYPES[kind].policy_target for kind in DECLARABLE_TYPES]
    assert all(targets) and len(set(targets)) == len(targets)
