"""The page in a new window."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.http.site.conftest import Site
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@contextlib.contextmanager
def window(browser: Browser, pictures: Path, port: int, user: str = "guest", password: str = "guest") -> Iterator[Site]:
    """A window of the browser, with the page of the broker at this port."""
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield Site(page, f"http://127.0.0.1:{port}/", pictures).log_in(user, password)
    context.close()
