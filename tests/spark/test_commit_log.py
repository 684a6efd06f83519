"""A source reads its query's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from jumpmq.spark.commit_log import CommitLog


def test_each_source_of_a_query_has_its_own_end_also_where_groups_are_called_alike(tmp_path: Path) -> None:
    ends = [{"group": "g", "query": name, "queues": {"q": number}} for name, number in (("one", 7), ("other", 3))]
    for kind, lines in (("offsets", ["v1", "{}", *map(json.dumps, ends)]), ("commits", ["v1", "{}"])):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "0").write_text("\n".join(lines))
    found = {name: CommitLog(str(tmp_path)).completed("g", name) for name in ("one", "other", "third")}
    assert found == {"one": {"q": 7}, "other": {"q": 3}, "third": None}
