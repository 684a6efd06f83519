"""All processes are killed and stopped: every message arrives exactly once at every sink."""

from pathlib import Path

import pytest
from tests.spark.kills import harm

pytest.importorskip("deltalake")

pytestmark = pytest.mark.slow


def test_each_message_arrives_once_while_everything_is_killed(tmp_path: Path) -> None:
    """Every message arrives once in a short run of ``python -m tests.spark.kills``."""
    result = harm(40, tmp_path, seed=7)
    count = result["published"]
    each_once = {"rows": count, "numbers": count, "highest": count - 1}
    assert result["found"] == dict.fromkeys(("parquet", "delta", "streams", "back"), each_once), result
    assert result["done"]
