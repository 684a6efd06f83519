"""Fixtures for tests of the page."""

from tests.http.site.conftest import api, broker, browser, open_page, pictures, site

__all__ = ["api", "broker", "browser", "open_page", "pictures", "site"]
