"""Charts: values under the pointer in all charts, a persistent selected range, and markers of events."""

import re
from functools import partial

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.conftest import Site, bounding
from tests.waiting import until

from jumpmq import RunningBroker


def values(site: Site, chart: int) -> str:
    """Text beside the lines of a chart."""
    return site.page.locator(".chart").nth(chart).inner_text()


def has_time(site: Site, chart: int) -> bool:
    return re.search(r"\d\d:\d\d:\d\d", values(site, chart)) is not None


def samples(api: API, name: str = "followed") -> list[float]:
    at: list[float] = api.get("history", "queues", "/", name)["at"]
    return at


@pytest.mark.slow
def test_values_zoom_and_marks(api: API, broker: RunningBroker, channel: BlockingChannel, site: Site) -> None:
    for name in ("followed", "beside"):
        channel.queue_declare(name, durable=True)
        samples(api, name)
    site.go("queues", "/", "followed")
    site.page.locator(".chart canvas").nth(1).wait_for()
    publish(channel, "followed", [b"x"] * 30)
    channel.basic_consume("followed", lambda *_: None)
    until(lambda: api.counts("followed") == (0, 30))
    body = {"pattern": "^followed$", "definition": {"max-length": 1000}, "apply-to": "queues"}
    api.request("PUT", "policies", "/", "shorter", json=body)
    happened = site.page.get_by_label("What happened")
    happened.get_by_text("policy 'shorter' set").wait_for()
    happened.get_by_text("1 consumer, before 0").wait_for()
    for line in happened.get_by_role("listitem").all_inner_texts():
        assert re.match(r"\d\d:\d\d:\d\d \S", line), line
    until(lambda: len(samples(api)) > 5)
    plots = site.page.locator(".chart .u-over")
    box = bounding(plots.first)
    site.page.mouse.move(box["x"] + 3, box["y"] + 40)
    for chart in (0, 1):
        until(partial(has_time, site, chart))
    assert re.search(r"ready\s+0", values(site, 1)), "the first sample was of an empty queue"
    site.page.mouse.down()
    site.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40, steps=5)
    site.page.mouse.up()
    whole = site.page.get_by_role("button", name="show all")
    whole.wait_for()
    site.picture("charts-zoomed")
    seen = len(samples(api))
    until(lambda: len(samples(api)) > seen + 3)
    assert whole.count() == 1, "the part stays while samples come"
    site.go("queues", "/", "beside").page.locator(".chart canvas").nth(1).wait_for()
    happened.get_by_text("policy 'shorter' set").wait_for()
    assert "consumer" not in happened.inner_text(), "consumers of another queue"
    site.press("1 h")
    whole.wait_for(state="detached")
    site.go().see("Fullest queues")
    assert site.page.get_by_role("button", name="1 h").get_attribute("aria-pressed") == "true"
