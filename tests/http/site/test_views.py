"""Every view draws its objects, reports no error to the console, fits a phone, and passes axe."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import OpenPage, Site
from tests.http.site.every_view import VIEWS, views
from tests.waiting import until

from jumpmq import RunningBroker

if TYPE_CHECKING:
    from playwright.sync_api import Locator


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("narrow", {"viewport": {"width": 320, "height": 640}}),  # as at 400 %: WCAG 1.4.10
        pytest.param("light", {}, marks=pytest.mark.slow),
        pytest.param("dark", {"scheme": "dark"}, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_view_draws_fits_and_is_accessible(
    busy: API, open_page: OpenPage, name: str, options: dict[str, Any]
) -> None:
    site, found, addresses = open_page(**options), {}, views(busy)
    for view, address in addresses.items():
        site.go(*address).picture(f"{name}-{view}")
        assert site.page.locator(".failure").count() == 0, view
        wide = site.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is {wide} pixels too wide"
        found[view] = problems(site.page)
    assert found == {view: [] for view in addresses}


@pytest.mark.slow
def test_a_connection_and_a_channel_are_found_and_drawn_over_time(busy: API, site: Site) -> None:
    site.go("connections")
    site.follow(site.page.locator("main tbody a").first).see("Heartbeat").see("Octets a second")
    site.follow(site.page.locator("main tbody a").first)
    site.see("Not answered yet").see("Messages a second")
    site.page.locator(".chart canvas").nth(1).wait_for()


def is_descending(heading: Locator) -> bool:
    return heading.get_attribute("aria-sort") == "descending"


def test_which_consumer_is_slow(api: API, broker: RunningBroker, channel: BlockingChannel, site: Site) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "the slow one"}
    channel.basic_qos(prefetch_count=2)
    with pika.BlockingConnection(parameters) as other:
        slow = other.channel()
        slow.basic_qos(prefetch_count=100)
        channel.queue_declare("work", durable=True)
        slow.basic_consume("work", lambda *_: None)
        channel.basic_consume("work", lambda _, method, *__: channel.basic_ack(method.delivery_tag))
        publish(channel, "work", [b"x"] * 300)
        until(lambda: channel.connection.process_data_events(0.05) or api.counts("work") == (0, 100))
        for view in (("consumers",), ("queues", "/", "work")):
            site.go(*view)
            consumers = site.page.get_by_role("region", name="Consumers").get_by_role("row")
            consumers.nth(1).filter(has_text="the slow one").wait_for()
            for column in ("Unacked", "Delivered", "Delivered /s"):
                heading = site.page.get_by_role("columnheader", name=column, exact=True)
                if heading.get_attribute("aria-sort") is None:
                    site.press(column)
                until(partial(is_descending, heading))
        site.picture("consumers-of-queue")


def test_who_monitors_sees_rings_and_no_administration(busy: API, open_page: OpenPage) -> None:
    busy.request("PUT", "users", "watcher", json={"password": "secret", "tags": "monitoring"})
    busy.request("PUT", "permissions", "/", "watcher", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    site = open_page("watcher", "secret")
    assert site.page.get_by_role("link", name="Users").count() == 0
    site.go("rings", "/", "orders").see("Is it even")


def test_who_manages_sees_queues(busy: API, open_page: OpenPage) -> None:
    busy.request("PUT", "users", "clerk", json={"password": "secret", "tags": "management"})
    busy.request("PUT", "permissions", "/", "clerk", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    site = open_page("clerk", "secret").see("Fullest queues")
    assert site.page.locator(".failure").count() == 0
    site.go("queues", "/", "orders-1").see("This queue has no consumers|Tag")
    site.go("connections").see("Only what is your own is shown")


HOSTILE = "<img src=x onerror='window.hacked=1'>&amp;${window.hacked=1}<script>window.hacked=1</script>"

NAMELESS = {("shards",), ("definitions",), ("log",), ("nodes",), ("help",)}
"""Views without any of these names."""


@pytest.fixture
def hostile(busy: API, broker: RunningBroker) -> Iterator[list[tuple[str, ...]]]:
    """Names that are markup, for all objects named by users. Return the views that show them."""
    busy.request("PUT", "users", HOSTILE, json={"password": "secret", "tags": "monitoring"})
    busy.request("PUT", "vhosts", HOSTILE, json={"description": HOSTILE})
    for user in ("guest", HOSTILE):
        busy.request("PUT", "permissions", HOSTILE, user, json=dict.fromkeys(("configure", "write", "read"), ".*"))
    policy = {"pattern": HOSTILE.replace("$", "[$]").replace("{", "[{]"), "definition": {"max-length": 100}}
    busy.request("PUT", "policies", HOSTILE, HOSTILE, json=policy)
    busy.request("PUT", "vhost-limits", HOSTILE, "max-queues", json={"value": 50})
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.credentials = pika.PlainCredentials(HOSTILE, "secret")
    parameters.virtual_host = HOSTILE
    parameters.client_properties = dict.fromkeys(("connection_name", "product", "version"), HOSTILE)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare(HOSTILE, durable=True, arguments={HOSTILE: HOSTILE})
    arguments = {"hash-header": HOSTILE, "ordered-scaling": True}
    channel.exchange_declare(HOSTILE, "x-consistent-hash", durable=True, arguments=arguments)
    channel.exchange_declare("clicks" + HOSTILE, "x-modulus-hash", durable=True)
    channel.queue_bind(HOSTILE, HOSTILE, "1", {HOSTILE: HOSTILE})
    for number in range(200):
        headers = {HOSTILE: HOSTILE} if number % 2 else {}
        channel.basic_publish(HOSTILE, HOSTILE[:200], HOSTILE.encode(), pika.BasicProperties(headers=headers))
    channel.queue_declare("new" + HOSTILE, durable=True)
    channel.queue_bind("new" + HOSTILE, HOSTILE, "9")
    channel.basic_consume("new" + HOSTILE, lambda *_: None, arguments={"x-consumer-group": HOSTILE})
    body = {"queues": {HOSTILE: None}, "max_messages": 5, "lease": 600}
    busy.post("readers", HOSTILE, "g" + HOSTILE, "reserve", body=body)
    busy.request("DELETE", "queues", HOSTILE, "no" + HOSTILE)
    channel.basic_qos(prefetch_count=10)  # further messages stay ready
    channel.basic_consume(HOSTILE, lambda *_: None, consumer_tag=HOSTILE)
    (one,) = [one for one in busy.get("channels") if one["user"] == HOSTILE]
    yield [
        *[address for address in VIEWS.values() if len(address) < 2],
        *(
            ("queues", HOSTILE, HOSTILE),
            ("messages", HOSTILE, HOSTILE),
            ("exchanges", HOSTILE, HOSTILE),
            ("rings", HOSTILE, HOSTILE),
            ("why", HOSTILE, HOSTILE),
            ("groups", HOSTILE, "queue", "new" + HOSTILE, HOSTILE),
        ),
        *(("what-if", HOSTILE, HOSTILE), ("shards", HOSTILE, "clicks" + HOSTILE)),
        *(("connections", one["connection_details"]["name"]), ("channels", one["name"])),
    ]
    connection.close()
    busy.request("DELETE", "vhosts", HOSTILE)
    busy.request("DELETE", "users", HOSTILE)


def test_names_of_others_are_text_on_every_page(hostile: list[tuple[str, ...]], site: Site) -> None:
    for address in hostile:
        site.go(*address)
        if address not in NAMELESS:
            site.page.get_by_text("<img src=x onerror=").locator("visible=true").first.wait_for()
        site.page.wait_for_timeout(300)  # requests after the names are drawn
        assert site.page.locator("#page img, #page script, #page iframe").count() == 0, address
        assert site.page.evaluate("window.hacked") is None, address
    site.go("queues", HOSTILE, HOSTILE)
    assert site.page.get_by_role("heading", level=1).inner_text() == HOSTILE
    for dialog in ("Delete", "Purge", "Publish", "Bind"):
        site.press(dialog)
        site.page.get_by_role("dialog").wait_for()
        assert site.page.locator("dialog img, dialog script").count() == 0, dialog
        site.page.keyboard.press("Escape")
        site.page.get_by_role("dialog").wait_for(state="detached")
    site.press("Get messages").press("Get", site.page.get_by_role("dialog"))
    site.page.get_by_role("dialog").get_by_text("<script>window.hacked").first.wait_for()
    assert site.page.evaluate("window.hacked") is None


def test_the_theme_is_switched_and_remembered(site: Site) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = site.page.evaluate(ground)
    site.press("Show in dark colours")
    dark = until(lambda: site.page.evaluate(f"{ground} !== {light!r} && {ground}"))
    site.page.reload()
    until(lambda: site.page.evaluate(ground) == dark)


def test_lists_are_searched_sorted_and_paged_by_the_broker(api: API, channel: BlockingChannel, site: Site) -> None:
    for number in range(60):
        channel.queue_declare(f"listed-{number:02}", durable=True)
    publish(channel, "listed-07", [b"one"] * 3)
    site.go("queues")
    site.page.keyboard.press("/")
    site.page.keyboard.type("listed-")
    site.see("^60 of ")
    rows = site.page.locator("tbody tr")
    rows.first.filter(has_text="listed-07").wait_for()
    site.press("Name")
    rows.first.filter(has_text="listed-00").wait_for()
    site.press("Next page")
    rows.first.filter(has_text="listed-50").wait_for()
    assert [row.split()[0] for row in rows.all_inner_texts()] == [f"listed-{number}" for number in range(50, 60)]


def test_the_page_weighs_less_than_220_kb_in_seven_files(site: Site) -> None:
    sizes = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
    files = f"{sizes}.filter(one => !/api|session/.test(one.name)).map(one => [one.name, one.decodedBodySize])"
    site.page.locator(".chart canvas").first.wait_for()
    fetched = site.page.evaluate(files)
    assert 50_000 < sum(size for _, size in fetched) < 220_000
    assert len({name for name, _ in fetched}) <= 7, fetched
