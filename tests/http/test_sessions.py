"""The page's login: a cookie hidden from scripts, valid only with a header, and with an end."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.http.api import API
from tests.waiting import punctually, until

import jumpmq
from jumpmq.broker.timing import BrokerTiming
from jumpmq.http.plumbing import sessions

PAGE = {"X-JumpMQ-Page": "1"}
GUEST = {"username": "guest", "password": "guest"}


class Page(requests.Session):
    """A browser's session: keeps cookies, and sends no other credentials."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address


@pytest.fixture
def page(api: API) -> Page:
    return Page(api.address)


def log_in(page: Page, credentials: dict[str, str] = GUEST, **options: Any) -> requests.Response:
    return page.post(f"{page.address}/session", json=credentials, headers=PAGE, timeout=30, **options)


def whoami(page: Page, headers: dict[str, str] = PAGE) -> requests.Response:
    return page.get(f"{page.address}/api/whoami", headers=headers, timeout=30)


def test_a_login_begins_a_session(page: Page) -> None:
    assert page.get(f"{page.address}/session", headers=PAGE, timeout=30).status_code == 401
    answered = log_in(page)
    assert answered.json()["user"] == "guest"
    cookie = answered.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Secure" not in cookie
    assert whoami(page).json()["name"] == "guest"
    assert page.get(f"{page.address}/session", headers=PAGE, timeout=30).json()["tags"] == ["administrator"]


def test_the_cookie_is_nothing_without_the_header(page: Page) -> None:
    log_in(page)
    assert whoami(page, {}).status_code == 401
    queue = f"{page.address}/api/queues/%2F/forged"
    assert page.put(queue, json={}, timeout=30).status_code == 401
    assert page.put(queue, json={}, headers={**PAGE, "Origin": "http://evil.example"}, timeout=30).status_code == 403
    assert page.put(queue, json={}, headers=PAGE, timeout=30).status_code == 201


def test_a_browser_is_not_made_to_ask_by_itself(page: Page) -> None:
    assert "WWW-Authenticate" not in whoami(page).headers
    assert "WWW-Authenticate" in whoami(page, {}).headers


def test_a_login_needs_the_header_and_the_password(page: Page) -> None:
    assert page.post(f"{page.address}/session", json=GUEST, timeout=30).status_code == 403
    assert log_in(page, {**GUEST, "password": "wrong"}).status_code == 401
    assert log_in(page, {"username": "guest"}).status_code == 400
    assert not page.cookies


def test_who_may_not_use_the_port_has_no_session(api: API, page: Page) -> None:
    api.request("PUT", "users", "app", json={"password": "secret", "tags": ""})
    refused = log_in(page, {"username": "app", "password": "secret"})
    assert refused.status_code == 401 and "Not management user" in refused.text


def test_a_logout_ends_the_session(page: Page) -> None:
    log_in(page)
    token = page.cookies["jumpmq_session"]
    page.delete(f"{page.address}/session", headers=PAGE, timeout=30)
    assert not page.cookies
    assert whoami(page, {**PAGE, "Cookie": f"jumpmq_session={token}"}).status_code == 401


@pytest.mark.parametrize("change", ["password", "deletion"])
def test_a_change_of_the_user_ends_its_sessions(api: API, page: Page, change: str) -> None:
    api.request("PUT", "users", "ann", json={"password": "secret", "tags": "monitoring"})
    assert log_in(page, {"username": "ann", "password": "secret"}).status_code == 200
    assert whoami(page).status_code == 200
    if change == "password":
        api.request("PUT", "users", "ann", json={"password": "another", "tags": "monitoring"})
    else:
        api.request("DELETE", "users", "ann")
    assert whoami(page).status_code == 401


def test_a_session_has_the_rights_of_its_user(api: API, page: Page) -> None:
    api.request("PUT", "users", "ann", json={"password": "secret", "tags": "monitoring"})
    log_in(page, {"username": "ann", "password": "secret"})
    assert page.get(f"{page.address}/api/users", headers=PAGE, timeout=30).status_code == 401


def test_the_page_and_its_files_are_for_everybody_and_protected(page: Page) -> None:
    shown = page.get(page.address, timeout=30)
    assert shown.status_code == 200 and shown.headers["Cache-Control"] == "no-cache"
    assert "default-src 'self'; frame-ancestors 'none'" in shown.headers["Content-Security-Policy"]
    assert page.get(page.address, headers={"If-None-Match": shown.headers["ETag"]}, timeout=30).status_code == 304
    script = next(part for part in shown.text.split('"') if part.endswith("main.js"))
    found = page.get(page.address + script, timeout=30)
    assert found.headers["Content-Type"].startswith("text/javascript")
    assert "immutable" in found.headers["Cache-Control"]
    assert page.get(f"{page.address}/assets/0/main.js", timeout=30).status_code == 404
    assert page.get(f"{page.address}/assets/..%2f..%2fserver.py", timeout=30).status_code == 404


