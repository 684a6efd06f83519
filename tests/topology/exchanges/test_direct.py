"""Direct exchanges, and the default exchange: by the routing key, letter by letter."""

import pytest
from tests.topology.built import Built, keys, message


def test_a_message_goes_to_every_queue_bound_with_its_key(built: Built) -> None:
    for queue in ("a", "b", "c"):
        built.queue(queue)
    built.bind("amq.direct", "a", "red")
    built.bind("amq.direct", "b", "red")
    built.bind("amq.direct", "c", "blue")
    assert built.reached("amq.direct", "red") == ["a", "b"]
    assert built.reached("amq.direct", "blue") == ["c"]
    assert built.reached("amq.direct", "Red") == []


@pytest.mark.parametrize("plain", [True, False])
def test_a_run_keeps_its_order_in_each_queue(built: Built, plain: bool) -> None:
    built.queue("both")
    built.queue("odd")
    for key in ("1", "3"):
        built.bind("amq.direct", "odd", key)
    for key in ("1", "2", "3"):
        built.bind("amq.direct", "both", key)
    routes = built.route("amq.direct", *[message(key) for key in "3214321"], plain=plain)
    assert keys(routes) == {"both": list("321321"), "odd": list("3131")}
    assert [one.routing_key for one in routes.unroutable] == [b"4"]


def test_two_bindings_with_one_key_deliver_once_and_go_one_by_one(built: Built) -> None:
    built.queue("q")
    built.bind("amq.direct", "q", "k")
    built.bind("amq.direct", "q", "k", {"note": 1})
    assert built.reached("amq.direct", "k") == ["q"]
    built.unbind("amq.direct", "q", "k")
    assert built.reached("amq.direct", "k") == ["q"]
    built.unbind("amq.direct", "q", "k", {"note": 1})
    assert built.reached("amq.direct", "k") == []


def test_the_default_exchange_knows_every_queue_by_name(built: Built) -> None:
    built.queue("möwe")
    built.queue("other")
    assert built.reached("", "möwe") == ["möwe"]
    assert built.reached("", "nobody") == []
