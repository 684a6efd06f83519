"""Owner epochs never fall or repeat, whatever the clocks and whenever the process is killed."""

from hypothesis import given
from hypothesis import strategies as st
from tests.queues.consumers import Taker

from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.epochs import AHEAD, LARGEST, OwnerEpochs

STEPS = st.lists(st.sampled_from(["draw", "draw", "draw", "commit", "kill", "observe"]), max_size=60)
TIMES = st.lists(st.floats(0, 4e9), min_size=61, max_size=61)


class Home:
    """A home with an arbitrary clock, and its state on disk. A client sees an epoch after the commit."""

    def __init__(self, times: list[float]) -> None:
        self.times = iter(times)
        self.staged = self.disk = 0
        self.unseen: list[int] = []
        self.seen: list[int] = []
        self.start()

    def start(self) -> None:
        self.staged = self.disk
        self.unseen.clear()
        self.epochs = OwnerEpochs(self.keep, lambda: next(self.times))
        self.epochs.restore(self.disk)

    def keep(self, ceiling: int) -> None:
        self.staged = ceiling

    def commit(self) -> None:
        self.disk = self.staged
        self.seen += self.unseen
        self.unseen.clear()


@given(STEPS, TIMES)
def test_what_clients_see_rises_through_kills_and_clocks_that_go_back(steps: list[str], times: list[float]) -> None:
    home = Home(times)
    other = 0
    for step in steps:
        match step:
            case "draw":
                home.unseen.append(home.epochs.draw())
            case "commit":
                home.commit()
            case "kill":
                home.start()
            case "observe":
                other = max(other, home.epochs.last) + 7 * AHEAD
                home.epochs.observe(other)
                home.commit()
                assert home.epochs.draw() > other
                home.start()
                assert home.epochs.draw() > other, "what was observed is forgotten by a kill"
    assert home.seen == sorted(set(home.seen))
    assert all(0 < number < 1 << 63 for number in home.seen)


def test_few_numbers_write_a_ceiling() -> None:
    kept: list[int] = []
    epochs = OwnerEpochs(kept.append, lambda: 1_764_000_000.0)
    drawn = [epochs.draw() for _ in range(10_000)]
    assert len(kept) == 1 and drawn[0] == 1_764_000_000_000_000 and drawn[-1] < kept[0]


def test_a_number_that_no_clock_gives_is_not_taken_over() -> None:
    epochs = OwnerEpochs()
    epochs.observe(LARGEST)
    assert epochs.draw() < 1 << 53


def test_a_single_active_consumer_has_a_number_of_its_own_each_time() -> None:
    queue = ClassicQueue(
        "/", "q", id=1, arguments={"x-single-active-consumer": True}, context=QueueContext(epochs=OwnerEpochs())
    )
    first, second = Taker(queue).start(), Taker(queue).start()
    assert len(first.epochs) == 1 and not second.epochs
    queue.renew_owners()
    first.give_back()
    first.start()
    second.give_back()
    given_numbers = [first.epochs[0], first.epochs[1], second.epochs[0], first.epochs[2]]
    assert given_numbers == sorted(set(given_numbers))


def test_queues_without_an_owner_draw_no_number() -> None:
    context = QueueContext(epochs=OwnerEpochs())
    queue = ClassicQueue("/", "q", id=1, context=context)
    takers = [Taker(queue).start() for _ in range(2)]
    assert context.epochs.last == 0 and not any(taker.epochs for taker in takers)
