"""The pictures of docs/operating.md, of a broker under `scripts/mixed_load.py` that has run for forty minutes.

    python scripts/pictures.py HTTP_URL [DIRECTORY] [--cluster HTTP_URL]

Needs playwright, Pillow and Chromium.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
WIDE, PHONE = {"width": 1360, "height": 900}, {"width": 390, "height": 844}
DRAWN = 1100
"""Maximum width in pixels."""

VIEWS = {
    "hot-key-ring": ("rings/%2F/orders.by-customer", 0),
    "missing-header-ring": ("rings/%2F/payments.by-account", 560),
    "shard-without-consumer": ("shards/%2F/clicks", 560),
    "slow-consumer": ("queues/%2F/invoices", 0),
    "keys-that-wait": ("groups", 520),
}
"""The address of every picture's view, and the visible height: 0 is the whole view."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("directory", nargs="?", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--cluster", metavar="URL", help="of a node of a cluster under load, for nodes.png alone")
    given = parser.parse_args()
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit("no browser is installed (apt install chromium-headless-shell)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])

        def opened(url: str = given.url, **options: Any) -> Page:
            page = browser.new_context(reduced_motion="reduce", **options).new_page()
            page.goto(url)
            page.get_by_label("User").fill("guest")
            page.get_by_label("Password").fill("guest")
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("heading", level=1, name="Overview").wait_for()
            return page

        def keep(page: Page, name: str, height: int = 0) -> None:
            page.wait_for_timeout(8000)
            page.mouse.move(0, 0)
            drawn = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
            drawn = drawn.crop((0, 0, drawn.width, height or drawn.height))
            if drawn.width > DRAWN:
                drawn = drawn.resize((DRAWN, round(drawn.height * DRAWN / drawn.width)), Image.Resampling.LANCZOS)
            few = drawn.quantize(128, kmeans=3, dither=Image.Dither.NONE)
            few.save(given.directory / f"{name}.png", optimize=True)

        if given.cluster:
            nodes = opened(given.cluster, viewport=WIDE)
            nodes.goto(f"{given.cluster}#/nodes")
            keep(nodes, "nodes")
            return
        light, dark = opened(viewport=WIDE), opened(viewport=WIDE, color_scheme="dark")
        light.get_by_role("button", name="1 h").click()
        keep(light, "overview")
        keep(opened(viewport=PHONE), "overview-phone", PHONE["height"])
        for name, (view, height) in VIEWS.items():
            light.goto(f"{given.url}#/{view}")
            keep(light, name, height)
        dark.goto(f"{given.url}#/rings/%2F/orders.by-customer")
        keep(dark, "ring-dark")
        light.goto(f"{given.url}#/what-if/%2F/payments.by-account")
        light.get_by_role("row").filter(has_text="part-1").get_by_role("button", name="Unbind").click()
        light.get_by_label("Bind another queue").fill("payments.part-5")
        light.get_by_role("button", name="Add", exact=True).click()
        light.get_by_text("the least possible").wait_for()
        keep(light, "what-if", 620)
        browser.close()


if __name__ == "__main__":
    main()
