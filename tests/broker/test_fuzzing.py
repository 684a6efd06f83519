"""Short runs of the fuzzers: a client with damaged input affects no neighbour."""

import random

import pytest
from fuzzing import endpoints, management, tls
from fuzzing.sockets import EVERY, fuzz


@pytest.mark.slow
def test_what_one_client_sends_does_not_trouble_the_others() -> None:
    assert fuzz(seconds=4, seed=random.randrange(1 << 30)) >= EVERY


def test_damaged_tls_does_not_trouble_the_others() -> None:
    assert tls.fuzz(seconds=2, seed=random.randrange(1 << 30)) >= EVERY


@pytest.mark.slow
def test_no_request_of_any_kind_of_user_is_a_server_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "LARGE", 0)
    users, seed = list(management.USERS), random.randrange(1 << 30)
    run = endpoints.fuzz(seconds=0.5, seed=seed, users=users, wait=float("inf"), queues=20)
    assert not run.found
    assert run.counts.keys() == management.USERS.keys()
