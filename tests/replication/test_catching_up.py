"""The rate of catching up, with a simulated clock: confirms have priority, and members still catch up."""

import math
from collections.abc import Callable

from jumpmq.replication.catching_up import IDLE, LEAST, CatchingUp
from jumpmq.replication.lineage import position_at

PIECE = 1 << 20
USUAL = 0.01


class Home:
    """A leader whose commits are delayed in proportion to the rate of catching up."""

    def __init__(self, slowed: Callable[[float], float], commit: int = 100) -> None:
        self.now, self.end = 100.0, position_at(1, 64)
        self.pace = CatchingUp(self.now)
        self.slowed = slowed
        self.commit_octets = commit
        self.speed = 0.0

    def commit(self) -> float:
        """Complete a commit; return its delay in seconds."""
        self.end += self.commit_octets
        self.pace.on_written(self.end, self.now)
        wait = self.slowed(self.speed)
        self.now += wait
        self.pace.on_complete(self.end, self.now)
        return wait

    def catch_up(self, seconds: float) -> list[float]:
        """Send pieces for so long, as fast as may be and at most 200 MB/s; returns the waits of commits."""
        end, waits, sent = self.now + seconds, [], 0.0
        while self.now < end:
            began = self.now
            self.now += self.pace.pause(PIECE, self.now) + PIECE / 200e6
            sent += PIECE
            self.speed = PIECE / (self.now - began)
            waits.append(self.commit())
        self.speed = 0.0
        return waits


def test_a_machine_at_rest_is_used_as_it_can_be() -> None:
    home = Home(lambda speed: 0.0)
    home.catch_up(5)
    assert home.pace.rate == math.inf


def test_confirms_wait_for_twice_as_long_as_usual_at_most() -> None:
    home = Home(lambda speed: USUAL * (1 + speed / 25e6))  # at 25 MB/s a commit waits for twice as long
    for _ in range(50):
        home.commit()
    home.catch_up(5)  # the rate comes down
    waits = sorted(home.catch_up(20))
    assert waits[len(waits) // 2] < 2.5 * USUAL
    assert LEAST <= home.pace.rate < 80e6


def test_a_member_gets_there_however_slow_that_makes_commits() -> None:
    home = Home(lambda speed: 20 * USUAL if speed else USUAL, commit=1 << 20)
    for _ in range(50):
        home.commit()
    home.catch_up(20)
    assert home.pace.rate >= 2 * 0.8 * (1 << 20) / (20 * USUAL)


def test_what_was_learnt_is_forgotten_once_nobody_catches_up() -> None:
    home = Home(lambda speed: 10 * USUAL if speed else USUAL)
    for _ in range(50):
        home.commit()
    home.catch_up(5)
    assert home.pace.rate < math.inf
    home.now += IDLE
    assert home.pace.pause(PIECE, home.now) == 0 and home.pace.rate == math.inf