def test_under_tls_the_cookie_is_sent_over_tls_alone(tmp_path: Path) -> None:
    with jumpmq.running(tls=True, data_dir=tmp_path / "tls") as broker:
        plain, protected = (f"{scheme}://localhost:{port}" for scheme, port in (
            ("http", broker.http_port), ("https", broker.https_port),
        ))  # fmt: skip
        options: dict[str, Any] = {"json": GUEST, "headers": PAGE, "timeout": 30, "verify": str(broker.tls_ca)}
        cookie = requests.post(f"{protected}/session", **options).headers["Set-Cookie"]
        assert {"Secure", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
        assert "Secure" not in requests.post(f"{plain}/session", **options).headers["Set-Cookie"]


def test_a_session_goes_on_after_a_restart_and_one_that_ended_does_not(tmp_path: Path) -> None:
    file = tmp_path / sessions.FILE
    with jumpmq.running(data_dir=tmp_path) as broker:
        stayed, left = (Page(f"http://127.0.0.1:{broker.http_port}") for _ in range(2))
        for page in (stayed, left):
            log_in(page)
        gone = left.cookies["jumpmq_session"]
        left.delete(f"{left.address}/session", headers=PAGE, timeout=30)
    assert file.stat().st_mode & 0o777 == 0o600
    kept = stayed.cookies["jumpmq_session"]
    assert kept is not None and kept not in file.read_text()
    with jumpmq.running(data_dir=tmp_path) as broker:
        stayed.address = f"http://127.0.0.1:{broker.http_port}"
        assert whoami(stayed).json()["name"] == "guest"
        ended = requests.get(
            f"{stayed.address}/api/whoami", headers={**PAGE, "Cookie": f"jumpmq_session={gone}"}, timeout=30
        )
        assert ended.status_code == 401
        API(broker.http_url).request("PUT", "users", "guest", json={"password": "another", "tags": "administrator"})
        assert whoami(stayed).status_code == 401
    file.write_text("[damaged")
    with jumpmq.running(data_dir=tmp_path) as broker:
        assert requests.get(f"{broker.http_url}/", timeout=30).status_code == 200


def test_a_session_ends_by_itself() -> None:
    def trial() -> None:
        page = Page(API(broker.http_url).address)
        cookie = log_in(page).headers["Set-Cookie"]
        assert "Max-Age=2" in cookie.split("; "), "the browser forgets it then, too"
        kept = {**PAGE, "Cookie": cookie.split(";")[0]}
        assert whoami(page, kept).status_code == 200
        until(lambda: requests.get(f"{page.address}/api/whoami", headers=kept, timeout=30).status_code == 401)

    with jumpmq.running(timing=BrokerTiming(page_session=2.0)) as broker:
        punctually(1.9, trial)


def test_the_oldest_session_of_a_user_makes_room(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_OF_USER", 3)
    cookies = [log_in(page).cookies["jumpmq_session"] for _ in range(4)]
    statuses = [
        requests.get(
            f"{page.address}/api/whoami", headers={**PAGE, "Cookie": f"jumpmq_session={cookie}"}, timeout=30
        ).status_code
        for cookie in cookies
    ]
    assert statuses == [401, 200, 200, 200]


def test_who_guesses_at_the_page_is_slowed_down_and_nobody_else(api: API, page: Page) -> None:
    api.request("PUT", "users", "ann", json={"password": "secret", "tags": "monitoring"})

    def guess(number: int) -> int:
        return log_in(page, {"username": "guest", "password": f"guess {number}"}).status_code

    with ThreadPoolExecutor(20) as at_once:
        assert set(at_once.map(guess, range(20))) == {401}
        began = time.monotonic()
        guesses = [at_once.submit(guess, number) for number in range(10)]
        answered = log_in(page, {"username": "ann", "password": "secret"})
        before_others = sum(guess.done() for guess in guesses)
        assert {guess.result() for guess in guesses} == {401}
    assert time.monotonic() - began >= 1.8, "ten are looked at, five a second"
    assert answered.status_code == 200
    assert before_others < 10, "another user does not wait for them"
