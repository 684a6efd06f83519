"""Accessibility of a page, checked by axe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


AXE = (Path(__file__).parent / "vendor" / "axe.js").read_text()


def problems(page: Page) -> list[str]:
    """Violations found by axe, best practices included, a line per violation."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}" for one in found]
