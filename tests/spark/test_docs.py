"""The commands of `docs/spark.md` work, from top to bottom."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.http.api import API
from typer import Context
from typer.main import get_command
from typer.testing import CliRunner

import jumpmq
from jumpmq.cli.jumpmq import app
from jumpmq.management import ManagementClient

PAGE = (Path(__file__).parents[2] / "docs/spark.md").read_text()


def blocks(kind: str) -> list[str]:
    """The page's code blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == kind]


@pytest.mark.slow
def test_its_programs_run_one_after_the_other(
    spark: SparkSession, broker: jumpmq.RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("deltalake", "pyiceberg"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    client, api = ManagementClient(broker.http_url), API(broker.http_url)
    (definitions,) = blocks("json")
    client.post("definitions", body=json.loads(definitions))
    client.put("queues", "/", "orders", body={"durable": True})
    names: dict[str, Any] = {}
    for source in blocks("python"):
        for address, ours in (
            ("http://guest:guest@127.0.0.1:15672", broker.http_url),
            ("amqp://me:secret@rabbit:5672/%2F", broker.amqp_url),
        ):
            source = source.replace(address, ours)
        source = re.sub(r'"(\w+\.(?:parquet|checkpoint))"', rf'"{tmp_path}/\1"', source)  # Java keeps its directory
        exec(compile(source, "docs/spark.md", "exec"), names)
        for one in spark.streams.active:
            one.awaitTermination()
    assert spark.read.parquet(f"{tmp_path}/flights.parquet").count() == 10_000
    assert names["orders"].count() == 0
    assert (tmp_path / "lake/flights").is_dir() and (tmp_path / "lake/archive/flights").is_dir()
    assert [api.counts(queue)[0] for queue in ("flights-1", "flights-2")] == [0, 0]


def test_the_file_of_definitions_is_shown_before_its_import() -> None:
    assert PAGE.index("`flights.json`") < PAGE.index("```json") < PAGE.index("import_definitions flights.json")


@pytest.mark.slow
def test_its_pipelines_run_one_after_the_other(
    spark: SparkSession, broker: jumpmq.RunningBroker, tmp_path: Path
) -> None:
    (definitions,) = blocks("json")
    ManagementClient(broker.http_url).post("definitions", body=json.loads(definitions))
    (tmp_path / "flights.csv").write_text("tail_number,day\nN14228,1\nN24211,2\n")
    (pipelines,) = [block for block in blocks("") if block.startswith("jumpmq pipeline")]
    pipelines = re.sub(r" \[.*?\]", "", pipelines).replace("10000000", "1000")
    pipelines = re.sub(
        r"(\w+\.(?:parquet|checkpoint|csv|html))", rf"{tmp_path}/\1", pipelines
    )  # Java keeps its directory
    for line in sorted(pipelines.splitlines(), key=lambda line: "publish" not in line):
        result = CliRunner().invoke(app, shlex.split(line)[1:], env={"JUMPMQ_URL": broker.http_url})
        assert result.exit_code == 0, (line, result.output, result.exception)
    assert sum(API(broker.http_url).counts(queue)[0] for queue in ("flights-1", "flights-2")) > 0
    assert spark.read.parquet(f"{tmp_path}/archive.parquet").count() == 2
    assert all((tmp_path / name).exists() for name in ("uniformity.html", "plan.html"))


def test_its_commands_are_such() -> None:
    command = get_command(app)
    lines = [line for kind in ("", "console") for block in blocks(kind) for line in block.splitlines()]
    ours = [
        line for line in (line.removeprefix("$ ").removesuffix(" &") for line in lines) if line.startswith("jumpmq ")
    ]
    assert len(ours) > 5
    for line in ours:
        words = shlex.split(re.sub(r"\[(.*?)\]", r"\1", line))[1:]
        context = Context(command)
        found = command
        while hasattr(found, "commands"):
            found = found.commands[words.pop(0)]
        found.make_context(line, words, parent=context)
