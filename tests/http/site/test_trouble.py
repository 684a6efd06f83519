"""The page in trouble: a broker that is down, odd names, unsaved input, expired sessions."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import PHONE, OpenPage, Site, bounding
from tests.http.site.tasks import shorten_a_queue
from tests.http.site.windows import window
from tests.waiting import until

import jumpmq
from jumpmq.testing import HOST, JumpMQ, free_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Route


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[jumpmq.RunningBroker]:
    """A broker in a separate process, which a test may stop."""
    with jumpmq.running(data_dir=tmp_path / "data", process=True) as running:
        yield running


@pytest.fixture
def own_site(own_broker: jumpmq.RunningBroker, browser: Browser, pictures: Path) -> Iterator[Site]:
    with window(browser, pictures, own_broker.http_port) as site:
        yield site


@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_said_at_the_head_and_what_is_shown_is_greyed(
    own_broker: jumpmq.RunningBroker, own_site: Site
) -> None:
    process = API(own_broker.http_url).get("nodes")[0]["os_pid"]
    os.kill(int(process), signal.SIGSTOP)
    try:
        own_site.see("The broker does not answer. What you see is from")
        assert own_site.page.locator("main.old").count() == 1
        own_site.page.screenshot(path=own_site._pictures / "silent.png")
    finally:
        os.kill(int(process), signal.SIGCONT)
    own_site.page.locator("main.old").wait_for(state="detached")
    assert own_site.page.locator(".silent").count() == 0


@pytest.mark.slow
def test_a_broker_that_is_killed_is_said_and_the_page_lives_again_with_it(
    tmp_path: Path, browser: Browser, pictures: Path
) -> None:
    (port,) = free_ports(1)
    arguments = ["--http-port", str(port)]
    with JumpMQ(data_dir=tmp_path, arguments=arguments) as broker, window(browser, pictures, port) as site:

        def fill(bodies: list[bytes]) -> None:
            with pika.BlockingConnection(pika.ConnectionParameters(HOST, broker.port)) as connection:
                channel = connection.channel()
                channel.queue_declare("kept", durable=True)
                publish(channel, "kept", bodies)

        def waiting() -> str:
            return site.page.get_by_label("Fullest queues").get_by_role("row").filter(has_text="kept").inner_text()

        fill([b"x"] * 3)
        until(lambda: "3" in waiting().split())
        broker.kill()
        site.see(r"The broker does not answer. What you see is from \d\d:\d\d:\d\d")
        for what in ("main", "nav.places .of"):
            assert site.page.evaluate(f"getComputedStyle(document.querySelector('{what}')).filter") == "grayscale(1)"
        assert "3" in waiting().split(), "what was known last is still shown"
        broker.start()
        site.page.locator("main.old").wait_for(state="detached")
        assert site.page.get_by_role("dialog").count() == 0, "the login outlives the broker"
        fill([b"x"] * 4)
        until(lambda: "7" in waiting().split())
        assert site.page.locator(".silent, .failure").count() == 0


@pytest.mark.parametrize("name", [".", ".."])
def test_a_queue_that_is_named_like_a_place_in_a_path_is_shown_and_deleted(
    api: API, site: Site, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True)
    publish(channel, name, [b"1", b"2"])
    site.go("queues", "/", name).see("Last message's number")
    site.confirm("Purge").confirm("Delete")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.queue_declare(name, passive=True)


ODD_NAMES = ["..", "x" * 255, "\u202eright to left\u202c", "tabs\tand\x01more", "a/b?c#d%2F&e=f", " "]


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD_NAMES, ids=["dots", "long", "bidirectional", "control", "address", "blank"])
def test_odd_names_of_groups_and_of_what_waits_fit_a_phone_and_can_be_followed(
    api: API, broker: jumpmq.RunningBroker, open_page: OpenPage, name: str
) -> None:
    api.request("PUT", "vhosts", "odd")
    api.request("PUT", "permissions", "odd", "guest", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.virtual_host = "odd"
    parameters.client_properties = {"connection_name": name}
    with pika.BlockingConnection(parameters) as connection:
        channel, queues = connection.channel(), (name, name[:-1] + "2")
        channel.exchange_declare(name, "x-consistent-hash", durable=True, arguments={"ordered-scaling": True})
        channel.confirm_delivery()
        for queue in queues:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, name, "1")
            for number in range(40):
                channel.basic_publish(name, str(number), b"x")
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queues[0], lambda *_: None, arguments={"x-consumer-group": name}, consumer_tag=name[:200])
        site = open_page(viewport=PHONE)
        for view in (("groups",), ("consumers",), ("groups", "odd", "queue", name, name), ("why", "odd", queues[1])):
            site.go(*view).settle()
            assert site.page.locator(".failure").count() == 0, view
            assert site.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
        assert problems(site.page) == []
        site.follow(site.page.get_by_label("Keys that wait").locator("tbody a").first).see("Last message's number")
        assert site.page.get_by_role("heading", level=1).inner_text().split() == name.split()
        site.press("Release").press("Release", site.page.get_by_role("dialog")).see("Released")
        until(lambda: api.get("fences") == [])
    api.request("DELETE", "vhosts", "odd")


def test_a_user_with_no_rights_sees_empty_lists_and_no_complaint(
    api: API, channel: BlockingChannel, open_page: OpenPage
) -> None:
    channel.queue_declare("secret", durable=True)
    api.request("PUT", "users", "nobody", json={"password": "secret", "tags": "management"})
    site = open_page("nobody", "secret", viewport=PHONE)
    for view in ("queues", "consumers", "groups", "readers", "limits", "vhosts", "policies"):
        site.go(view).settle()
        assert site.page.get_by_text("secret").count() == 0, view
        assert site.page.locator(".failure").count() == 0, view
    site.page.goto(f"{site.address}#/queues/%2F/secret")
    site.see("User not authorised to access virtual host")


@pytest.mark.slow
def test_of_a_thousand_incidents_five_are_shown_and_the_rest_is_counted(site: Site) -> None:
    one: dict[str, Any] = {
        "kind": "slow-consumer",
        "severity": "warning",
        "object": "queue",
        "vhost": "/",
        "text": "x " * 200,
    }
    one |= {"advice": "y", "messages": 10, "growth": 1.0, "full_in": None, "since": 1.0}
    one |= {"symptoms": [], "count": 1, "names": [], "pattern": ""}
    many = [one | {"name": f"queue-{number}", "queue": f"queue-{number}"} for number in range(1000)]
    site.page.route("**/api/incidents", lambda route: route.fulfill(json=many))
    site.page.reload()
    rows = site.page.get_by_label("Warnings").get_by_role("listitem")
    site.see("1,000 problems").see("995 more")
    assert rows.count() == 5
    screen = site.page.viewport_size
    assert screen is not None
    assert bounding(site.page.get_by_label("Warnings"))["height"] <= screen["height"] / 2
    site.press("995 more").see("and 900 more")
    assert rows.count() == 100
    asked = []
    site.page.on("request", lambda request: asked.append(request.url) if "/history/queues/" in request.url else None)
    site.page.wait_for_timeout(6000)
    assert len(asked) < 100, "the line of each is not asked for"


@pytest.mark.slow
def test_a_question_without_an_answer_is_given_up_and_said(site: Site) -> None:
    site.see("Messages a second")
    site.page.route("**/api/history?**", lambda route: None)
    site.see("No answer within 15 s")
    assert site.page.locator(".silent").count() == 0, "others are answered"
    site.page.unroute("**/api/history?**")
    site.page.locator(".failure").wait_for(state="detached")


def test_an_alarm_of_a_node_names_the_node_and_leads_to_it(api: API, site: Site) -> None:
    node = api.get("overview")["node"]
    one = {"kind": "disk-alarm", "severity": "alarm", "object": "node", "vhost": "", "name": node, "queue": ""}
    one |= {"text": "The disk is short.", "advice": "Free disk space.", "messages": 0, "growth": 0.0, "full_in": None}
    one |= {"since": 1.0, "symptoms": [], "count": 1, "names": [], "pattern": ""}
    site.page.route("**/api/incidents", lambda route: route.fulfill(json=[one]))
    site.page.reload()
    site.follow(site.page.get_by_label("Warnings").get_by_role("link", name=node)).see("Fullest queues")


def test_a_view_that_cannot_be_drawn_says_so(site: Site) -> None:
    site.page.route("**/api/queues?**", lambda route: route.fulfill(json={"items": [{"name": "broken"}]}))
    site.page.goto(site.address + "#/queues")
    site.see("This view could not be drawn")
    site.page.unroute("**/api/queues?**")
    site.go("exchanges").see("amq.topic")


def test_a_policy_that_lets_messages_go_says_how_many_and_asks(api: API, site: Site, channel: BlockingChannel) -> None:
    shorten_a_queue(api, channel, site)


def test_clearing_a_policy_says_what_the_next_one_lets_go(api: API, site: Site, channel: BlockingChannel) -> None:
    channel.queue_declare("layered", durable=True)
    for name, priority, length in (("low", 0, 5), ("high", 1, 100)):
        body = {
            "pattern": "^layered$",
            "definition": {"max-length": length},
            "priority": priority,
            "apply-to": "queues",
        }
        api.request("PUT", "policies", "/", name, json=body)
    publish(channel, "layered", [b"x"] * 12)
    until(lambda: api.counts("layered") == (12, 0))
    site.go("policies").press("Clear", site.row("high"))
    dialog = site.page.get_by_role("dialog")
    site.press("Clear", dialog).see("7 messages of 1 queue will be gone for good")
    assert api.counts("layered") == (12, 0)
    site.press("Clear all the same", dialog)
    until(lambda: api.counts("layered") == (5, 0))


def test_streams_do_not_hide_the_fullest_queues(api: API, site: Site, channel: BlockingChannel) -> None:
    for number in range(11):
        channel.queue_declare(f"kept-{number}", durable=True, arguments={"x-queue-type": "stream"})
        publish(channel, f"kept-{number}", [b"x"] * 20)
    channel.queue_declare("waits", durable=True)
    publish(channel, "waits", [b"x"] * 3)
    until(lambda: api.counts("waits") == (3, 0))
    site.go().see("Fullest queues")
    site.row("waits").wait_for()


def end_session_and_log_in(site: Site) -> Locator:
    """End the session outside of the page, and log in again. Return the login dialog."""
    site.page.evaluate("fetch('/session', {method: 'DELETE', headers: {'X-JumpMQ-Page': '1'}})")
    site.see("Your session has ended")
    again = site.page.get_by_role("dialog").filter(has_text="Your session has ended")
    again.get_by_label("Password").fill("guest")
    again.get_by_role("button", name="Log in").click()
    again.wait_for(state="detached")
    return again


@pytest.mark.slow
def test_what_was_typed_outlives_the_session(api: API, site: Site) -> None:
    site.go("queues").press("Declare a queue").fill(name="typed")
    end_session_and_log_in(site)
    site.submit("Declare")
    assert api.get("queues", "/", "typed")["durable"] is True


@pytest.mark.slow
def test_an_answer_to_a_question_before_the_login_ends_no_session(site: Site) -> None:
    held: list[Route] = []

    def asked() -> list[Route]:
        site.page.wait_for_timeout(100)
        return held

    site.go("queues")
    site.page.route(re.compile(r"/api/queues\b"), lambda route: route.continue_() if held else held.append(route))
    until(asked)
    again = end_session_and_log_in(site)
    with site.page.expect_response(re.compile(r"/api/queues\b")):
        held[0].fulfill(status=401, json={"error": "Not_Authorized", "reason": "Login failed"})
    site.page.wait_for_timeout(100)
    assert not again.is_visible()


def test_taking_messages_out_asks(api: API, site: Site, channel: BlockingChannel) -> None:
    channel.queue_declare("taken", durable=True)
    publish(channel, "taken", [b"\xff\xfe" * 10])
    until(lambda: api.counts("taken") == (1, 0))
    site.go("queues", "/", "taken").press("Get messages")
    dialog = site.page.get_by_role("dialog")
    site.press("Get", dialog).see("not UTF-8: shown in base64")
    site.fill(ackmode="take them out").press("Take out", dialog).see("will be out of the queue for good")
    assert api.counts("taken") == (1, 0)
    site.press("Take out all the same", dialog)
    until(lambda: api.counts("taken") == (0, 0))


def test_a_connection_is_found_by_the_name_that_its_client_gave_it(
    api: API, broker: jumpmq.RunningBroker, site: Site
) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "customer-acme"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("of-acme")
    channel.basic_consume("of-acme", lambda *_: None)
    connection.process_data_events(0)
    try:
        site.go("connections")
        site.page.get_by_label("Search connections").fill("acme")
        site.row("customer-acme").wait_for()
        until(lambda: site.page.locator("main tbody tr").count() == 1)
        site.go("consumers").row("of-acme").get_by_text("customer-acme (1)").wait_for()
        site.page.get_by_label("Search consumers").fill("acme")
        until(lambda: site.page.locator("main tbody tr").count() == 1)
    finally:
        connection.close()


def test_a_policymaker_sees_what_more_shards_would_do(api: API, open_page: OpenPage, channel: BlockingChannel) -> None:
    api.request("PUT", "users", "planner", json={"password": "secret", "tags": "policymaker"})
    api.request("PUT", "permissions", "/", "planner", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    channel.exchange_declare("planned", "x-modulus-hash", durable=True)
    body = {"pattern": "^planned$", "definition": {"shards-per-node": 2}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "planned", json=body)
    site = open_page("planner", "secret")
    site.go("shards", "/", "planned").press("Show").see("the least possible").see(r"^hash mod N \(this exchange\)$")


def test_an_unknown_tag_is_asked_about(api: API, site: Site) -> None:
    site.go("users").press("Add a user").fill(name="odd", password="secret", tags="administrater")
    dialog = site.page.get_by_role("dialog")
    site.press("Save", dialog).see("administrater is not a tag")
    assert api.request("GET", "users", "odd").status_code == 404


@pytest.mark.slow
def test_a_cause_is_muted_for_an_hour_and_shown_again(api: API, site: Site, channel: BlockingChannel) -> None:
    channel.queue_declare("stuck", durable=True, arguments={"x-max-length": 100})
    publish(channel, "stuck", [b"x"] * 100)
    rows = site.page.get_by_label("Warnings").get_by_role("listitem").filter(has_text="stuck")
    rows.first.wait_for()
    folded = rows.first.locator("[aria-expanded=false]")
    if folded.count():
        folded.first.click()
    site.press("Mute for an hour", rows.first)
    rows.first.wait_for(state="detached")
    site.see("1 cause muted").press("Show again")
    rows.first.wait_for()
    site.follow(rows.first.get_by_role("link", name="stuck", exact=True))
    here = site.page.get_by_label("What is wrong here")
    here.get_by_text("'stuck' has 100 of at most 100 messages").wait_for()
    channel.queue_delete("stuck")
