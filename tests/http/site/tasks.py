"""Tasks of an operator at the page, with their outcome: carried out in every kind of browser."""

import re
from functools import partial

from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import Site, bounding
from tests.waiting import until


def read_charts(api: API, channel: BlockingChannel, site: Site) -> None:
    """Read values under the pointer, zoom in, and read of what happened."""
    for name in ("followed", "beside"):
        channel.queue_declare(name, durable=True)
        _samples(api, name)
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
    until(lambda: len(_samples(api)) > 5)
    plots = site.page.locator(".chart .u-over")
    box = bounding(plots.first)
    site.page.mouse.move(box["x"] + 3, box["y"] + 40)
    for chart in (0, 1):
        until(partial(_has_time, site, chart))
    assert re.search(r"ready\s+0", _values(site, 1)), "the first sample was of an empty queue"
    site.page.mouse.down()
    site.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40, steps=5)
    site.page.mouse.up()
    whole = site.page.get_by_role("button", name="show all")
    whole.wait_for()
    site.picture("charts-zoomed")
    seen = len(_samples(api))
    until(lambda: len(_samples(api)) > seen + 3)
    assert whole.count() == 1, "the part stays while samples come"
    site.go("queues", "/", "beside").page.locator(".chart canvas").nth(1).wait_for()
    happened.get_by_text("policy 'shorter' set").wait_for()
    assert "consumer" not in happened.inner_text(), "consumers of another queue"
    site.press("1 h")
    whole.wait_for(state="detached")
    site.go().see("Fullest queues")
    assert site.page.get_by_role("button", name="1 h").get_attribute("aria-pressed") == "true"


def _values(site: Site, chart: int) -> str:
    """Text beside the lines of a chart."""
    return site.page.locator(".chart").nth(chart).inner_text()


def _has_time(site: Site, chart: int) -> bool:
    return re.search(r"\d\d:\d\d:\d\d", _values(site, chart)) is not None


def _samples(api: API, name: str = "followed") -> list[float]:
    at: list[float] = api.get("history", "queues", "/", name)["at"]
    return at


def go_by_name(site: Site) -> None:
    """Go to the queue `orders-idle`, and to the view `What if`, by names typed into the palette."""
    site.page.keyboard.press("Control+k")
    box = site.page.get_by_role("dialog").get_by_role("combobox")
    box.fill("orders-i")
    site.page.get_by_role("option", name="orders-idle").wait_for()
    site.picture("palette")
    assert problems(site.page) == []
    box.press("Enter")
    site.page.get_by_role("heading", level=1, name="orders-idle").wait_for()
    site.page.keyboard.press("Control+k")
    box.fill("what")
    until(lambda: site.page.get_by_role("listbox").get_by_role("option").count() == 1)
    box.press("Enter")
    site.page.get_by_role("heading", level=1, name="What if").wait_for()


def shorten_a_queue(api: API, channel: BlockingChannel, site: Site) -> None:
    """Set a policy that drops messages of a queue, after a look at their number."""
    channel.queue_declare("long", durable=True)
    publish(channel, "long", [b"x"] * 30)
    until(lambda: api.counts("long") == (30, 0))
    site.go("policies").press("Add a policy").fill(name="short", pattern="^long$", definition='{"max-length": 10}')
    dialog = site.page.get_by_role("dialog")
    site.press("Save", dialog).see("20 messages of 1 queue will be gone for good")
    assert api.request("GET", "policies", "/", "short").status_code == 404
    assert api.counts("long") == (30, 0)
    site.press("Save all the same", dialog)
    dialog.wait_for(state="detached")
    until(lambda: api.counts("long") == (10, 0))
