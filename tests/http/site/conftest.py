"""A broker, and a browser that opens its page."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.every_view import fill
from tests.waiting import PATIENCE, until

import jumpmq
from jumpmq import RunningBroker

if TYPE_CHECKING:
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        FloatRect,
        Locator,
        Page,
        Request,
        ViewportSize,
    )

BROWSERS = {
    "chromium": ("chromium-headless-shell", "chromium", "google-chrome"),
    "firefox": ("firefox-esr", "firefox"),
}
WIDE: ViewportSize = {"width": 1360, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A durable broker for all tests of a file, with names of their own: of ``--homes`` workers, or ``--nodes``
    nodes.
    """
    place = tmp_path_factory.mktemp("page") / "data"
    homes, nodes = request.config.getoption("homes"), request.config.getoption("nodes")
    if homes > 1 or nodes > 1:
        from tests.nodes.management.running_homes import running_homes, running_nodes  # as in tests/http

        with running_nodes(nodes, place) if nodes > 1 else running_homes(homes, place) as running:
            yield running.endpoints
        return
    with jumpmq.running(data_dir=place) as running:
        yield running


@pytest.fixture(scope="module")
def api(broker: RunningBroker) -> API:
    return API(broker.http_url)


BROWSER = os.environ.get("JUMPMQ_BROWSER", "chromium")
"""The browser of the tests, a key of :data:`BROWSERS`."""


