"""A dialog is readable as a whole, from any button, and takes typed text at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.http.api import API
from tests.http.site.conftest import PHONE, WIDE, OpenPage, bounding

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

OVERFLOWS = "node => [node.scrollWidth > node.clientWidth, getComputedStyle(node).textAlign, node.scrollLeft]"


@pytest.fixture(scope="module")
def full(api: API) -> str:
    """A virtual host, a user and a policy with long names, so that rows have buttons with confirmation."""
    name = "a-long-name-of-a-host-in-which-many-queues-may-be-that-all-have-something-to-do"
    api.request("PUT", "vhosts", name)
    api.request("PUT", "users", name, json={"password": "x", "tags": ""})
    api.request("PUT", "permissions", name, name, json=dict.fromkeys(("configure", "write", "read"), ".*"))
    api.request("PUT", "policies", name, name, json={"pattern": "^x$", "definition": {"max-length": 5}})
    return name


@pytest.mark.parametrize("viewport", [pytest.param(WIDE, marks=pytest.mark.slow), PHONE], ids=["wide", "phone"])
def test_no_dialog_of_a_row_scrolls_sideways_or_hides_its_button(
    open_page: OpenPage, full: str, viewport: ViewportSize
) -> None:
    site = open_page(viewport=viewport)
    for view in ("vhosts", "users", "permissions", "policies"):
        site.go(view)
        row = site.page.get_by_role("row").filter(has_text=full).last
        for button in row.locator("[aria-haspopup=dialog]").all():
            button.click()
            dialog = site.page.get_by_role("dialog")
            dialog.wait_for()
            assert dialog.evaluate(OVERFLOWS) == [False, "start", 0], view
            sends = dialog.locator("form .buttons button")
            box, outer = bounding(sends), bounding(dialog)
            assert outer["x"] <= box["x"] and box["x"] + box["width"] <= outer["x"] + outer["width"], view
            site.picture(f"dialog-{view}-{viewport['width']}")
            site.page.keyboard.press("Escape")
            dialog.wait_for(state="detached")
