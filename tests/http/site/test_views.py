"""Every view draws what there is, says nothing to the console, fits a phone, and axe finds nothing serious."""

from pathlib import Path

import pytest
from tests.http.api import publish
from tests.http.site.conftest import PHONE

AXE = (Path(__file__).parent / "vendor" / "axe.js").read_text()
SERIOUS = {"serious", "critical"}

VIEWS = {
    "overview": (),
    "queues": ("queues",),
    "queue": ("queues", "/", "orders-1"),
    "exchanges": ("exchanges",),
    "exchange": ("exchanges", "/", "orders"),
    "rings": ("rings",),
    "ring": ("rings", "/", "orders"),
    "what-if": ("what-if", "/", "orders"),
    "shards": ("shards",),
    "shards-of": ("shards", "/", "clicks"),
    "connections": ("connections",),
    "channels": ("channels",),
    "consumers": ("consumers",),
    "readers": ("readers",),
    "users": ("users",),
    "permissions": ("permissions",),
    "policies": ("policies",),
    "limits": ("limits",),
    "definitions": ("definitions",),
    "log": ("log",),
}


WITH_ALL_COLOURS = ("overview", "queue", "ring", "users", "shards-of")


@pytest.fixture
def busy(api, channel):
    """A broker in which every view has something to show."""
    channel.exchange_declare("orders", "x-consistent-hash", durable=True, arguments={"hash-header": "customer"})
    for number in range(1, 5):
        channel.queue_declare(f"orders-{number}", durable=True)
        channel.queue_bind(f"orders-{number}", "orders", str(number))
    channel.exchange_declare("clicks", "x-modulus-hash", durable=True)
    channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
    channel.queue_declare("read", durable=True)
    body = {"pattern": "^clicks$", "definition": {"shards-per-node": 3}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "shard-clicks", json=body)
    api.request("PUT", "vhost-limits", "/", "max-queues", json={"value": 1000})
    for number in range(300):
        headers = {"customer": f"customer-{number % 90}"} if number % 20 else {}
        channel.basic_publish("orders", "", b"order", properties(headers))
    publish(channel, "read", [b"row"] * 10)
    api.post("readers", "/", "nightly", "reserve", body={"queues": {"read": None}, "max_messages": 5, "lease": 600})
    channel.basic_consume("orders-1", lambda *_: None)
    channel.basic_consume("clicks", lambda *_: None)
    return api


def properties(headers):
    import pika

    return pika.BasicProperties(headers=headers)


def problems(page):
    """What axe finds that is serious, a line each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}"
        for one in found
        if one["impact"] in SERIOUS
    ]


def test_every_view_draws_and_is_accessible(busy, open_page):
    site, found = open_page(), {}
    for name, address in VIEWS.items():
        site.go(*address).picture(f"light-{name}")
        assert site.page.locator(".failure").count() == 0, name
        found[name] = problems(site.page)
    assert found == {name: [] for name in VIEWS}


def test_every_view_draws_in_the_dark(busy, open_page):
    site, found = open_page(scheme="dark"), {}
    for name, address in VIEWS.items():
        site.go(*address).picture(f"dark-{name}")
        if name in WITH_ALL_COLOURS:
            found[name] = problems(site.page)
    assert found == {name: [] for name in WITH_ALL_COLOURS}


def test_every_view_fits_a_phone(busy, open_page):
    site = open_page(viewport=PHONE)
    for name, address in VIEWS.items():
        site.go(*address).picture(f"phone-{name}")
        wide = site.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide"


def test_a_connection_and_a_channel_have_views_of_their_own(busy, site):
    site.go("connections")
    site.page.locator("tbody a").first.click()
    site.see("Heartbeat").picture("light-connection")
    site.page.locator("tbody a").first.click()
    site.see("Consumers").picture("light-channel")
    assert problems(site.page) == []


def test_who_monitors_sees_rings_and_no_administration(busy, open_page):
    busy.request("PUT", "users", "watcher", json={"password": "secret", "tags": "monitoring"})
    busy.request("PUT", "permissions", "/", "watcher", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    site = open_page("watcher", "secret")
    assert site.page.get_by_role("link", name="Users").count() == 0
    site.go("rings", "/", "orders").see("Is it even")


def test_who_manages_sees_queues(busy, open_page):
    busy.request("PUT", "users", "clerk", json={"password": "secret", "tags": "management"})
    busy.request("PUT", "permissions", "/", "clerk", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    site = open_page("clerk", "secret").see("Fullest queues")
    assert site.page.locator(".failure").count() == 0
    site.go("queues", "/", "orders-1").see("Nobody|Tag")


def test_names_of_others_are_text(busy, channel, site):
    name = "<img src=x onerror=alert(1)>&amp;${alert(1)}"
    channel.queue_declare(name, durable=True)
    channel.exchange_declare(name, "x-consistent-hash", durable=True)
    channel.queue_bind(name, name, "1")
    channel.basic_publish(name, "<b>key</b>", b"<script>alert(1)</script>")
    for address in (("queues",), ("queues", "/", name), ("exchanges", "/", name), ("rings", "/", name), ()):
        site.go(*address)
        assert site.page.locator("main img, main code b, main pre b, main script").count() == 0
    site.go("queues", "/", name)
    assert site.page.get_by_role("heading", level=1).inner_text() == name
    site.press("Get messages").press("Get", site.page.get_by_role("dialog")).see("<script>alert")


def test_the_theme_is_switched_and_remembered(site):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = site.page.evaluate(ground)
    site.press("Show in dark colours")
    dark = site.page.evaluate(ground)
    assert dark != light
    site.page.reload()
    assert site.page.evaluate(ground) == dark


def test_lists_are_searched_sorted_and_paged_by_the_broker(api, channel, site):
    for number in range(60):
        channel.queue_declare(f"listed-{number:02}", durable=True)
    publish(channel, "listed-07", [b"one"] * 3)
    site.go("queues")
    site.page.keyboard.press("/")
    site.page.keyboard.type("listed-")
    site.see("^60 of ")
    assert "listed-07" in site.page.locator("tbody tr").first.inner_text()
    site.press("Name").see("Name")
    site.row("listed-00").wait_for()
    site.press("Next page")
    site.row("listed-59").wait_for()
    assert site.page.locator("tbody tr").count() == 10


def test_the_page_weighs_less_than_200_kb(site):
    sizes = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
    loaded = site.page.evaluate(f"{sizes}.filter(one => !one.name.includes('/api/')).map(one => one.decodedBodySize)")
    assert 50_000 < sum(loaded) < 200_000
