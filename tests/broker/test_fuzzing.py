"""A short run of the fuzzer: whatever one client sends, the others go on."""

import random

from fuzzing.sockets import EVERY, fuzz


def test_what_one_client_sends_does_not_trouble_the_others() -> None:
    assert fuzz(seconds=4, seed=random.randrange(1 << 30)) >= EVERY
