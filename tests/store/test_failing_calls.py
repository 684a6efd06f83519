"""After a failure of any call to the disk, confirmed messages are there, and the store goes on."""

import errno
import os
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.store.opened import Opened, left, make_messages

from jumpmq.store import StoreError
from jumpmq.store.files import Files

CALLS = ("create", "open", "write", "sync", "allocate", "truncate", "remove", "sync_directory")
SEGMENT = 16 << 10
TURNS = 12

AT_END = 12
"""Maximum number of calls made by closing."""


class Failing(Files):
    """A disk with one failing call.

    Attributes:
        fails_at: index of the failing call, from 0.
        armed: True once calls are counted.
        calls: names of the calls so far.
    """

    def __init__(self, fails_at: int = -1) -> None:
        self.fails_at = fails_at
        self.armed = False
        self.calls: list[str] = []

    def arm(self) -> None:
        """Count calls from now on: the store is open. (A start only reports unreadable files.)"""
        self.armed, self.calls = True, []


def _failing(name: str) -> Callable[..., Any]:
    def call(disk: Failing, *arguments: Any) -> Any:
        number = len(disk.calls)
        disk.calls.append(name)
        if disk.armed and number == disk.fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return getattr(Files, name)(disk, *arguments)

    return call


for name in CALLS:
    setattr(Failing, name, _failing(name))


def work(directory: Path, disk: Failing) -> None:
    """Publish and acknowledge over several segments; confirmed messages survive a crash and a restart."""
    with closing(Opened(directory, segment_bytes=SEGMENT)) as opened:
        opened.store.append(1, make_messages(1, 4))
        opened.commit()
    opened = Opened(directory, disk, segment_bytes=SEGMENT)

    def answered(number: int) -> bool:
        return opened.store.committed >= number or not opened.errors.empty()

    try:
        disk.arm()
        expected = [1, 2, 3, 4]
        for turn in range(TURNS):
            messages = make_messages(5 + 4 * turn, 8 + 4 * turn, body=lambda seq: b"%d " % seq + bytes(1500))
            opened.store.append(1, messages)
            number = opened.store.flush()
            while opened.store.committed < number:
                opened.store.flush()
                opened.work_until(partial(answered, number))
                while not opened.errors.empty():
                    opened.errors.get()
            messages[0].batch.settle(messages[0].seq)
            expected += [message.seq for message in messages[1:]]
            if turn % 4 == 3:
                opened.commit()
                assert left(opened.crash()) == {1: expected}
        assert opened.store.error is None
    finally:
        with suppress(StoreError):  # the end counts as a crash: the last settled messages may return
            opened.close()
    with closing(Opened(directory)) as opened:
        found = left(opened)[1]
        assert set(found) >= set(expected)
        assert found == expected or len(disk.calls) - disk.fails_at < AT_END


@pytest.mark.slow
def test_any_call_may_fail(tmp_path: Path) -> None:
    usual = Failing()
    work(tmp_path / "usual", usual)
    assert {"create", "write", "sync"} <= set(usual.calls)
    for number in range(len(usual.calls)):
        work(tmp_path / str(number), Failing(number))
