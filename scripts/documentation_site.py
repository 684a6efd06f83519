"""Hooks of mkdocs: files outside of `docs/` that pages link to (examples, benchmarks) become part of the site.

A forge shows those links as they are; the site has a copy of each file at the same path below its root. A page for each
public package is made from its docstrings, and `llms.txt` lists the pages, as https://llmstxt.org describes.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

REFERENCE = {
    "jumpmq": "A broker in a program or a test",
    "jumpmq.spark": "Spark's source, sink and functions",
    "jumpmq.testing": "Brokers as processes, for tests",
    "jumpmq.hashing": "Where a key goes",
}
"""Public packages by name, with the titles of their pages."""

OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")


OPTIONS_PAGE = "reference/spark-options.md"


def spark_options() -> str:
    """Return the options of Spark's source and sink as a table, from parsers and docstrings of the fields."""
    from jumpmq.spark import options, sink

    fields = {
        **_fields(options.BrokerAddress),
        **{name: _fields(options.BrokerAddress)["tls"] for name in ("ca", "certificate", "key")},
    }
    readers = {
        "reading and writing": (options.BROKER_OPTIONS, fields),
        "reading": (options.SOURCE_OPTIONS, _fields(options.SourceOptions)),
        "writing": (sink.SINK_OPTIONS, _fields(sink.SinkOptions)),
    }
    aliases: dict[str, list[str]] = {}
    for alias, ours in options.KAFKAS_NAMES.items():
        aliases.setdefault(ours, []).append(f"`{alias}`")
    lines = ["# Options of Spark's source and sink", "", "Names are not case-sensitive.", ""]
    lines += ["| option | of | | also |", "| --- | --- | --- | --- |"]
    for where, (reads, described) in readers.items():
        for name, (field, _) in reads.items():
            if where == "writing" and name in options.BROKER_OPTIONS:
                continue
            told = described[field] if field in described else described[f"{field}s"]  # a queue of several
            text = told.replace("|", "\\|").replace("``", "`")
            lines.append(
                f"| `{options.NAMES.get(name, name)}` | {where} | {text} | {', '.join(aliases.get(name, []))} |"
            )
    return "\n".join([*lines, ""])


def _fields(options: type) -> dict[str, str]:
    """The descriptions of a class docstring's attributes."""
    _, _, attributes = (options.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for names, text in re.findall(r"^ {8}([a-z_, ]+): (.*(?:\n {12}.*)*)", attributes, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files (all files of a folder), and the reference."""
    root = Path(config.docs_dir).parent
    for package, title in REFERENCE.items():
        page = f"# {title}\n\n::: {package}\n"
        files.append(File.generated(config, f"reference/{package}.md", content=page))
    files.append(File.generated(config, OPTIONS_PAGE, content=spark_options()))
    linked = {path for page in files.documentation_pages() for path in OUTSIDE.findall(page.content_string)}
    for path in sorted(linked):
        place = root / path
        for one in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if one.is_file() and "__pycache__" not in one.parts:
                name = one.relative_to(root).as_posix()
                files.append(File.generated(config, name, content=one.read_bytes()))
    return files


def on_page_markdown(markdown: str, config: MkDocsConfig, **_: Any) -> str:
    """Redirect links to the copies; a link to a folder leads to its first file, as a site lists no folders."""
    root = Path(config.docs_dir).parent

    def copied(found: re.Match[str]) -> str:
        place = root / found[1]
        if place.is_dir():
            place = min(one for one in place.iterdir() if one.is_file())
        return f"]({place.relative_to(root).as_posix()}"

    return OUTSIDE.sub(copied, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`: the list of `docs/README.md`, with the links of the site."""
    listed = (Path(config.docs_dir) / "README.md").read_text()
    pages = [line for line in listed.splitlines() if line.startswith("- ")]
    pages = [re.sub(r"\]\((?:\.\./)?([^)#]+)\.md", r"](\1.html", line) for line in pages]
    reference = [f"- [{package}](reference/{package}.html): {title}" for package, title in REFERENCE.items()]
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Documentation", "", *pages]
    text = "\n".join([*lines, "", "## Python", "", *reference, ""])
    (Path(config.site_dir) / "llms.txt").write_text(text)
