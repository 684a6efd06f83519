"""The page in Firefox: every view, a dialog, charts, the palette.

With JUMPMQ_BROWSER=firefox, all other tests of the page use Firefox, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.accessibility import problems
from tests.http.site.conftest import Site, launched
from tests.http.site.every_view import views
from tests.http.site.tasks import go_by_name, read_charts, shorten_a_queue

if TYPE_CHECKING:
    from playwright.sync_api import Browser


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched("firefox") as running:
        yield running


def test_charts(api: API, channel: BlockingChannel, site: Site) -> None:
    read_charts(api, channel, site)


def test_the_palette(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("orders-idle", durable=True)
    go_by_name(site)


def test_a_dialog(api: API, channel: BlockingChannel, site: Site) -> None:
    shorten_a_queue(api, channel, site)


def test_every_view_is_drawn_light_and_dark(busy: API, site: Site) -> None:
    site.press("Show in dark colours").page.get_by_role("button", name="Show in light colours").wait_for()
    for number, (view, address) in enumerate(views(busy).items()):
        site.go(*address).settle()
        assert site.page.locator(".failure").count() == 0, view
        if number % 2:
            assert problems(site.page) == [], view
    site.press("Show in light colours").go("queues", "/", "orders-1").settle()
    assert problems(site.page) == []
