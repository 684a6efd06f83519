"""Offsets of a group in a stream, compared with a model that keeps the state of each message."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples

from jumpmq.queues.group_offsets import HIGHEST_NUMBER, GroupOffset, GroupOffsets

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "take", "take", "settle", "settle", "put back", "retention", "restart"]),
        st.integers(0, 20),
    ),
    max_size=120,
)


class Model:
    """A stream and a group, message by message.

    Attributes:
        states: state of each message: new, held, back, settled or gone.
        seen: offsets of messages delivered earlier.
    """

    def __init__(self) -> None:
        self.position = GroupOffset("g", 1, 0)
        self.states: list[str] = []
        self.seen: set[int] = set()
        self.first = 0

    @property
    def held(self) -> list[int]:
        return self.of("held")

    def of(self, *states: str) -> list[int]:
        return [offset for offset, state in enumerate(self.states) if state in states]

    def publish(self, count: int) -> None:
        self.states += ["new"] * count

    def take(self, most: int) -> None:
        wanted = self.of("back") or self.of("new")
        if not most or not self.position.ready(len(self.states)):
            return
        first, count = self.position.wanted(most)
        count = min(count, len(self.states) - first)
        assert [first + place for place in range(count)] == wanted[:count]
        again = self.position.take(first, count)
        for offset in range(first, first + count):
            assert (offset in self.seen) == (offset < first + again)
            self.states[offset] = "held"
            self.seen.add(offset)

    def settle(self, place: int, state: str) -> None:
        if self.held:
            offset = self.held[place % len(self.held)]
            self.states[offset] = state
            self.position.settle([offset, offset, len(self.states) + 5], back=state == "back")

    def retention(self, count: int) -> None:
        self.first = min(self.first + count, len(self.states))
        for offset in self.of("new", "back"):
            if offset < self.first:
                self.states[offset] = "gone"
        self.position.skip_to(self.first)
        assert self.position.skipped == len(self.of("gone"))

    def restart(self) -> None:
        """Restart after a clean stop; held messages were returned."""
        self.position.settle(self.held, back=True)
        record = self.position.record()
        self.position = GroupOffset("g", 1, record["offset"], record["delivered"], record["skipped"])
        for offset in range(record["offset"], len(self.states)):
            self.states[offset] = "new"
        gone = [offset for offset in self.of("new") if offset < self.first]
        self.position.skip_to(self.first)
        for offset in gone:
            self.states[offset] = "gone"
        self.seen = {offset for offset in range(len(self.states)) if offset < record["delivered"]}
        self.position.skipped = len(self.of("gone"))

    def check(self) -> None:
        end = len(self.states)
        open_ = self.of("new", "held", "back")
        assert self.position.offset == min(open_, default=end)
        assert self.position.ready(end) == len(self.of("new", "back"))
        assert self.position.unacknowledged == len(self.held)


@settings(max_examples=examples(500))
@given(ACTIONS)
def test_the_offset_is_the_lowest_that_is_not_settled(actions: list[tuple[str, int]]) -> None:
    model = Model()
    for action, number in actions:
        match action:
            case "publish" | "take" | "retention":
                getattr(model, action)(number)
            case "restart":
                model.restart()
            case _:
                model.settle(number, "settled" if action == "settle" else "back")
        model.check()


def test_what_was_delivered_before_an_offset_was_set_no_longer_counts() -> None:
    offsets = GroupOffsets()
    before = offsets.set("g", 5)
    before.take(5, 3)
    after = offsets.set("g", 0)
    assert offsets.of(before.number) is None
    assert offsets.of(after.number) is offsets.get("g") is after
    assert after.take(0, 10) == 8  # the offsets of possible earlier deliveries are known


def test_numbers_begin_again_and_leave_out_those_in_use() -> None:
    offsets = GroupOffsets()
    stays = offsets.set("stays", 0)
    found = {offsets.set("g", 0).number for _ in range(2 * HIGHEST_NUMBER)}
    assert found == set(range(1, HIGHEST_NUMBER + 1)) - {stays.number}
