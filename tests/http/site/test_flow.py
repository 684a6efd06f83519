"""The diagram of an exchange's traffic: publishers, queues and consumers, with widths by rate."""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.accessibility import problems
from tests.http.site.conftest import PHONE, OpenPage, Site
from tests.waiting import until

from jumpmq import RunningBroker


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[BlockingChannel]:
    """A channel of a connection with a name."""
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "web <shop> & co"}
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    connection.close()


def bound(channel: BlockingChannel, exchange: str, names: Iterable[str]) -> None:
    channel.exchange_declare(exchange, "x-consistent-hash", durable=True)
    for name in names:
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, exchange, "1")


def boxes(site: Site) -> list[str]:
    return [text.replace("\n", " ") for text in site.page.locator(".flow svg svg .name").all_text_contents()]


def is_drawn(site: Site, name: str) -> bool:
    return name in boxes(site)


@pytest.mark.slow
def test_what_comes_in_faster_than_it_goes_out_is_red_and_leads_to_its_queue(
    api: API, channel: BlockingChannel, client: BlockingChannel, open_page: OpenPage
) -> None:
    bound(channel, "sales", [f"sales-{number}" for number in range(4)])
    client.basic_consume("sales-0", lambda *_: None, auto_ack=True)
    site = open_page().go("flow", "/", "sales")
    until(lambda: "none connected" in boxes(site))

    def excess_is_drawn() -> bool:
        for number in range(400):
            client.basic_publish("sales", f"customer-{number}", b"sale")
        client.connection.process_data_events(0)
        return site.page.locator(".flow .link.excess").count() >= 3

    until(excess_is_drawn)
    told = api.get("exchanges", "/", "sales", "flow")
    assert [one["name"] for one in told["publishers"]] == ["web <shop> & co"]
    assert told["publishers"][0]["published"] >= 400
    assert [(one["kind"], one["name"], one["consumers"]) for one in told["consumers"]] == [
        ("client", "web <shop> & co", 1)
    ]
    assert [one["name"] for one in told["queues"]] == [f"sales-{number}" for number in range(4)]
    until(lambda: "web <shop> & co" in boxes(site))
    site.picture("light-flow")
    site.follow(site.page.locator(".flow a", has_text="sales-2")).see("Unacknowledged")


@pytest.mark.parametrize(
    ("look", "options"),
    [
        ("phone", {"viewport": PHONE}),
        pytest.param("light", {}, marks=pytest.mark.slow),
        pytest.param("dark", {"scheme": "dark"}, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_middle_of_many_queues_is_folded(
    channel: BlockingChannel, client: BlockingChannel, open_page: OpenPage, look: str, options: dict[str, Any]
) -> None:
    bound(channel, "many", [f"many-of-them-{number:02}" for number in range(64)])
    for number in range(64):
        for _ in range(number):
            channel.basic_publish("", f"many-of-them-{number:02}", b"x")
        if number % 8 == 0:
            client.basic_consume(f"many-of-them-{number:02}", lambda *_: None, auto_ack=True)
    site = open_page(**options).go("flow", "/", "many")
    until(lambda: "48 more" in boxes(site))
    until(lambda: any(text.endswith("em-63") for text in boxes(site)))
    assert problems(site.page) == []
    wide = site.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    assert "…" not in "".join(site.page.locator(".flow svg svg .figures").all_text_contents())
    site.picture(f"{look}-flow-many")
    site.press("Show up to 64 queues")
    until(lambda: site.page.locator(".flow a").count() == 64)
    site.picture(f"{look}-flow-all")
    assert not re.search("[0-9] more", " ".join(boxes(site)))


def test_hostile_names_are_text_on_one_line_and_nothing_may_move(channel: BlockingChannel, open_page: OpenPage) -> None:
    names = ["<img src=x onerror=alert(1)>", "\u202egnp.exe", "漢字" * 40, "a" * 250, " "]
    bound(channel, "odd </svg>", names)
    site = open_page().go("flow", "/", "odd </svg>")
    until(lambda: site.page.locator(".flow a").count() == len(names))
    found = boxes(site)
    assert found[0].startswith("<img")
    assert "\u202e" not in "".join(found)
    assert site.page.locator(".flow img").count() == 0
    assert site.page.locator(".flow .link:not(.still)").count() == 0
    site.picture("light-flow-odd")


def test_an_exchange_without_queues_says_so(channel: BlockingChannel, site: Site) -> None:
    channel.exchange_declare("lonely", "x-consistent-hash", durable=True)
    site.go("flow", "/", "lonely").see("Nothing is bound to this exchange")


def test_a_consumer_group_and_a_group_of_readers_are_among_the_consumers(
    api: API, channel: BlockingChannel, client: BlockingChannel, site: Site
) -> None:
    bound(channel, "shared", ["shared-0", "shared-1"])
    bound(channel, "read", ["read-0"])
    client.basic_qos(prefetch_count=10)
    client.basic_consume("shared", lambda *_: None, arguments={"x-consumer-group": "billing"})
    api.post("readers", "/", "nightly", "reserve", body={"queues": {"read-0": None}, "max_messages": 3, "lease": 600})
    for exchange, kind, name in (("shared", "group", "billing"), ("read", "reader", "nightly")):
        site.go("flow", "/", exchange)
        until(partial(is_drawn, site, name))
        told = api.get("exchanges", "/", exchange, "flow")
        assert [(one["kind"], one["name"]) for one in told["consumers"]] == [(kind, name)]


@pytest.mark.parametrize("queues", ["3", "65", "-1", "x"])
def test_an_impossible_number_of_queues_is_refused(api: API, channel: BlockingChannel, queues: str) -> None:
    bound(channel, "sales", ["sales-0"])
    answer = api.request("GET", "exchanges", "/", "sales", "flow", params={"queues": queues})
    assert (answer.status_code, "queues" in answer.json()["reason"]) == (400, True)
