"""Random exchanges: every message goes to one random destination."""

import pytest
from tests.topology.built import Built, message, shares


@pytest.mark.parametrize("plain", [True, False])
def test_each_message_goes_to_one_queue_all_with_equal_chances(built: Built, plain: bool) -> None:
    built.exchange("r", "x-random")
    for queue in ("a", "b", "c"):
        built.queue(queue)
        built.bind("r", queue, "ignored")
    built.bind("r", "a", "a second binding gives no second chance")
    found = shares(built.route("r", *[message("k") for _ in range(6000)], plain=plain))
    assert sum(found.values()) == 6000
    assert all(1700 < found[queue] < 2300 for queue in ("a", "b", "c"))  # 8 standard deviations


def test_unbound_queues_get_nothing(built: Built) -> None:
    built.exchange("r", "x-random")
    built.queue("a")
    built.bind("r", "a")
    assert built.reached("r") == ["a"]
    built.unbind("r", "a")
    assert built.reached("r") == []
