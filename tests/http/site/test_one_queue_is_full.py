"""Every reason of a full queue is shown on the first page, with its remedy.

The remedy takes at most three clicks, on a light page, on a dark page and on a phone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.accessibility import problems
from tests.http.site.conftest import PHONE, OpenPage, Site, bounding
from tests.http.site.windows import window

import jumpmq

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator


Looks = Callable[[], Iterator[tuple[str, Site]]]

LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"scheme": "dark"}, "phone": {"viewport": PHONE}}
COUNT = "window.clicks = 0; addEventListener('click', event => { window.clicks += event.isTrusted }, true)"
CLICKS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    """A broker for all tests; a test deletes its own objects."""
    with jumpmq.running(data_dir=tmp_path_factory.mktemp("story") / "data") as running:
        yield running


@pytest.fixture
def orders(channel: BlockingChannel) -> Iterator[BlockingChannel]:
    """An exchange that hashes the header ``customer`` over four queues."""
    channel.exchange_declare("orders", "x-consistent-hash", durable=True, arguments={"hash-header": "customer"})
    names = [f"orders-{number}" for number in range(1, 5)]
    for name in names:
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "orders", "1")
    yield channel
    channel.exchange_delete("orders")
    for name in names:
        channel.queue_delete(name)


def send(channel: BlockingChannel, customers: Iterable[str | None]) -> None:
    for customer in customers:
        headers = {} if customer is None else {"customer": customer}
        channel.basic_publish("orders", "", b"order", pika.BasicProperties(headers=headers))


@pytest.fixture
def looks(open_page: OpenPage) -> Looks:
    """The first page in every look, by name; a click too many fails the test."""

    def seen() -> Iterator[tuple[str, Site]]:
        for look, options in LOOKS.items():
            site = open_page(**options)
            site.page.evaluate(COUNT)
            yield look, site
            assert problems(site.page) == [], look
            assert site.page.evaluate("window.clicks") <= CLICKS, look

    return seen


def unfold(found: Locator) -> None:
    folded = found.locator("[aria-expanded=false]")
    if folded.count():
        folded.first.click()


def answer(site: Site, kind: str, text: str) -> Locator:
    """The warning of a kind, after its text matches: the last messages may still be in transit."""
    warnings = site.page.get_by_label("Warnings").get_by_role("listitem").filter(has_text=kind)
    found = warnings.filter(has_text=re.compile(text)).first
    found.wait_for()
    screen = site.page.viewport_size
    assert screen is not None and bounding(found)["y"] + 30 < screen["height"], "it is on the first screen"
    unfold(found)
    return found


@pytest.mark.slow
def test_a_hot_key(orders: BlockingChannel, looks: Looks) -> None:
    send(orders, ["acme" if number % 5 < 2 else f"customer-{number}" for number in range(2000)])
    for look, site in looks():
        found = answer(site, "hot key", "The key 'acme' has (3[5-9]|4[0-5]) % of the messages to 'orders'")
        assert "More queues do not help" in found.inner_text()
        site.see("Fullest queues").picture(f"full-hot-key-{look}")
        site.follow(found.get_by_role("link", name="orders", exact=True))
        hottest = site.page.get_by_role("region", name="Hottest keys")
        hottest.get_by_role("row").filter(has_text="acme").first.wait_for()
        site.see("Keys are spread evenly, messages are not").picture(f"full-hot-key-ring-{look}")


@pytest.mark.slow
def test_a_missing_header(orders: BlockingChannel, looks: Looks) -> None:
    send(orders, [f"customer-{number}" for number in range(600)] + [None] * 400)
    for look, site in looks():
        found = answer(
            site, "missing header", "400 of 1,000 recent messages to 'orders' lack the hashed header 'customer'"
        )
        assert "Publishers must set" in found.inner_text()
        site.picture(f"full-missing-header-{look}")
        site.follow(found.get_by_role("link", name="orders", exact=True))
        site.see("lack the header customer: they all go to one destination").picture(f"full-missing-header-ring-{look}")


@pytest.mark.slow
def test_a_shard_without_a_consumer(api: API, channel: BlockingChannel, looks: Looks) -> None:
    channel.exchange_declare("clicks", "x-modulus-hash", durable=True)
    body = {"pattern": "^clicks$", "definition": {"shards-per-node": 4}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "shard-clicks", json=body)
    for _ in range(3):
        channel.basic_consume("clicks", lambda *_: None, auto_ack=True)
    for number in range(2000):
        channel.basic_publish("clicks", f"visitor-{number}", b"click")
    for look, site in looks():
        found = answer(site, "shard without consumer", r"1 of 4 shards of 'clicks' has no consumer \(number 3\)")
        assert "Consume from 'clicks' once more" in found.inner_text()
        site.picture(f"full-shard-{look}")
        site.follow(found.get_by_role("link", name="clicks", exact=True))
        site.row("sharding: clicks - ").wait_for()
        assert "none" in site.page.get_by_role("row").filter(has_text=" - 3").first.inner_text()
        site.picture(f"full-shard-shards-{look}")
    api.request("DELETE", "policies", "/", "shard-clicks")
    channel.exchange_delete("clicks")
    for queue in api.get("queues"):
        channel.queue_delete(queue["name"])


@pytest.mark.slow
def test_a_slow_consumer(broker: jumpmq.RunningBroker, channel: BlockingChannel, looks: Looks) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "printer in the cellar"}
    channel.queue_declare("invoices", durable=True)
    with pika.BlockingConnection(parameters) as other:
        slow = other.channel()
        slow.basic_qos(prefetch_count=50)
        slow.basic_consume("invoices", lambda *_: None)
        for _ in range(1000):
            channel.basic_publish("", "invoices", b"invoice")
        for look, site in looks():
            found = answer(site, "slow consumer", r"1 consumer of 'invoices'")
            assert "holds its whole prefetch (50 messages) unacknowledged" in found.inner_text()
            site.picture(f"full-slow-consumer-{look}")
            site.follow(found.get_by_role("link", name="invoices", exact=True))
            consumer = site.page.get_by_label("Consumers of this queue").get_by_role("row").nth(1)
            consumer.filter(has_text="printer in the cellar").wait_for()
            site.see("Unacknowledged").picture(f"full-slow-consumer-queue-{look}")
            site.follow(consumer.get_by_role("link", name="printer in the cellar")).see("Unacknowledged")
            site.page.get_by_role("heading", level=1, name="printer in the cellar (1)").wait_for()
            wrong = site.page.get_by_label("What is wrong here")
            wrong.get_by_role("link", name="invoices", exact=True).wait_for()
    channel.queue_delete("invoices")


@pytest.mark.slow
def test_keys_that_wait_for_a_slow_queue(channel: BlockingChannel, looks: Looks) -> None:
    channel.exchange_declare("tasks", "x-consistent-hash", durable=True, arguments={"ordered-scaling": True})
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=10)
    for name in ("tasks-old", "tasks-new"):
        channel.queue_declare(name, durable=True)
        channel.basic_consume(name, lambda *_: None)
        channel.queue_bind(name, "tasks", "1")
        for number in range(400):
            channel.basic_publish("tasks", str(number), b"task")
    for look, site in looks():
        found = answer(site, "slow consumer", r"messages of 'tasks-new' wait for 'tasks-old'")
        site.picture(f"full-keys-wait-{look}")
        site.press("Release", found)
        site.see("Deliver held messages now").page.keyboard.press("Escape")
        site.page.get_by_role("dialog").wait_for(state="detached")
        site.follow(found.get_by_role("link", name="tasks-old", exact=True))
        site.page.get_by_label("Keys that wait").get_by_role("link", name="tasks-new").wait_for()
        site.picture(f"full-keys-wait-queue-{look}")
    channel.exchange_delete("tasks")
    for name in ("tasks-old", "tasks-new"):
        channel.queue_delete(name)


def test_nothing_is_wrong(tmp_path: Path, browser: Browser, pictures: Path) -> None:
    """A new broker has no causes. On an old one, the end of earlier tests' traffic would be a cause."""
    with jumpmq.running(data_dir=tmp_path) as running, window(browser, pictures, running.http_port) as site:
        site.see("No problems")
