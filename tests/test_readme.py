"""The README's quick start works as described."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.cli.commands import run as cli

import jumpmq

README = Path(__file__).parent.parent / "README.md"


def program(first_line: str) -> str:
    """The README's Python program with the given first line."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(first_line)]
    return found


def run(source: str, directory: Path) -> None:
    """Run a program in a new directory."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, "-c", source], cwd=directory, env=environment, check=True, timeout=500)


@pytest.mark.slow
def test_the_quick_start(tmp_path: Path) -> None:
    publish, read = program("import pika\n"), program("import jumpmq.spark\n")
    with jumpmq.running() as broker:
        assert 'pika.ConnectionParameters("127.0.0.1")' in publish
        run(publish.replace('ConnectionParameters("127.0.0.1")', f"URLParameters({broker.amqp_url!r})"), tmp_path)
        listed = cli("jumpmqctl", "--url", broker.http_url, "list_queues", "name", "messages")
        assert f"```console\n$ jumpmqctl list_queues name messages\n{listed.stdout}```" in README.read_text()
        assert "http://guest:guest@127.0.0.1:15672" in read
        run(read.replace("http://guest:guest@127.0.0.1:15672", broker.http_url), tmp_path)
    orders = ds.dataset(tmp_path / "orders.parquet", format="parquet", exclude_invalid_files=True).to_table()
    assert sorted(orders["what"].to_pylist()) == sorted(f"order {number}" for number in range(10_000))
    assert set(orders["queue"].to_pylist()) == {"orders-1", "orders-2", "orders-3"}
    assert len(set(zip(orders["queue"].to_pylist(), orders["customer"].to_pylist(), strict=True))) == 500


def test_a_broker_for_a_test_is_one_line(tmp_path: Path) -> None:
    run(program("import jumpmq\n"), tmp_path)


def test_every_file_that_the_readme_names_is_there() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)|`((?:tests|src|benchmarks)/[^`]*)`", README.read_text())
    missing = [path for pair in links for path in pair if path and not (README.parent / path).exists()]
    assert not missing


def test_bit_for_bit_says_where_headers_are_hashed_as_by_another_version() -> None:
    """The README excludes headers of RabbitMQ 3.x from "bit for bit", as `test_header_vectors.py` does."""
    [sentence] = re.findall(r"bit for bit \([^)]*\)", " ".join(README.read_text().split()))
    assert "header as RabbitMQ 4.x does" in sentence
    assert "not as 3.x" in sentence


PAGES = [README, *sorted((README.parent / "docs").glob("*.md")), *sorted((README.parent / "benchmarks").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Anchors of the page's headings, as made by a forge."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_documentation_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"
