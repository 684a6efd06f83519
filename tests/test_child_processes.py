"""Child processes with modules of the package: pauses before restarts, repeated starts, exit status."""

import asyncio
import errno
import logging

import pytest

from jumpmq._child_processes import LONGEST_PAUSE, pause_after, run_module, start_again


def test_pause_doubles_with_each_short_life() -> None:
    assert [pause_after(lives) for lives in range(9)] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_PAUSE]
    assert pause_after(5000) == LONGEST_PAUSE


def test_failed_start_is_logged_and_repeated(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumpmq._child_processes.START_RETRY", 0.01)
    failures = [OSError(errno.EMFILE, "Too many open files")]

    async def start() -> None:
        if failures:
            raise failures.pop()

    asyncio.run(start_again(start, 0.0, "a child", logging.getLogger("parent")))
    assert caplog.messages == ["a child cannot be started: Too many open files; again in 0.01 s"]


def test_failed_module_returns_its_status_and_errors() -> None:
    status, errors = asyncio.run(run_module("jumpmq.nodes.log.compacting", b"no JSON"))
    assert status == 1
    assert b"JSONDecodeError" in errors
