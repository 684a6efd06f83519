"""Hooks of mkdocs: what pages link to beside `docs/` (examples, benchmarks, units) becomes a part of the site.

A forge shows those links as they are; the site has a copy of each file at the same path below its root.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files that are linked to; of a folder all in it."""
    root = Path(config.docs_dir).parent
    linked = {path for page in files.documentation_pages() for path in OUTSIDE.findall(page.content_string)}
    for path in sorted(linked):
        place = root / path
        for one in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if one.is_file() and "__pycache__" not in one.parts:
                name = one.relative_to(root).as_posix()
                files.append(File.generated(config, name, content=one.read_bytes()))
    return files


def on_page_markdown(markdown: str, config: MkDocsConfig, **_: Any) -> str:
    """Has the links lead to the copies; to a folder's first file, as a site lists no folders."""
    root = Path(config.docs_dir).parent

    def copied(found: re.Match[str]) -> str:
        place = root / found[1]
        if place.is_dir():
            place = min(one for one in place.iterdir() if one.is_file())
        return f"]({place.relative_to(root).as_posix()}"

    return OUTSIDE.sub(copied, markdown)
