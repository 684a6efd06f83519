"""Messages on the page: found without removal, read, copied as a program, selected and moved."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.accessibility import problems
from tests.http.site.conftest import PHONE, OpenPage, Site
from tests.waiting import until

from jumpmq import RunningBroker

if TYPE_CHECKING:
    from playwright.sync_api import Locator


HOSTILE = "<img src=x onerror='window.hacked=1'>"


@pytest.fixture
def letters(api: API, channel: BlockingChannel) -> Iterator[BlockingChannel]:
    """A queue of 70 JSON messages of two customers, and as many binary messages."""
    channel.queue_declare("letters", durable=True)
    for number in range(70):
        headers = {"customer": f"acme-{number % 2}", "tags": [True, None, 1]}
        body = b'{"order": %d, "big": 12345678901234567890, "name": "%s"}' % (number, HOSTILE.encode())
        channel.basic_publish("", "letters", body, pika.BasicProperties(headers=headers, delivery_mode=2))
    until(lambda: api.counts("letters") == (70, 0))
    yield channel
    channel.queue_delete("letters")


def rows(site: Site) -> Locator:
    return site.page.get_by_label("Messages", exact=True).get_by_role("listitem")


def test_they_are_found_read_and_copied_as_a_program(
    api: API, broker: RunningBroker, letters: BlockingChannel, site: Site
) -> None:
    site.go("messages", "/", "letters").see("50 matches in the first 50 of 70 messages")
    site.press("Search on").see("70 matches in 70 messages")
    site.fill(header="customer", value="acme-1", text='order": 3').press("Search").see("6 matches in 70 messages")
    assert rows(site).count() == 6
    site.press("▸ 32").see('"order": 31,\n')
    site.see('"big": 12345678901234567890').picture("messages")
    site.press("Copy for pika")
    program = site.page.get_by_label("Program").inner_text()
    environment = os.environ | {"AMQP_URL": broker.amqp_url}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    until(lambda: api.counts("letters") == (71, 0))
    asked = {"from": 32, "to": 71, "header": "customer", "value": "acme-1", "text": 'order": 31'}
    first, again = api.get("queues", "/", "letters", "browse", **asked)["messages"]
    changing = {"seq": None, "published_at": None}
    assert first | changing == again | changing
    site.press("Edit and publish").fill(properties='{"delivery_mode": 2}', payload="mended").submit("Publish")
    until(lambda: api.get("queues", "/", "letters", "browse", text="mended")["messages"])
    with site.page.expect_download() as downloaded:
        site.press("Download")
    assert len(json.loads(Path(downloaded.value.path()).read_text())) == 6
    assert site.page.evaluate("window.hacked") is None


def test_a_choice_and_all_that_match_are_moved(api: API, letters: BlockingChannel, site: Site) -> None:
    letters.queue_declare("aside", durable=True)
    site.go("messages", "/", "letters")
    for number in (2, 5):
        site.page.get_by_label(f"Choose message {number}", exact=True).check()
    site.press("Move 2 chosen").fill(to="a queue", destination="aside")
    dialog = site.page.get_by_role("dialog")
    site.press("Move", dialog).see("2 messages moved")
    assert api.counts("letters") == (68, 0)
    site.page.keyboard.press("Escape")
    site.fill(header="customer", value="acme-0").press("Search").see("34 matches in 68 messages")
    site.press("Move all that match").fill(to="a queue", destination="aside")
    site.press("Move", site.page.get_by_role("dialog")).see("34 messages moved")
    site.page.keyboard.press("Escape")
    site.see("No message matches")
    until(lambda: (api.counts("letters"), api.counts("aside")) == ((34, 0), (36, 0)))


def test_a_choice_is_deleted_after_a_question(api: API, letters: BlockingChannel, open_page: OpenPage) -> None:
    api.request("PUT", "users", "looker", json={"password": "secret", "tags": "management"})
    api.request("PUT", "permissions", "/", "looker", json={"configure": "", "write": ".*", "read": "^$"})
    site = open_page().go("messages", "/", "letters")
    delete = site.page.get_by_role("button", name="Delete chosen", exact=True)
    assert delete.is_disabled()
    for number in (2, 5):
        site.page.get_by_label(f"Choose message {number}", exact=True).check()
    site.press("Delete 2 chosen")
    dialog = site.page.get_by_role("dialog", name="Delete 2 messages?")
    assert problems(site.page) == []
    site.page.keyboard.press("Escape")
    assert api.counts("letters") == (70, 0)
    site.press("Delete 2 chosen").press("Delete 2 chosen", dialog).see("2 messages deleted")
    assert api.counts("letters") == (68, 0)
    site.see("in the first 50 of|68 messages")
    site.page.get_by_label("Choose message 2", exact=True).wait_for(state="detached")
    stranger = open_page("looker", "secret")
    stranger.page.goto(f"{stranger.address}#/messages/%2F/letters")
    stranger.see("read access to queue 'letters' in vhost '/' refused for user 'looker'")


def test_payloads_are_decompressed_and_shown_in_hexadecimal(
    api: API, letters: BlockingChannel, open_page: OpenPage
) -> None:
    letters.queue_declare("packed", durable=True)
    bodies = [
        (gzip.compress(b'{"order": 7}'), "gzip"),
        (zlib.compress(b"plain words"), "deflate"),
        (gzip.compress(b"\xff" * 3_000_000), None),
        (b"\x1f\x8b\x08 not gzip \xff", "gzip"),
    ]
    for body, encoding in bodies:
        letters.basic_publish("", "packed", body, pika.BasicProperties(content_encoding=encoding))
    until(lambda: api.counts("packed") == (4, 0))
    site = open_page(viewport={"width": 320, "height": 640}).go("messages", "/", "packed")
    for number, text in enumerate(
        (
            '"order": 7\n',
            "plain words",
            "the first 200,000 octets, not UTF-8",
            "The payload is not gzip, or not whole.",
        ),
        1,
    ):
        row = rows(site).nth(number - 1)
        row.get_by_role("button", name=f"▸ {number}").click()
        site.press("Decompress", row)
        row.get_by_text(re.compile(re.escape(text))).first.wait_for()
    first = rows(site).nth(0)
    site.press("Hex", first)
    first.get_by_text("000000  1f 8b 08").wait_for()
    assert problems(site.page) == []
    assert site.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    site.picture("messages-decoded")
    letters.queue_delete("packed")


def test_a_stream_by_offset_and_time_on_a_phone(api: API, letters: BlockingChannel, open_page: OpenPage) -> None:
    letters.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(60):
        letters.basic_publish("", "log", b"\xff" if number == 59 else b"line %d" % number)
    until(lambda: api.counts("log") == (60, 0))
    site = open_page(viewport=PHONE, scheme="dark")
    site.go("messages", "/", "log").see("50 matches in the first 50 of 60 messages").press("Newest").see(
        "50 matches in 50 messages"
    )
    site.fill(**{"from": "57"}).press("Search").see("3 matches in 3 messages")
    site.press("▸ 59").see("not UTF-8: shown in base64").picture("messages-phone")
    assert site.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    site.fill(**{"from": "", "since": "2100-01-01T00:00:00"}).press("Search").see("No message matches")
    assert site.page.get_by_role("button", name="Move").count() == 0


def test_browsing_disturbs_nothing_and_getting_says_that_it_does(
    api: API, letters: BlockingChannel, site: Site
) -> None:
    site.go("queues", "/", "letters")
    browse = site.page.get_by_role("link", name="Browse messages", exact=True)
    get = site.page.get_by_role("button", name="Get messages", exact=True)
    edges = [one.evaluate("node => getComputedStyle(node).borderTopColor") for one in (browse, get)]
    assert edges[0] != edges[1] == "rgba(0, 0, 0, 0)", "the one that disturbs is fainter"
    site.follow(browse).see("Nothing is taken: what is found stays where it is").press("▸ 1").see('"order": 0,\n')
    assert rows(site).first.get_by_text("Redelivered").count() == 0
    browsed = api.get("queues", "/", "letters", "browse", count=70)["messages"]
    assert (api.counts("letters"), [one["redelivered"] for one in browsed]) == ((70, 0), [False] * 70)
    site.go("queues", "/", "letters").press("Get messages")
    dialog = site.page.get_by_role("dialog")
    dialog.get_by_text("what is put back is marked as redelivered").wait_for()
    site.fill(count="2").press("Get", dialog)
    dialog.get_by_text("Left behind it").first.wait_for()
    until(lambda: api.counts("letters") == (70, 0))
    got = api.get("queues", "/", "letters", "browse", count=3)["messages"]
    assert [one["redelivered"] for one in got] == [True, True, False]


def test_the_dialog_that_moves_has_the_fields_that_its_target_needs(letters: BlockingChannel, site: Site) -> None:
    site.go("queues", "/", "letters").press("Move messages")
    dialog = site.page.get_by_role("dialog")
    assert dialog.get_by_label("To", exact=True).input_value() == "Original queue (x-death)"
    shown = {}
    for target in dialog.get_by_label("To", exact=True).locator("option").all_inner_texts():
        site.fill(to=target)
        shown[target] = dialog.locator("label").all_inner_texts()
    assert shown == {
        "Original queue (x-death)": ["To", "How many"],
        "a queue": ["To", "Name", "How many"],
        "an exchange": ["To", "Name", "Routing key", "How many"],
    }
