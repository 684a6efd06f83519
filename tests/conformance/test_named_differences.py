"""The session generator ignores only the differences named in docs/differences.md."""

from typing import Any

from fuzzing.sessions.differences import name_of
from fuzzing.sessions.pair import Difference
from fuzzing.sessions.side import Step

from jumpmq.amqp import methods as m

GOT = "Timing and order: what has just come to a quorum queue is got"


def got(count: int, headers: list[tuple[str, str, Any]]) -> Any:
    """A broker's answer to `basic.get`, and the counts of its queues."""
    properties = {"headers": headers} if headers else {}
    return {(0, 1): [("basic.get-ok", 1, False, "", "queue", count, properties, b"body")]}, {}


def difference(theirs: Any, ours: Any) -> Difference:
    return Difference([Step((0, 1), m.BasicGet(queue="queue"))], theirs, ours)


def test_a_message_of_a_quorum_queue_that_is_got_before_it_is_counted() -> None:
    counted = [("x-delivery-count", "l", 0)]
    assert name_of(difference(got(1, []), got(0, counted))) == GOT
    other = [("other", "S", "text")]
    assert name_of(difference(got(1, other), got(0, counted + other))) == GOT
    assert name_of(difference(got(1, other), got(0, counted))) is None
    assert name_of(difference(got(0, counted), got(0, []))) is None


def test_what_was_on_its_way_to_a_channel_that_is_closed() -> None:
    closed = ("channel.close", 406, "text", 60, 40)
    delivered: tuple[object, ...] = ("basic.deliver", "c1", 1, False, "", "q", {}, b"0")

    def said(*events: Any) -> Any:
        return {(0, 1): list(events)}, {}

    name = "Timing and order: what is on its way to a channel that is closed"
    assert name_of(difference(said(closed, delivered), said(closed))) == name
    assert name_of(difference(said(closed), said(closed, delivered))) is None
    assert name_of(difference(said(delivered), said())) is None
    assert name_of(difference(said(closed, delivered), said(("channel.close", 404, "text", 60, 40)))) is None
    assert name_of(difference((said(closed, delivered)[0], {"q": 1}), said(closed))) is None
