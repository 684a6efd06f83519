"""Quorum queues and streams are durable, and have a name that their client gives them."""

from typing import Any

import pytest
from tests.wire import ChannelClosed, Queue, WireChannel


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"durable": False}, "invalid property 'non-durable' for queue 'refused' in vhost '/'"),
        ({"exclusive": True}, "invalid property 'exclusive-owner' for queue 'refused' in vhost '/'"),
        ({"auto_delete": True}, "invalid property 'auto-delete' for queue 'refused' in vhost '/'"),
        ({"queue": ""}, "Cannot declare a server-named queue for type rabbit_{kind}_queue"),
    ],
)
def test_it_is_durable_and_named(channel: WireChannel, kind: str, options: dict[str, Any], text: str) -> None:
    declared = {"queue": "refused", "durable": True, "arguments": {"x-queue-type": kind}, **options}
    with pytest.raises(ChannelClosed) as refused:
        channel.call(Queue.Declare(**declared))
    assert (refused.value.code, refused.value.text) == (406, f"PRECONDITION_FAILED - {text.format(kind=kind)}")
