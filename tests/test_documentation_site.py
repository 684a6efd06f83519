"""`docs/` as a site: it builds without a warning, and its links resolve."""

import importlib
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("material", reason="mkdocs-material is not installed")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as built by `make docs`."""
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(made)]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | quiet)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")
    return made


def test_each_page_is_there(site: Path) -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"README"} | {"index"}
    assert pages <= {page.stem for page in site.glob("*.html")}


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    lost = []
    for page in site.glob("*.html"):
        if page.name == "404.html":
            continue  # a page for any address: its links begin at the root
        content = page.read_text()
        for kind, link in re.findall(r'\b(href|src)="([^"]*)"', content):
            parts = urlsplit(unescape(link))
            if parts.scheme or parts.netloc:
                assert kind == "href", link
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            named = parts.fragment and target.suffix == ".html"
            if not target.is_file() or (named and f'id="{unquote(parts.fragment)}"' not in target.read_text()):
                lost.append(f"{page.name}: {link}")
    assert not lost


@pytest.mark.parametrize("name", ["jumpmq", "jumpmq.spark", "jumpmq.testing", "jumpmq.hashing"])
def test_the_reference_has_each_public_name(site: Path, name: str) -> None:
    package = importlib.import_module(name)
    content = (site / "reference" / f"{name}.html").read_text()
    documented = set(re.findall(r'id="([\w.]+)"', content))
    missing = [one for one in package.__all__ if f"{name}.{one}" not in documented and getattr(package, one).__doc__]
    assert [one for one in missing if not isinstance(getattr(package, one), int | str | bool)] == []


def test_programs_find_the_pages_by_llms_txt(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not (site / link).exists()] == []


def test_each_option_of_spark_is_in_one_table_and_on_spark_s_page(site: Path) -> None:
    from jumpmq.spark import options, sink

    table = (site / "reference" / "spark-options.html").read_text()
    page = (ROOT / "docs" / "spark.md").read_text()
    for name in options.BROKER_OPTIONS | options.SOURCE_OPTIONS | sink.SINK_OPTIONS:
        shown = options.NAMES.get(name, name)
        assert f"<code>{shown}</code>" in table
        assert f"`{shown}`" in page
