"""Why is one queue full? Each of the answers is made, and found on the first page with what to do about it."""

import re

import pika
import pytest

import jumpmq


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker for all: each of the tests takes away what it made."""
    with jumpmq.running(data_dir=tmp_path_factory.mktemp("story") / "data") as running:
        yield running


@pytest.fixture
def orders(channel):
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


def send(channel, customers):
    for customer in customers:
        headers = {} if customer is None else {"customer": customer}
        channel.basic_publish("orders", "", b"order", pika.BasicProperties(headers=headers))


def unfold(found):
    folded = found.locator("[aria-expanded=false]")
    if folded.count():
        folded.first.click()


def answer(site, kind, text):
    """The warning of this kind, once its text says so: the last of the messages may still be on their way."""
    warnings = site.page.get_by_label("Warnings").get_by_role("listitem").filter(has_text=kind)
    found = warnings.filter(has_text=re.compile(text)).first
    found.wait_for()
    unfold(found)
    return found


def test_a_hot_key(orders, open_page):
    send(orders, ["acme" if number % 5 < 2 else f"customer-{number}" for number in range(2000)])
    site = open_page()
    found = answer(site, "hot key", "The key 'acme' has (3[5-9]|4[0-5])% of the messages to 'orders'")
    assert "More queues do not help" in found.inner_text()
    site.see("Fullest queues").page.wait_for_timeout(2500)
    site.picture("full-hot-key")
    site.follow(found.get_by_role("link", name="orders", exact=True))
    hottest = site.page.get_by_role("region", name="Hottest keys")
    hottest.get_by_role("row").filter(has_text="acme").first.wait_for()
    site.see("Keys are spread evenly, messages are not").picture("full-hot-key-ring")


def test_a_missing_header(orders, open_page):
    send(orders, [f"customer-{number}" for number in range(600)] + [None] * 400)
    site = open_page()
    found = answer(site, "missing header", "400 of 1,000 recent messages to 'orders' lack the header 'customer'")
    assert "Have the publishers set" in found.inner_text()
    site.picture("full-missing-header")
    site.follow(found.get_by_role("link", name="orders", exact=True))
    site.see("lack the header customer: they all go to one destination").picture("full-missing-header-ring")


def test_a_shard_without_a_consumer(api, channel, open_page):
    channel.exchange_declare("clicks", "x-modulus-hash", durable=True)
    body = {"pattern": "^clicks$", "definition": {"shards-per-node": 4}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "shard-clicks", json=body)
    for _ in range(3):
        channel.basic_consume("clicks", lambda *_: None, auto_ack=True)
    for number in range(2000):
        channel.basic_publish("clicks", f"visitor-{number}", b"click")
    site = open_page()
    found = answer(site, "shard without consumer", r"1 of 4 shards of 'clicks' has no consumer \(number 3\)")
    assert "Consume from 'clicks' once more" in found.inner_text()
    site.picture("full-shard")
    site.follow(found.get_by_role("link", name="clicks", exact=True))
    site.row("sharding: clicks - ").wait_for()
    assert "none" in site.page.get_by_role("row").filter(has_text=" - 3").first.inner_text()
    site.picture("full-shard-shards")
    api.request("DELETE", "policies", "/", "shard-clicks")
    channel.exchange_delete("clicks")
    for queue in api.get("queues"):
        channel.queue_delete(queue["name"])


def test_a_slow_consumer(channel, open_page):
    channel.queue_declare("invoices", durable=True)
    channel.basic_qos(prefetch_count=50)
    channel.basic_consume("invoices", lambda *_: None)
    for _ in range(1000):
        channel.basic_publish("", "invoices", b"invoice")
    site = open_page()
    found = answer(site, "slow consumer", r"1 consumer of 'invoices'")
    assert "holds its whole prefetch (50 messages) unacknowledged" in found.inner_text()
    site.picture("full-slow-consumer")
    site.follow(found.get_by_role("link", name="invoices", exact=True))
    site.see("Unacknowledged").picture("full-slow-consumer-queue")
    channel.queue_delete("invoices")


def test_nothing_is_wrong(open_page):
    open_page().see("Nothing needs your attention")