def not_in_firefox(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(BROWSER == "firefox", reason=reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests of a file."""
    with launched(BROWSER) as running:
        yield running


@contextlib.contextmanager
def launched(kind: str) -> Iterator[Browser]:
    """A browser of the given kind; while it runs, no test can have an event loop in this thread."""
    missing = "playwright is not installed (pip install playwright)"
    playwright = pytest.importorskip("playwright.sync_api", reason=missing)
    found = next(filter(None, map(shutil.which, BROWSERS[kind])), None)
    if found is None:
        pytest.skip(f"no {kind} is installed (apt install {BROWSERS[kind][0]})")
    with playwright.sync_playwright() as started:
        if kind == "chromium":
            running = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        else:
            relayed, env = Path(__file__).with_name("firefox.py"), os.environ | {"JUMPMQ_FIREFOX": found}
            running = started.firefox.launch(channel="moz-firefox", executable_path=relayed, env=env)
        yield running
        running.close()


@pytest.fixture
def busy(api: API, channel: BlockingChannel) -> API:
    """A broker with objects for every view."""
    fill(api, channel)
    return api


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of screenshots: JUMPMQ_SCREENSHOTS, or a temporary directory."""
    place = Path(os.environ.get("JUMPMQ_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    place.mkdir(parents=True, exist_ok=True)
    return place


class OpenPage(Protocol):
    def __call__(
        self,
        user: str | None = "guest",
        password: str = "guest",
        *,
        scheme: Literal["dark", "light"] = "light",
        viewport: ViewportSize = WIDE,
    ) -> Site:
        """Open the page in a new window; without a user, at the login."""


@pytest.fixture
def open_page(browser: Browser, broker: RunningBroker, pictures: Path) -> Iterator[OpenPage]:
    """Open the page in a new window; an error in its console fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(
        user: str | None = "guest",
        password: str = "guest",
        *,
        scheme: Literal["dark", "light"] = "light",
        viewport: ViewportSize = WIDE,
    ) -> Site:
        context = browser.new_context(color_scheme=scheme, viewport=viewport, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
        return Site(page, f"http://127.0.0.1:{broker.http_port}/", pictures).log_in(user, password)

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


def is_complaint(message: ConsoleMessage) -> bool:
    """Return true for an error or warning of the page; a request refused by the broker is neither."""
    return message.type in ("error", "warning") and not message.text.startswith("Failed to load resource")


def bounding(place: Locator) -> FloatRect:
    """Bounding box of a visible element."""
    box = place.bounding_box()
    assert box is not None
    return box


@pytest.fixture
def site(open_page: OpenPage) -> Site:
    """The page as guest."""
    return open_page()


class Site:
    """The page in a browser's window, used through its visible texts."""

    def __init__(self, page: Page, address: str, pictures: Path) -> None:
        self.page, self.address, self._pictures = page, address, pictures
        self._unanswered: set[Request] = set()
        page.on("request", lambda request: self._unanswered.add(request) if "/api/" in request.url else None)
        page.on("requestfinished", lambda request: self._unanswered.discard(request))
        page.on("requestfailed", lambda request: self._unanswered.discard(request))

    def log_in(self, user: str | None, password: str) -> Site:
        self.page.goto(self.address)
        if user is not None:
            self.page.get_by_label("User").fill(user)
            self.page.get_by_label("Password").fill(password)
            self.page.get_by_role("button", name="Log in").click()
            self.page.get_by_role("heading", level=1, name="Overview").wait_for()
        return self

    def go(self, *parts: str) -> Site:
        """Open the view at an address."""
        from urllib.parse import quote

        self.page.goto(self.address + "#/" + "/".join(quote(part, safe="") for part in parts))
        return self._at("/".join(parts))

    def follow(self, link: Locator) -> Site:
        """Click a link, and wait for its view."""
        from urllib.parse import unquote

        place = unquote((link.get_attribute("href") or "").removeprefix("#/"))
        link.click()
        return self._at(place)

    def _at(self, place: str) -> Site:
        """Wait until the view is drawn and has the focus."""
        until(lambda: self.page.evaluate("document.body.dataset.place") == place)
        self.page.locator("main .panel, main .listing, main .charts, main table, main .empty").first.wait_for()
        return self

    def press(self, name: str, within: Locator | None = None) -> Site:
        """Press the button with the name; wait for its dialog, if any."""
        button = (within or self.page).get_by_role("button", name=name, exact=True)
        opens = button.get_attribute("aria-haspopup") == "dialog"
        button.click()
        if opens:
            self.page.get_by_role("dialog").wait_for()
        return self

    def fill(self, **fields: str) -> Site:
        """Fill in fields by name: of the dialog, if any."""
        dialog = self.page.get_by_role("dialog")
        form = dialog if dialog.count() else self.page
        for name, value in fields.items():
            field = form.locator(f"[name={name}]").first
            kind = field.evaluate("node => node.type")
            if kind.startswith("select"):
                field.select_option(value)
            elif kind == "number":  # playwright does not replace it in Firefox
                field.press("ControlOrMeta+a")
                field.press_sequentially(value)
            else:
                field.fill(value)
        return self

    def confirm(self, name: str) -> Site:
        """Press a button, and press it again in the confirmation dialog."""
        self.press(name)
        dialog = self.page.get_by_role("dialog")
        self.press(name, dialog)
        dialog.wait_for(state="detached")
        return self

    def submit(self, name: str) -> Site:
        """Send the form of the dialog."""
        dialog = self.page.get_by_role("dialog")
        self.press(name, dialog)
        dialog.wait_for(state="detached")
        return self

    def see(self, text: str | re.Pattern[str]) -> Site:
        """Wait until the text is visible."""
        self.page.get_by_text(re.compile(text) if isinstance(text, str) else text).first.wait_for()
        return self

    def row(self, text: str | re.Pattern[str]) -> Locator:
        """The row of a table with the text."""
        return self.page.get_by_role("row").filter(has_text=text).first

    def settle(self) -> Site:
        """Wait until all requests are answered and drawn."""
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"

        def nothing_is_open() -> bool:
            self.page.evaluate(frames)
            return not self._unanswered

        until(lambda: nothing_is_open() and nothing_is_open())
        return self

    def picture(self, name: str) -> Site:
        """Save a picture of the whole page; not in Firefox, which reports an error for the inserted style."""
        self.settle()
        browser = self.page.context.browser
        assert browser is not None
        if browser.browser_type.name != "firefox":
            self.page.screenshot(path=self._pictures / f"{name}.png", full_page=True, animations="disabled")
        return self
