"""Running sessions: hypothesis runs the state machine."""

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from fuzzing.sessions.machine import Sessions
from fuzzing.sessions.pair import PATIENCE, Pair

STEPS = 25
"""Maximum number of rules in a session."""


def hold(pair: Pair, sessions: int, number: int, shorten: bool = True) -> None:
    """Run the given number of sessions, the same for the same seed ``number``.

    Raises:
        Difference: its notes are the session; the shortest session that reproduces it if ``shorten``.
    """
    Sessions.pair, pair.patience = pair, PATIENCE
    run_state_machine_as_test(
        seed(number)(Sessions),
        settings=settings(
            max_examples=sessions,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if shorten else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
