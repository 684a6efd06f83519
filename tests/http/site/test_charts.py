"""Charts: values under the pointer in all charts, a persistent selected range, and markers of events."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.conftest import Site
from tests.http.site.tasks import read_charts


@pytest.mark.slow
def test_values_zoom_and_marks(api: API, channel: BlockingChannel, site: Site) -> None:
    read_charts(api, channel, site)
