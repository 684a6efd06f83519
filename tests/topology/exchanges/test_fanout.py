"""Fanout exchanges: every message goes to all bound queues."""

import pytest
from tests.topology.built import Built, message, shares


@pytest.mark.parametrize("plain", [True, False])
def test_every_bound_queue_gets_every_message_once(built: Built, plain: bool) -> None:
    for queue in ("a", "b", "unbound"):
        built.queue(queue)
    built.bind("amq.fanout", "a")
    built.bind("amq.fanout", "b", "x")
    built.bind("amq.fanout", "b", "y")
    assert shares(built.route("amq.fanout", message("k"), message("x"), plain=plain)) == {"a": 2, "b": 2}


@pytest.mark.parametrize("plain", [True, False])
def test_without_bindings_nothing_is_routed(built: Built, plain: bool) -> None:
    lost = message("k")
    assert built.route("amq.fanout", lost, plain=plain).unroutable == [lost]


def test_a_queue_stays_bound_until_its_last_binding_goes(built: Built) -> None:
    built.queue("q")
    built.bind("amq.fanout", "q", "x")
    built.bind("amq.fanout", "q", "y")
    built.unbind("amq.fanout", "q", "x")
    assert built.reached("amq.fanout") == ["q"]
    built.unbind("amq.fanout", "q", "y")
    assert built.reached("amq.fanout") == []
