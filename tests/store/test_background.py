"""The store's threads: every request is carried out or answered with an error, under any failure."""

import threading
import time
from typing import Any

import pytest

from jumpmq.store.background import Background


class Asked:
    """Background work with result."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.woken = threading.Semaphore(0)
        self.background = Background("test", self.wake)
        self.fails = False

    def wake(self) -> None:
        self.woken.release()
        if self.fails:
            raise OSError("nobody to be woken")

    def result(self) -> Any:
        assert self.woken.acquire(timeout=10)
        self.background.deliver()
        return self.results.pop(0)


def leave() -> None:
    raise SystemExit("work that ends its thread")


def test_work_that_would_end_its_thread_is_answered_and_the_next_is_done() -> None:
    asked = Asked()
    asked.background.run(leave, asked.results.append)
    asked.background.run(lambda: 2, asked.results.append)
    assert isinstance(asked.result(), Exception)
    assert asked.result() == 2
    asked.background.close()


def test_a_wake_that_fails_costs_no_work(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    asked.fails = True
    asked.background.run(lambda: 1, asked.results.append)
    asked.background.run(lambda: 2, asked.results.append)
    assert [asked.result(), asked.result()] == [1, 2]
    asked.background.close()
    assert "nobody to be woken" in caplog.text


def test_without_a_thread_whoever_asks_gets_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", start)
        asked.background.run(lambda: 1, asked.results.append)
    assert isinstance(asked.result(), RuntimeError)
    assert not asked.background.is_working
    asked.background.run(lambda: 2, asked.results.append)
    assert asked.result() == 2
    asked.background.close()


def test_a_thread_that_has_died_is_replaced_and_what_it_left_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    with monkeypatch.context() as dying:
        dying.setattr(asked.background, "_run", lambda: None)
        asked.background.run(lambda: 1, asked.results.append)
        deadline = time.monotonic() + 10
        while asked.background.is_working:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    asked.background.run(lambda: 2, asked.results.append)
    assert [asked.result(), asked.result()] == [1, 2]
    asked.background.close()


def test_nothing_is_begun_once_it_is_closed() -> None:
    background, found = Background("closed", lambda: None), list[object]()
    background.run(lambda: 1, found.append)
    background.close()
    background.run(lambda: 2, found.append)
    background.deliver()
    assert found == [1]
    assert "closed" not in [thread.name for thread in threading.enumerate()]
