"""Search on the page: by name from anywhere, by virtual host, by problem, with chosen columns."""

import re
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import PHONE, OpenPage, Site, bounding
from tests.http.site.tasks import go_by_name
from tests.waiting import until

from jumpmq import RunningBroker


@pytest.fixture(scope="module", autouse=True)
def things(api: API, broker: RunningBroker) -> Iterator[None]:
    """Two virtual hosts, with queues that are full, without consumers, and healthy."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.queue_declare("orders-full", durable=True, arguments={"x-max-length": 100})
    channel.queue_declare("orders-idle", durable=True)
    channel.queue_declare("taken", durable=True)
    publish(channel, "orders-full", [b"x"] * 100)
    publish(channel, "taken", [b"x"] * 5)
    channel.basic_consume("taken", lambda *_: None)
    api.request("PUT", "vhosts", "second", json={"description": "the other"})
    api.request("PUT", "queues", "second", "elsewhere", json={"durable": True})
    until(lambda: api.counts("taken") == (0, 5))
    yield
    connection.close()


def names(site: Site) -> list[str]:
    return sorted(row.split()[0] for row in site.page.locator("main tbody tr").all_inner_texts())


def test_queues_that_want_a_look(api: API, site: Site) -> None:
    until(lambda: [one["name"] for one in api.get("queues", where="full")] == ["orders-full"])
    until(lambda: [one["name"] for one in api.get("queues", "/", where="unattended")] == ["orders-full"])
    assert api.request("GET", "queues", params={"where": "odd"}).status_code == 400
    site.go("queues").press("Full")
    until(lambda: names(site) == ["orders-full"])
    site.press("All")
    until(lambda: len(names(site)) == 4)
    site.picture("queues-list")
    site.page.get_by_text("Columns", exact=True).click()
    site.page.get_by_label("Type", exact=True).uncheck()
    assert site.page.get_by_role("columnheader", name="Type").count() == 0
    site.page.reload()
    site.row("orders-full").wait_for()
    assert site.page.get_by_role("columnheader", name="Type").count() == 0


def test_any_place_by_its_name(site: Site) -> None:
    go_by_name(site)


def test_one_virtual_host_alone(site: Site) -> None:
    site.go("vhosts").row("second").get_by_role("button", name="second").click()
    site.page.get_by_role("heading", level=1, name="Queues").wait_for()
    until(lambda: names(site) == ["elsewhere"])
    picker = site.page.get_by_label("Virtual host that is shown")
    assert picker.input_value() == "second"
    site.go("exchanges").see("^7$")
    picker.select_option("")
    site.see("^14$").go("queues")
    until(lambda: len(names(site)) == 4)


@pytest.mark.slow
def test_all_that_is_shown_is_of_the_virtual_host_that_was_chosen(
    api: API, broker: RunningBroker, channel: BlockingChannel, open_page: OpenPage
) -> None:
    api.request("PUT", "vhost-limits", "second", "max-queues", json={"value": 50})
    api.request("PUT", "vhost-limits", "/", "max-queues", json={"value": 500})
    channel.queue_declare("told", durable=True, arguments={"x-queue-type": "stream"})
    api.request("PUT", "group-offsets", "/", "told", "readers", json={"offset": "first"})
    channel.basic_consume("orders-idle", lambda *_: None, arguments={"x-consumer-group": "workers"})
    api.request("PUT", "permissions", "second", "guest", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    site, second = open_page(), pika.URLParameters(broker.amqp_url)
    second.virtual_host = "second"
    ready = site.page.locator(".tile").filter(has_text=re.compile("^Ready"))
    connections = site.page.get_by_role("link", name="Connections")
    until(lambda: ready.inner_text().split() == ["Ready", "100"])
    site.page.get_by_role("img", name="with an alarm").wait_for()
    try:
        site.page.get_by_label("Virtual host that is shown").select_option("second")
        until(lambda: ready.inner_text().split() == ["Ready", "0"])
        site.see("No problems").see("All queues are empty")
        assert site.page.get_by_role("img", name="with an alarm").count() == 0
        assert site.page.locator(".chart").count() == 2, "memory and disk are the node's"
        assert connections.locator(".of").inner_text() == "0"
        with pika.BlockingConnection(second) as other:
            publish(other.channel(), "elsewhere", [b"x"] * 7)
            until(lambda: ready.inner_text().split() == ["Ready", "7"])
            until(lambda: connections.locator(".of").inner_text() == "1")
        assert api.get("history", "vhosts", "second")["publish"].count(0.0) > 3, "it was followed before"
        site.go("limits").row("second").wait_for()
        limited = site.page.get_by_label("Limits of virtual hosts").locator("tbody tr").all_inner_texts()
        assert [row.split()[0] for row in limited] == ["second"]
        site.go("readers").see("No stream is declared")
        site.go("groups").see("No consumer group has members").see("No consumer group has an offset in a stream")
        site.page.get_by_label("Virtual host that is shown").select_option("")
        site.row("workers").wait_for()
        site.row("readers").wait_for()
        site.go("readers").row("told").wait_for()
    finally:
        channel.queue_delete("told")
        api.request("DELETE", "queues", "second", "elsewhere", "contents")


def test_the_menu_counts_and_marks_what_is_wrong(open_page: OpenPage) -> None:
    site = open_page()
    queues = site.page.get_by_role("link", name="Queues")
    until(lambda: queues.locator(".of").all_inner_texts() == ["4"])
    queues.locator(".dot.alarm").wait_for()
    phone = open_page(viewport=PHONE)
    cause = phone.page.get_by_label("Warnings").get_by_role("listitem").first
    cause.wait_for()
    box = bounding(cause)
    assert box["y"] + box["height"] < PHONE["height"], "the cause is on the first screen of a phone"
    wide = phone.picture("overview-phone").page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "the head has room for the choice of a virtual host"


@pytest.mark.slow
def test_a_key_is_followed_from_the_palette_to_its_messages(
    api: API, channel: BlockingChannel, open_page: OpenPage
) -> None:
    channel.exchange_declare("by-customer", "x-consistent-hash", durable=True)
    for number in range(8):
        channel.queue_declare(f"customers-{number}", durable=True)
        channel.queue_bind(f"customers-{number}", "by-customer", "1")
    for number in range(90):
        channel.basic_publish("by-customer", "acme" if number % 9 == 0 else f"customer-{number}", b"order %d" % number)
    for look in ({}, {"scheme": "dark"}, {"viewport": PHONE}):
        site = open_page(**look)
        site.page.keyboard.press("Control+K")
        site.page.get_by_role("dialog").get_by_role("combobox").fill("acme")
        site.page.get_by_role("option").filter(has_text="acme on by-customer").click()
        chain = site.page.get_by_label("The way of the key")
        place = api.get("exchanges", "/", "by-customer", "key", key="acme")
        chain.get_by_role("link", name=place["destination"]).wait_for()
        chain.get_by_text(f"{place['bucket']} of 8").wait_for()
        messages = site.page.get_by_role("table", name="Messages of this key")
        messages.get_by_text("order 81").or_(messages.get_by_text("order 36")).first.wait_for()
        assert messages.locator("tbody tr").count() == 5
        site.see("With 9 queues it would").see("the queue has no consumer")
        site.page.locator(".ring-picture .lit").wait_for()
        assert site.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert problems(site.page) == []
        site.picture(f"key-{look.get('scheme') or ('phone' if look else 'light')}")
    slider = site.page.get_by_label("Number of queues")
    slider.fill("16")
    then = api.get("exchanges", "/", "by-customer", "key", key="acme", destinations=16)["then"]["destination"]
    site.see(f"With 16 queues it would (go to|stay in) {then}")
    site.go("rings", "/", "by-customer").page.get_by_label("Key", exact=True).fill("customer-1")
    site.press("Follow the key")
    site.page.get_by_label("The way of the key").get_by_text("customer-1", exact=True).wait_for()
