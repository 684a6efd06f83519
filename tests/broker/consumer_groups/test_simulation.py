"""A consumer group and its queues, made of the broker's classes, under a scheduler with any order of steps."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.consumer_groups.simulation import ACTIONS, OFTEN, World
from tests.generating import examples

from jumpmq.queues import Outcome


@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*ACTIONS, *OFTEN]), st.integers(0, 1000)), min_size=100, max_size=300))
def test_nothing_is_lost_and_no_key_is_at_two_clients(actions: list[tuple[str, int]]) -> None:
    world = World()
    world.act([(ACTIONS[name], place) for name, place in actions])
    world.failures.clear()
    world.come_to_rest()
    for _ in range(1000):
        for client in world.clients:
            client.settle(0, Outcome.ACKNOWLEDGED)
        world.step()
        world.check()
        if not any(client.count for client in world.clients):
            break
    world.checker.check()
    weights = {member: member.weight for member in world.group.members.values()}
    for member, weight in weights.items():
        share = sum(place.owner is member for place in world.group.places.values())
        assert abs(share * sum(weights.values()) - len(world.group.places) * weight) < sum(weights.values())
