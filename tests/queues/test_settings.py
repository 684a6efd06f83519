"""The table of settings: the documentation and the page list the same names."""

import re
from pathlib import Path

from jumpmq.queues import DECLARABLE_TYPES, QUEUE_TYPES
from jumpmq.queues.settings import POLICIES, SETTINGS, QueueSetting

ROOT = Path(__file__).parents[2]


def row_of(setting: QueueSetting) -> str:
    by_policy = listed(setting.by_policy)
    if setting.operator:
        by_policy += ", operator"
    counts = "; the lower one counts" if setting.lowest else ""
    if setting.policy_first:
        of = "" if setting.policy_first == setting.kinds else f"{listed(setting.policy_first)}: "
        counts += f"; {of}the policy counts"
    return f"| `{setting.argument}` | {listed(setting.kinds)} | {by_policy} | {setting.text}{counts} |"


def listed(kinds: frozenset[str]) -> str:
    return "all" if kinds == set(DECLARABLE_TYPES) else ", ".join(kind for kind in DECLARABLE_TYPES if kind in kinds)


def test_the_documentation_has_every_setting() -> None:
    rows = re.findall(r"^\| `x-[a-z-]+` \| .* \|$", (ROOT / "docs/queues.md").read_text(), re.MULTILINE)
    assert rows == [row_of(setting) for setting in sorted(SETTINGS, key=lambda setting: setting.name)]


def test_the_page_suggests_keys_that_exist() -> None:
    page = (ROOT / "src/jumpmq/http/site/static/views/policies.js").read_text()
    found = re.search(r"^const SETTINGS = \[(.*)\];$", page, re.MULTILINE)
    assert found is not None
    others = {"shards-per-node", "routing-key", "alternate-exchange", "max-priority"}
    assert set(re.findall(r'"([a-z-]+)"', found[1])) - others <= POLICIES.keys()


def test_names_are_unique_and_kinds_exist() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    for setting in SETTINGS:
        assert setting.kinds | setting.by_policy <= QUEUE_TYPES.keys()
        assert (setting.policy is None) == (not setting.by_policy)
