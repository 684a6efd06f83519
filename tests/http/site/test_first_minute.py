"""The first minute with a broker: an address, a program, visible traffic; causes with their remedies."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import PHONE, OpenPage, Site
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_a_broker_without_queues_says_how_to_begin_and_comes_alive(api: API, open_page: OpenPage) -> None:
    for look in ({"scheme": "dark"}, {"viewport": PHONE}, {}):
        site = open_page(**look)
        site.see(f"amqp://127.0.0.1:{api.amqp_port}")
        for language, said in {
            "Java": "ConnectionFactory",
            "Go": "amqp091",
            "curl": "curl -u",
            "Python": "pika",
        }.items():
            site.press(language)
            site.page.get_by_label(f"A first program in {language}").get_by_text(said).first.wait_for()
        assert problems(site.page) == []
        assert site.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        site.picture(f"first-{look.get('scheme') or ('phone' if look else 'light')}")
    program = site.page.get_by_label("A first program in Python").inner_text()
    assert "pika.URLParameters" in program
    exec(compile(program, "first", "exec"), {})  # a newcomer's first program
    assert sum(api.get("queues", "/", f"orders-{number}")["messages"] for number in range(4)) >= 0
    until(lambda: sum(one["messages"] for one in api.get("queues")) == 1)
    for number in range(4):
        api.request("DELETE", "queues", "/", f"orders-{number}")
    site.page.reload()
    site.press("Send sample traffic").see(r"\d+ messages to 4 queues")
    until(lambda: sum(one["messages"] for one in api.get("queues")) > 20)
    picture = site.page.get_by_role("region", name="Picture of the flow")
    until(lambda: picture.locator(".link:not(.still)").count() > 3)
    assert {one["name"] for one in api.get("queues")} == {f"sample-{number}" for number in range(1, 5)}
    site.press("Remove the sample").see("Sample removed")
    until(lambda: not api.get("queues"))


def test_a_cause_leads_to_what_mends_it(api: API, channel: BlockingChannel, site: Site) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 0}
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("dying", durable=True, arguments=dead)
    publish(channel, "dying", [b"x"] * 3)
    cause = site.page.get_by_label("Warnings").get_by_role("listitem").filter(has_text="dead letters wait")
    cause.get_by_role("link", name="Browse").wait_for()
    site.picture("causes")
    site.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    site.press("Copy as text")
    copied = until(lambda: site.page.evaluate("navigator.clipboard.readText()"))
    assert "dead letters wait: dead (since " in copied and "What to do: " in copied
    site.press("Move back", cause)
    dialog = site.page.get_by_role("dialog")
    assert dialog.get_by_label("Routing key").count() == 0
    site.fill(to="an exchange")
    dialog.get_by_label("Routing key").wait_for()
    channel.queue_delete("dying")
    channel.queue_delete("dead")
