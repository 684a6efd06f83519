"""The page in Firefox: every view, a dialog, charts, the palette.

With JUMPMQ_BROWSER=firefox, all other tests of the page use Firefox, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.http.api import API
from tests.http.site.accessibility import problems
from tests.http.site.conftest import Site, launched
from tests.http.site.test_charts import test_values_zoom_and_marks
from tests.http.site.test_finding import test_any_place_by_its_name, things
from tests.http.site.test_trouble import test_a_policy_that_lets_messages_go_says_how_many_and_asks
from tests.http.site.test_views import busy, views

if TYPE_CHECKING:
    from playwright.sync_api import Browser


__all__ = [
    "busy",
    "test_a_policy_that_lets_messages_go_says_how_many_and_asks",
    "test_any_place_by_its_name",
    "test_values_zoom_and_marks",
    "things",
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched("firefox") as running:
        yield running


def test_every_view_is_drawn_light_and_dark(busy: API, site: Site) -> None:
    site.press("Show in dark colours").page.get_by_role("button", name="Show in light colours").wait_for()
    for number, (view, address) in enumerate(views(busy).items()):
        site.go(*address).settle()
        assert site.page.locator(".failure").count() == 0, view
        if number % 2:
            assert problems(site.page) == [], view
    site.press("Show in light colours").go("queues", "/", "orders-1").settle()
    assert problems(site.page) == []
