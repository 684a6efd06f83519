"""The page's views of consumer groups, and of the reasons of an undelivered message."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.conftest import Site
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.queues.slots import slot_of


@pytest.mark.slow
def test_a_group_is_shown_with_who_has_what_and_what_drains(site: Site, api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("payments", durable=True, arguments={"x-slots": 4})
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=2)
    named = {"x-consumer-group": "billing", "x-group-member": "one", "x-rebalance-delay": 50}
    held = []
    channel.basic_consume("payments", lambda _, method, *__: held.append(method.delivery_tag), arguments=named)
    for number in range(40):
        channel.basic_publish("", "payments", b"x" if number else b"first")
    until(lambda: channel.connection.process_data_events(0.05) or len(held) == 2)
    site.go("groups").see("billing")
    site.follow(site.row("billing").get_by_role("link", name="billing")).see("serving").see("Units")
    other = channel.connection.channel()
    other.basic_qos(prefetch_count=2)
    other.basic_consume("payments", lambda *_: None, arguments=named | {"x-group-member": "two"})
    site.see("two")
    slot = slot_of(b"payments", 4)
    site.go("why", "/", "payments").see("Slots").see("has no room|passes to member")
    site.fill(about="a slot", value=str(slot)).press("Explain").see(f"Slot {slot}: ")
    site.fill(about="a message", value="1").press("Explain").see("Message 1: message 1 was delivered to consumer")
    site.fill(about="a key", value="payments").press("Explain").see("Key payments: ")
    site.go("queues", "/", "payments")
    site.follow(site.page.get_by_role("link", name="why is a message not delivered?")).see("Slots")


def test_members_without_a_name_have_that_of_their_connection(site: Site, broker: RunningBroker) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "job-runner"}
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", exclusive=True, arguments={"x-slots": 2})
        group = {"x-consumer-group": "runners"}
        channel.basic_consume("jobs", lambda *_: None, consumer_tag="tag", arguments=group)
        site.go("groups", "/", "queue", "jobs", "runners").see("Idle members are on standby.")
        site.see(r"Queues and slots are reassigned [\d.]+ s after a member joins or leaves\.")
        for table in ("Members of this group", "Units of this group"):
            site.page.get_by_role("region", name=table).get_by_text("job-runner (1) tag").first.wait_for()


@pytest.fixture
def waiting(channel: BlockingChannel) -> Iterator[BlockingChannel]:
    """Keys moved from a queue with 40 messages to a second queue, and 40 further messages."""
    channel.exchange_declare("tasks", "x-consistent-hash", durable=True, arguments={"ordered-scaling": True})
    channel.confirm_delivery()
    for number in (1, 2):
        channel.queue_declare(f"tasks-{number}", durable=True)
        channel.queue_bind(f"tasks-{number}", "tasks", "1")
        for key in range(40):
            channel.basic_publish("tasks", f"customer-{key}", b"task")
    yield channel
    channel.exchange_delete("tasks")


def test_keys_that_wait_are_shown_by_what_they_wait_for_and_let_go(
    site: Site, api: API, waiting: BlockingChannel
) -> None:
    (fence,) = api.get("fences")
    site.go("groups")
    row = site.page.get_by_label("Keys that wait").get_by_role("row").filter(has_text="tasks-1")
    row.wait_for()
    assert row.inner_text().split()[:5] == ["tasks-1", "40", "tasks-2", str(fence["messages_held"]), "tasks"]
    site.see("^Held back to keep order: these keys moved here, and their old queue still has earlier messages.$")
    site.picture("groups-fences").follow(row.get_by_role("link", name="tasks-1"))
    site.page.get_by_label("Keys that wait").get_by_role("link", name="tasks-2").wait_for()
    site.go("why", "/", "tasks-2").see(
        "All ready messages have keys that moved from other queues when exchange 'tasks' changed"
    )
    key = next(body for body in (f"customer-{key}" for key in range(40)) if "the key moved" in why(api, body))
    site.fill(about="a key", value=key).press("Explain").see(f"Key {key}: the key moved from another queue")
    site.press("Release")
    dialog = site.page.get_by_role("dialog", name="Deliver held messages now?")
    assert "although 40 messages from before are left in tasks-1" in dialog.inner_text()
    site.press("Release", dialog).see("Released")
    site.page.get_by_label("Keys that wait").wait_for(state="detached")
    assert api.get("fences") == []


def why(api: API, key: str) -> str:
    response = api.request("GET", "queues", "/", "tasks-2", "explain", params={"key": key})
    return str(response.json()["reason"])


def test_an_offset_is_set_and_deleted(site: Site, api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("", "events", b"x")
    assert api.request("PUT", "group-offsets", "/", "events", "late", json={"offset": 1}).status_code == 201
    site.go("groups").see("Offsets in streams").see("late")
    site.press("Set", site.row("late")).fill(offset="first").submit("Set")
    assert api.get("group-offsets", "/")[0]["offset"] == 0
    site.press("Delete", site.row("late"))
    dialog = site.page.get_by_role("dialog")
    site.press("Delete", dialog)
    dialog.wait_for(state="detached")
    assert api.get("group-offsets", "/") == []
