"""Details of the page: order, information without colour, and a width of 320 pixels."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Literal

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.conftest import OpenPage, Site, bounding
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Locator


pytestmark = pytest.mark.slow


def kinds(site: Site) -> list[str]:
    """Causes on the first page, in order: kind and subject."""
    lines = site.page.get_by_label("Warnings").locator(".incidents > li > .line")
    return [re.sub(r"\s+", " ", one) for one in lines.all_inner_texts()]


def test_what_is_urgent_and_then_what_is_full_first_stands_first(
    api: API, channel: BlockingChannel, site: Site
) -> None:
    """Urgent causes come first, then the queue that fills up first; the time of begin does not matter."""
    channel.queue_declare("unattended", durable=True)
    publish(channel, "unattended", [b"x"] * 150)
    for name, most in (("later", 1_000_000), ("sooner", 20_000)):
        channel.queue_declare(name, durable=True, arguments={"x-max-length": most})
        publish(channel, name, [b"x"] * 150)
    until(lambda: {"unattended", "later"} <= {one["name"] for one in api.get("incidents")})
    channel.queue_declare("brimful", durable=True, arguments={"x-max-length": 150})
    publish(channel, "brimful", [b"x"] * 150)

    names = ("brimful", "sooner", "later", "unattended")

    def told() -> list[str] | Literal[False]:
        for name in ("later", "sooner"):
            for _ in range(20):
                channel.basic_publish("", name, b"x")
        channel.connection.process_data_events(0.1)
        found = [one for one in kinds(site) if any(name in one for name in names)]
        return len(found) == 4 and sum("full in ≈" in one for one in found) == 2 and found

    found = until(told)
    assert [next(name for name in names if name in one) for one in found] == list(names), found
    assert found[0].startswith(("▸ !", "▸!")), "said without colour"
    assert not any("!" in one for one in found[1:])
    site.page.emulate_media(forced_colors="active")
    widths = "[...document.querySelectorAll('.incidents > li')].map(one => getComputedStyle(one).borderLeftWidth)"
    assert site.page.evaluate(widths)[0] == "8px"
    for name in names:
        channel.queue_delete(name)


def test_too_few_messages_are_no_verdict_on_a_ring(channel: BlockingChannel, site: Site) -> None:
    channel.exchange_declare("young", "x-consistent-hash", durable=True)
    for number in range(8):
        channel.queue_declare(f"young-{number}", durable=True)
        channel.queue_bind(f"young-{number}", "young", "1")
    for number in range(6):
        channel.basic_publish("young", f"key-{number}", b"x")
    site.go("rings", "/", "young").see("too few to tell")
    site.page.get_by_role("row").filter(has_text="young-7").first.wait_for()
    assert site.page.locator("main tr.alarm, main tr.warning, main .bar.alarm, main .bar.warning").count() == 0
    assert site.page.get_by_text("Every destination gets").count() == 0
    channel.exchange_delete("young")
    for number in range(8):
        channel.queue_delete(f"young-{number}")


def test_answers_are_compressed_and_have_the_columns_that_are_drawn(channel: BlockingChannel, site: Site) -> None:
    for number in range(40):
        channel.queue_declare(f"column-{number}", durable=True)
    with site.page.expect_response(lambda answer: "/api/queues?" in answer.url and "page_size=50" in answer.url) as got:
        site.go("queues")
    assert got.value.header_value("content-encoding") == "gzip"
    assert "columns=name" in got.value.url
    assert "memory" not in got.value.json()["items"][0]
    for number in range(40):
        channel.queue_delete(f"column-{number}")


def test_a_queue_without_a_past_says_so_and_not_zero(channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("unseen", durable=True)
    site.page.route("**/api/history/queues/**", lambda route: route.fulfill(json={"at": [], "events": []}))
    site.go("queues", "/", "unseen").see("Recording started now; first points in 5 s")
    site.press("1 h").see("No history yet. Recording started now; first points in 2 min")
    assert "0" not in " ".join(site.page.locator(".chart").all_inner_texts())
    channel.queue_delete("unseen")


def test_a_cause_of_another_day_has_its_day(api: API, site: Site) -> None:
    node = api.get("overview")["node"]
    one = {"kind": "memory", "severity": "warning", "object": "node", "vhost": "", "name": node, "queue": ""}
    one |= {"text": "Short.", "advice": "Look.", "messages": 0, "growth": 0.0, "full_in": None, "since": 86400.0}
    site.page.route(
        "**/api/incidents",
        lambda route: route.fulfill(json=[one | {"symptoms": [], "count": 1, "names": [], "pattern": ""}]),
    )
    site.page.reload()
    site.see("since .*1970")


def test_a_sharded_exchange_leads_to_its_shards_and_what_was_moved_is_not_moved_twice(
    api: API, channel: BlockingChannel, site: Site
) -> None:
    channel.exchange_declare("parts", "x-modulus-hash", durable=True)
    body = {"pattern": "^parts$", "definition": {"shards-per-node": 2}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "parts", json=body)
    site.go("exchanges", "/", "parts")
    site.follow(site.page.locator("main").get_by_role("link", name="Shards", exact=True).first)
    channel.queue_declare("from", durable=True)
    channel.queue_declare("to", durable=True)
    publish(channel, "from", [b"x"] * 6)
    until(lambda: api.counts("from") == (6, 0))
    site.go("queues", "/", "from").press("Move messages").fill(to="a queue", destination="to", count="2")
    dialog = site.page.get_by_role("dialog")
    site.press("Move", dialog).see("2 messages moved")
    button = dialog.get_by_role("button", name="Move", exact=True)
    until(button.is_disabled)
    site.fill(count="3").press("Move", dialog).see("3 messages moved")
    assert (api.counts("from"), api.counts("to")) == ((1, 0), (5, 0))
    api.request("DELETE", "policies", "/", "parts")


def test_the_first_field_of_a_dialog_has_the_focus_and_a_refused_login_the_user(api: API, open_page: OpenPage) -> None:
    api.request("PUT", "users", "untagged", json={"password": "secret", "tags": ""})
    site = open_page(user=None)
    site.page.get_by_label("User").fill("untagged")
    site.page.get_by_label("Password").fill("secret")
    site.press("Log in").see("An administrator can give it the tag management")
    assert site.page.evaluate("document.activeElement.tagName") != "BODY"
    site.log_in("guest", "guest").go("queues").press("Declare a queue")
    assert site.page.evaluate("document.activeElement.name") == "vhost"


@pytest.mark.parametrize(
    ("name", "shown"), [("\u202etxt.exe", '"\\u202etxt.exe"'), (" padded ", '" padded "'), ("a\tb", '"a\\u0009b"')]
)
def test_names_show_letters_that_cannot_be_seen(channel: BlockingChannel, site: Site, name: str, shown: str) -> None:
    channel.queue_declare(name, durable=True)
    site.go("queues").page.get_by_text(shown, exact=True).wait_for()
    channel.queue_delete(name)


BELOW = """nodes => nodes.map(node => [node, node.lastElementChild].map(one => one.getBoundingClientRect().bottom))
    .map(([all, contents]) => all - contents)"""


def test_panels_are_as_high_as_what_they_hold_and_labels_of_a_form_in_line(
    api: API, channel: BlockingChannel, site: Site
) -> None:
    channel.queue_declare("lopsided", durable=True, arguments={f"x-note-{number}": number for number in range(8)})
    channel.exchange_declare("halves", "x-modulus-hash", durable=True)
    body = {"pattern": "^halves$", "definition": {"shards-per-node": 2}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "halves", json=body)
    for place in (("queues", "/", "lopsided"), ("shards", "/", "halves")):
        panels = site.go(*place).settle().page.locator(".columns > .panel")
        assert len({box["height"] for box in map(bounding, panels.all())}) == 2, "of which one holds less"
        assert max(panels.evaluate_all(BELOW)) < 24, "below the contents is the padding alone"
    site.press("Show").see("the least possible")
    button = bounding(site.page.get_by_role("button", name="Show", exact=True))
    assert bounding(site.page.locator(".outcomes"))["y"] >= button["y"] + button["height"] + 8, "bars touch no button"
    labels = site.go("messages", "/", "lopsided").page.locator(".panel .field label")
    labels.filter(has_text="Published since").wait_for()
    tops = {round(box["y"]) for box in map(bounding, labels.all())}
    assert len(tops) == 1, tops
    api.request("DELETE", "policies", "/", "halves")
    channel.queue_delete("lopsided")


def has_type(headings: Locator) -> bool:
    return "Type" in [text.split("\n")[0] for text in headings.all_inner_texts()]


def test_what_is_usual_is_not_marked_and_one_thing_has_one_name(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("usual", durable=True)
    channel.queue_declare("unusual", durable=False, exclusive=True)
    site.go("queues").row("unusual").get_by_text("transient").wait_for()
    assert site.row("usual").locator(".mark").count() == 0
    assert site.page.get_by_role("table", name="Queues").get_by_text("durable").count() == 0
    (one,) = api.get("channels")
    facts = site.go("channels", one["name"]).page.locator(".facts dt")
    until(lambda: "User" in facts.all_inner_texts())
    assert "Mode" not in facts.all_inner_texts(), "it has none"
    for place in (("queues",), ("exchanges",), ("nodes", one["node"])):
        headings = site.go(*place).page.locator("main th")
        until(partial(has_type, headings))
        assert "Kind" not in headings.all_inner_texts(), place


RATES = {
    ("queues",): {"Published", "Delivered", "Acked"},
    ("queues", "/", "rated"): {"Published", "Delivered", "Acknowledged"},
    ("exchanges",): {"Published"},
    ("exchanges", "/", "amq.topic"): {"Published", "To queues"},
    ("flow",): {"Published", "To queues"},
    (): {"Published", "Delivered", "Acknowledged", "Acked"},
}
"""Names of rates in tiles and legends, with the shorter names of columns."""


def test_each_rate_has_one_name_in_all_views(channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("rated", durable=True)
    publish(channel, "rated", [b"x"])
    found = {}
    for place in RATES:
        page = site.go(*place).settle().page
        if not place:
            site.row("rated").wait_for()
        columns = [one.split("\n")[0].rstrip(" ↑↓") for one in page.locator("main th").all_inner_texts()]
        tiles = page.locator(".tile").filter(has=page.locator(".unit", has_text="/s")).locator("dt").all_inner_texts()
        legends = page.locator(".chart").filter(has_text="a second").locator("li").all_inner_texts()
        named = [one.removesuffix(" /s") for one in columns if one.endswith("/s")] + tiles
        found[place] = {*named, *(one.rpartition(" ")[0].capitalize() for one in legends)}
    assert found == RATES
    channel.queue_delete("rated")
